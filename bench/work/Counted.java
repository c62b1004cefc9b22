// java: collections, strings and a recursion in two threads, for ever. java Counted FILE: the turns are counted there, eight bytes. Prints "ready".
import java.io.RandomAccessFile;
import java.nio.*;
import java.nio.channels.FileChannel;
import java.util.*;
import java.util.concurrent.atomic.*;

public class Counted {
    static final AtomicLong turns = new AtomicLong();

    static int fib(int n) {
        return n < 2 ? n : fib(n - 1) + fib(n - 2);
    }

    static int turn(Random random) {
        Map<String, Integer> map = new HashMap<>();
        for (int i = 0; i < 1000; i++)
            map.put("k" + random.nextInt(5000), i);
        List<String> list = new ArrayList<>(map.keySet());
        Collections.sort(list);
        return list.size() + fib(18);
    }

    static void work(int seed, MappedByteBuffer counter) {
        Random random = new Random(seed);
        while (turn(random) > 0)
            synchronized (counter) {
                counter.putLong(0, turns.incrementAndGet());
            }
    }

    public static void main(String[] arguments) throws Exception {
        MappedByteBuffer counter;
        try (RandomAccessFile file = new RandomAccessFile(arguments[0], "rw")) {
            counter = file.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, 8);
        }
        counter.order(ByteOrder.LITTLE_ENDIAN);
        for (int n = 0; n < 2; n++) {
            int seed = n;
            new Thread(() -> work(seed, counter), "worker-" + n).start();
        }
        System.out.println("ready");
    }
}
