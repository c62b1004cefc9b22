import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;

/** testprogs/answers.cc in Java: answers N by "folded(N) MISTAKES ROUNDS", while two threads check their own work. */
public class Answers {
    static final int TURNS = 20000;
    static final int NUMBERS = 50;
    static final AtomicLong mistakes = new AtomicLong();
    static final AtomicLong rounds = new AtomicLong();

    static long folded(long number) {
        long x = number;
        for (int i = 0; i < TURNS; i++)
            x = (x * 31 + i) % 65521;
        return x;
    }

    /** Some null pointers, which are signals here, and some garbage. */
    static String described(long number) {
        try {
            String text = number % 10 == 0 ? null : "the answer for " + number;
            return text.toUpperCase() + folded(number);
        } catch (NullPointerException expected) {
            return "none" + folded(number);
        }
    }

    static void work() {
        Map<Long, String> table = new HashMap<>();
        while (true) {
            for (long number = 0; number < NUMBERS; number++) {
                String result = described(number);
                String before = table.putIfAbsent(number, result);
                if (before != null && !before.equals(result))
                    mistakes.incrementAndGet();
            }
            rounds.incrementAndGet();
        }
    }

    public static void main(String[] arguments) throws Exception {
        for (int i = 0; i < 2; i++) {
            Thread thread = new Thread(Answers::work);
            thread.setDaemon(true);
            thread.start();
        }
        System.out.println("ready");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = input.readLine()) != null;)
            System.out.println(folded(Long.parseLong(line.trim())) + " " + mistakes + " " + rounds);
    }
}
