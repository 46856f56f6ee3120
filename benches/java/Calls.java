import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.util.function.LongUnaryOperator;
import org.anyfn.Function;
import org.anyfn.LongTernaryOperator;
import org.anyfn.Module;
import org.anyfn.PackedFunc;
import org.anyfn.Tensor;

/**
 * Costs of calls from Java, beside the same calls through JNI alone. The argument is the library of sample functions.
 *
 * <p>Rounds of both alternate in one process; the figure of a row is its minimum over all rounds, in nanoseconds per call. `run.sh` starts
 * several processes, because what a VM compiles depends on what ran before.
 */
public final class Calls {
  private static final int ROUNDS = 12;
  private static final long SLICE = 60_000_000;
  private static long sink;

  /** A loop of calls. */
  private interface Loop {
    long run(int calls);
  }

  private Calls() {}

  private static double measure(Loop loop, double best) {
    int calls = 20_000;
    long start = System.nanoTime();
    long end = start + SLICE;
    double least = best;
    for (long now = start; now < end; ) {
      sink += loop.run(calls);
      long then = System.nanoTime();
      least = Math.min(least, (then - now) / (double) calls);
      now = then;
    }
    return least;
  }

  private static void row(String name, Loop ours, Loop plain) {
    double best = Double.MAX_VALUE;
    double plainBest = Double.MAX_VALUE;
    for (int round = 0; round < ROUNDS; round++) {
      best = measure(ours, best);
      plainBest = measure(plain, plainBest);
    }
    System.out.printf("%-42s %8.1f %8.1f %6.2f%n", name, best, plainBest, best / plainBest);
  }

  public static void main(String[] args) {
    Module library = Module.load(args[0]);
    Function nop = Function.get("testing.nop");
    Function add = Function.get("testing.add3_i64");
    Function echo = Function.get("testing.echo");
    Function apply = Function.get("testing.apply");
    Function sum = Function.get("testing.tensor_sum");
    Runnable run = nop.as(Runnable.class);
    LongTernaryOperator typed = add.as(LongTernaryOperator.class);
    String text = "x".repeat(64);
    FloatBuffer buffer = ByteBuffer.allocateDirect(16).order(ByteOrder.nativeOrder()).asFloatBuffer();
    Tensor tensor = Tensor.of(new float[4]);
    LongUnaryOperator increment = x -> x + 1;
    PackedFunc incremented = given -> (Long) given[0] + 1;
    Function kept = Function.of(incremented);

    System.out.printf("%-42s %8s %8s %6s%n", "ns per call, JDK " + Runtime.version().feature(), "anyfn", "JNI", "ratio");
    Loop longs0 = n -> {
      long total = 0;
      for (int i = 0; i < n; i++) {
        total += Plain.longs0();
      }
      return total;
    };
    Loop longs3 = n -> {
      long total = 0;
      for (int i = 0; i < n; i++) {
        total += Plain.longs3(i, 2, 3);
      }
      return total;
    };
    Loop plainEcho = n -> {
      long total = 0;
      for (int i = 0; i < n; i++) {
        total += Plain.echo(text).length();
      }
      return total;
    };
    Loop first = n -> {
      long total = 0;
      for (int i = 0; i < n; i++) {
        total += (long) Plain.first(buffer);
      }
      return total;
    };
    Loop callback = n -> {
      long total = 0;
      for (int i = 0; i < n; i++) {
        total += Plain.callback(increment, i);
      }
      return total;
    };
    row("no argument, typed view", n -> {
      for (int i = 0; i < n; i++) {
        run.run();
      }
      return n;
    }, longs0);
    row("no argument, invoke", n -> {
      for (int i = 0; i < n; i++) {
        nop.invoke();
      }
      return n;
    }, longs0);
    row("3 longs, typed view", n -> {
      long total = 0;
      for (int i = 0; i < n; i++) {
        total += typed.applyAsLong(i, 2, 3);
      }
      return total;
    }, longs3);
    row("3 longs, invoke", n -> {
      long total = 0;
      for (int i = 0; i < n; i++) {
        total += (Long) add.invoke(i, 2, 3);
      }
      return total;
    }, longs3);
    row("string of 64 characters, both ways", n -> {
      long total = 0;
      for (int i = 0; i < n; i++) {
        total += ((String) echo.invoke(text)).length();
      }
      return total;
    }, plainEcho);
    row("tensor of 4 floats", n -> {
      long total = 0;
      for (int i = 0; i < n; i++) {
        total += ((Double) sum.invoke(tensor)).longValue();
      }
      return total;
    }, first);
    row("direct buffer of 4 floats", n -> {
      long total = 0;
      for (int i = 0; i < n; i++) {
        total += ((Double) sum.invoke(buffer)).longValue();
      }
      return total;
    }, first);
    row("callback with a long", n -> {
      long total = 0;
      for (int i = 0; i < n; i++) {
        total += (Long) apply.invoke(kept, i);
      }
      return total;
    }, callback);
    if (library.isClosed() || sink == 42) {
      System.out.println(sink);
    }
  }
}
