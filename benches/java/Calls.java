import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.LongUnaryOperator;
import org.anyfn.Function;
import org.anyfn.LongTernaryOperator;
import org.anyfn.Module;
import org.anyfn.PackedFunc;
import org.anyfn.Tensor;

/**
 * Measures calls from Java through anyfn, through JNI alone and, on Java 22 and later, through the foreign-function API alone:
 *
 * <pre>java -Dplain=PLAIN -Dorg.anyfn.library.path=FOLDER -cp .. Calls TESTING_LIBRARY ROW NAME</pre>
 *
 * Prints {@code name=nanoseconds} for anyfn, and {@code name@jni=nanoseconds} and {@code name@ffm=nanoseconds} for the others; {@code
 * by_ffm} is anyfn's function called through the foreign-function API, which typed views could use. Each row runs in a process of its own, because what a VM compiles depends on what ran before. There, all sides take turns, so that warming up and
 * a busy machine affect all of them; the figure is the minimum.
 */
public final class Calls {
  private static final int ROUNDS = 16;
  private static final long SLICE = 25_000_000;
  private static final int CALLS = 10_000;
  private static long sink;

  /** A loop of calls. */
  interface Loop {
    long run(int calls) throws Throwable;
  }

  /** The loops of the foreign-function API, in a class that Java 17 cannot load. */
  interface Other {
    long longs0(int calls) throws Throwable;

    long longs3(int calls) throws Throwable;

    long echo(int calls, String text) throws Throwable;

    long first(int calls, FloatBuffer buffer) throws Throwable;

    long callback(int calls, LongUnaryOperator f) throws Throwable;

    long anyfn0(int calls) throws Throwable;

    long anyfn3(int calls) throws Throwable;
  }

  /** What a row compares. */
  private record Row(Loop ours, Loop jni, Loop ffm, Loop byFfm) {
    Row(Loop ours, Loop jni, Loop ffm) {
      this(ours, jni, ffm, null);
    }
  }

  private Calls() {}

  private static double measure(Loop loop) throws Throwable {
    double least = Double.MAX_VALUE;
    long start = System.nanoTime();
    for (long now = start; now < start + SLICE; ) {
      sink += loop.run(CALLS);
      long then = System.nanoTime();
      least = Math.min(least, (then - now) / (double) CALLS);
      now = then;
    }
    return least;
  }

  private static void print(String name, Row row) throws Throwable {
    Map<String, Loop> sides = new LinkedHashMap<>();
    sides.put(name, row.ours);
    sides.put(name + "@jni", row.jni);
    sides.put(name + "@ffm", row.ffm);
    sides.put(name + "@by_ffm", row.byFfm);
    sides.values().removeIf(java.util.Objects::isNull);
    Map<String, Double> best = new LinkedHashMap<>();
    for (int round = 0; round < ROUNDS; round++) {
      for (Map.Entry<String, Loop> side : sides.entrySet()) {
        best.merge(side.getKey(), measure(side.getValue()), Math::min);
      }
    }
    best.forEach((side, ns) -> System.out.printf(java.util.Locale.ROOT, "%s=%.2f%n", side, ns));
  }

  private static Map<String, Row> rows(Other other) {
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
    Loop run0 = n -> {
      for (int i = 0; i < n; i++) {
        run.run();
      }
      return n;
    };
    Loop typed3 = n -> {
      long total = 0;
      for (int i = 0; i < n; i++) {
        total += typed.applyAsLong(i, 2, 3);
      }
      return total;
    };
    boolean isThere = other != null;
    Loop ffm0 = isThere ? other::longs0 : null;
    Loop ffm3 = isThere ? other::longs3 : null;
    Loop ffmFirst = isThere ? n -> other.first(n, buffer) : null;
    Map<String, Row> rows = new LinkedHashMap<>();
    rows.put("call_0_typed", new Row(run0, longs0, ffm0, isThere ? other::anyfn0 : null));
    rows.put("call_3_longs_typed", new Row(typed3, longs3, ffm3, isThere ? other::anyfn3 : null));
    rows.put("call_0_invoke", new Row(n -> {
      for (int i = 0; i < n; i++) {
        nop.invoke();
      }
      return n;
    }, longs0, ffm0));
    rows.put("call_3_longs_invoke", new Row(n -> {
      long total = 0;
      for (int i = 0; i < n; i++) {
        total += (Long) add.invoke(i, 2, 3);
      }
      return total;
    }, longs3, ffm3));
    rows.put("echo_string", new Row(n -> {
      long total = 0;
      for (int i = 0; i < n; i++) {
        total += ((String) echo.invoke(text)).length();
      }
      return total;
    }, plainEcho, isThere ? n -> other.echo(n, text) : null));
    rows.put("tensor", new Row(n -> {
      long total = 0;
      for (int i = 0; i < n; i++) {
        total += ((Double) sum.invoke(tensor)).longValue();
      }
      return total;
    }, first, ffmFirst));
    rows.put("direct_buffer", new Row(n -> {
      long total = 0;
      for (int i = 0; i < n; i++) {
        total += ((Double) sum.invoke(buffer)).longValue();
      }
      return total;
    }, first, ffmFirst));
    rows.put("callback", new Row(n -> {
      long total = 0;
      for (int i = 0; i < n; i++) {
        total += (Long) apply.invoke(kept, i);
      }
      return total;
    }, callback, isThere ? n -> other.callback(n, increment) : null));
    return rows;
  }

  private static Other other() throws ReflectiveOperationException {
    if (Runtime.version().feature() < 22) {
      return null;
    }
    try {
      return (Other) Class.forName("Ffm").getDeclaredConstructor().newInstance();
    } catch (ClassNotFoundException error) {
      return null;
    }
  }

  public static void main(String[] args) throws Throwable {
    Module library = Module.load(args[0]);
    Row row = rows(other()).get(args[1]);
    if (row == null || library.isClosed()) {
      throw new IllegalArgumentException("no row " + args[1]);
    }
    print(args[2], row);
    if (sink == 42) {
      System.out.println(sink);
    }
  }
}
