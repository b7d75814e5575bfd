import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Threads that compute while the collector has work to do; every sum is computed again.
 * Usage: Jvm.java FILE: works until it is there.
 */
public class Jvm {
    static final int THREADS = 6;
    static final int STEPS = 100_000;
    /** Milliseconds that it works at least. */
    static final long LEAST = 1000;
    static final Map<Integer, byte[]> GARBAGE = new ConcurrentHashMap<>();
    static final AtomicLong MADE = new AtomicLong();

    static long compute(long number, boolean litters) {
        for (int step = 0; step < STEPS; step++) {
            number = number * 6364136223846793005L + 1442695040888963407L;
            if (litters && step % 512 == 0) {
                GARBAGE.put((int) (number >>> 52), new byte[2000]);
            }
        }
        if (litters) {
            MADE.incrementAndGet();
        }
        return number;
    }

    public static void main(String[] arguments) throws Exception {
        Path end = Path.of(arguments[0]);
        long began = System.nanoTime();
        var pool = Executors.newFixedThreadPool(THREADS);
        System.out.println("started");
        long sum = 0;
        long seeds = 0;
        while (System.nanoTime() - began < LEAST * 1_000_000 || !Files.exists(end)) {
            List<Future<Long>> turn = new ArrayList<>();
            for (int thread = 0; thread < THREADS; thread++) {
                long seed = seeds++;
                turn.add(pool.submit(() -> compute(seed, true)));
            }
            for (var result : turn) {
                sum += result.get();
            }
            Thread.sleep(50);
        }
        pool.shutdown();
        long expected = 0;
        for (long seed = 0; seed < seeds; seed++) {
            expected += compute(seed, false);
        }
        boolean right = sum == expected && MADE.get() == seeds;
        System.out.println(right ? "java: right" : "java: wrong");
        System.exit(right ? 0 : 1);
    }
}
