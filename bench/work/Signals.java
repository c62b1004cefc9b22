// java: two threads that work and run into null pointers all the time (the JVM gets a SIGSEGV for each that its compiled code does not check for), and one that
// asks all threads for their stacks (safepoints and handshakes). Prints "ready"; then for each line of standard input, a number of seconds, turns a second.
import java.util.*;
import java.util.concurrent.atomic.*;

public class Signals {
    static final AtomicLongArray turns = new AtomicLongArray(64);
    static int[][] rows = new int[256][];

    static int read(int n) {
        return rows[n & 255][n & 15];
    }

    static int turn(int n) {
        int sum = 0;
        try {
            for (int i = 0; i < 2000; i++)
                sum += read(n + (i & 127) * 2);
            sum += read(1); // null
        } catch (NullPointerException e) {
            sum++;
        }
        return sum;
    }

    static void work(int thread) {
        for (int n = 0;; n += 2) {
            turn(n);
            turns.lazySet(16 * thread, turns.get(16 * thread) + 1);
        }
    }

    static long sum() {
        return turns.get(0) + turns.get(16);
    }

    static void look() {
        try {
            while (true) {
                Thread.getAllStackTraces();
                Thread.sleep(2);
            }
        } catch (InterruptedException e) {
        }
    }

    public static void main(String[] arguments) throws Exception {
        for (int i = 0; i < 256; i += 2)
            rows[i] = new int[16];
        for (int n = 0; n < 2; n++) {
            int thread = n;
            Thread worker = new Thread(() -> work(thread));
            worker.setDaemon(true);
            worker.start();
        }
        Thread looker = new Thread(Signals::look);
        looker.setDaemon(true);
        looker.start();
        Thread.sleep(1000);
        System.out.println("ready");
        for (Scanner in = new Scanner(System.in); in.hasNextDouble();) {
            double seconds = in.nextDouble();
            long start = System.nanoTime(), before = sum();
            Thread.sleep((long) (seconds * 1000));
            System.out.println((sum() - before) * 1e9 / (System.nanoTime() - start));
        }
    }
}
