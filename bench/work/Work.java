// java: collections, strings, recursion, exceptions, two threads, for ever.
import java.util.*;

public class Work {
    static int fib(int n) {
        return n < 2 ? n : fib(n - 1) + fib(n - 2);
    }

    static int turn(Random random) {
        Map<String, Integer> map = new HashMap<>();
        for (int i = 0; i < 20000; i++)
            map.put("k" + random.nextInt(), i);
        List<String> list = new ArrayList<>(map.keySet());
        Collections.sort(list, Comparator.comparing(String::length).thenComparing(Comparator.naturalOrder()));
        StringBuilder text = new StringBuilder();
        for (String s : list)
            text.append(s);
        try {
            fib(20);
            throw new IllegalStateException(text.toString());
        } catch (IllegalStateException e) {
            return e.getMessage().length();
        }
    }

    public static void main(String[] arguments) {
        for (int n = 0; n < 2; n++) {
            Random random = new Random(n);
            new Thread(() -> { while (turn(random) > 0) { } }).start();
        }
    }
}
