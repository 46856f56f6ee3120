package org.anyfn;

import static org.anyfn.Runner.check;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** Objects, strings, tensors and callbacks are made and dropped. With ANYFN_SOAK, a million of each. */
final class MemoryTest {
  private static final int COUNT = System.getenv("ANYFN_SOAK") != null ? 1_000_000 : 30_000;
  /** Bytes that the process may grow by. With ANYFN_SOAK, each kind would need more if it leaked its objects. */
  private static final long GROWTH = 48_000_000;

  private MemoryTest() {}

  private static long rss() throws IOException {
    String text = Files.readString(Path.of("/proc/self/statm"));
    return Long.parseLong(text.split(" ")[1]) * 4096;
  }

  private static long live() {
    long sum = 0;
    for (String name : List.of("testing.live_objects_by_type", "anyfn.live_objects")) {
      for (Object count : ((Map<?, ?>) Function.get(name).invoke()).values()) {
        sum += (Long) count;
      }
    }
    return sum;
  }

  /** Collects garbage until at most `enough` native objects are left. */
  private static long settle(long enough) throws InterruptedException {
    for (int i = 0; i < 40 && live() > enough; i++) {
      System.gc();
      Thread.sleep(20);
    }
    return live();
  }

  @Test
  static void nothingLeaks() throws Exception {
    // The heap of Java is in memory from the beginning, so that the process grows by native memory only.
    List<String> options = List.of("-Xcheck:jni", "-Xms64m", "-Xmx64m", "-XX:+AlwaysPreTouch", "-XX:+UseSerialGC");
    System.out.print(Runner.runClass(MemoryTest.class, options));
  }

  /** The program of a process of its own. */
  public static void main(String[] options) throws Exception {
    Function apply = Samples.get("apply");
    Function echo = Samples.get("echo");
    Function point = Samples.get("make_point");
    Map<String, Runnable> kinds = new LinkedHashMap<>();
    kinds.put("objects", () -> point.invoke(1, 2));
    kinds.put("containers", () -> ListRef.of(1, List.of("a string that is not short", 2)));
    kinds.put("strings", () -> echo.invoke("a string that is stored in an object"));
    kinds.put("callbacks", () -> apply.invoke((PackedFunc) args -> args[0], "a string that is not short"));
    kinds.put("functions", () -> Function.of(args -> 1));
    kinds.put("tensors", () -> Tensor.of(new float[64]).buffer());
    kinds.put("errors", () -> {
      try {
        apply.invoke((PackedFunc) args -> {
          throw new IOException();
        });
      } catch (Exception error) {
        // expected
      }
    });
    Object refused = new Object();
    kinds.put("refused arguments", () -> {
      try {
        echo.invoke(List.of("a string that is not short"), (PackedFunc) args -> 1, refused);
      } catch (IllegalArgumentException error) {
        // expected
      }
    });
    kinds.put("asynchronous calls", () -> echo.invokeAsync(List.of(1)).join());
    Set<String> slow = Set.of("tensors", "errors", "refused arguments", "asynchronous calls");
    for (Map.Entry<String, Runnable> kind : kinds.entrySet()) {
      int count = slow.contains(kind.getKey()) ? COUNT / 10 : COUNT;
      run(kind.getValue(), count / 4);
      long before = settle(0);
      long memory = rss();
      run(kind.getValue(), count);
      long left = settle(before + 100) - before;
      long grown = rss() - memory;
      System.out.printf("   %d %s: %d KB, %d native objects left%n", count, kind.getKey(), grown / 1024, left);
      check(grown < GROWTH, kind.getKey() + " grow by " + grown + " bytes");
      check(left <= 100, left + " " + kind.getKey() + " are left");
    }
  }

  private static void run(Runnable make, int count) {
    for (int i = 0; i < count; i++) {
      make.run();
    }
  }

  /** A program that makes objects, and then no others for a while. */
  static final class Idle {
    public static void main(String[] args) throws Exception {
      ListRef list = ListRef.of(1);
      Handle handle = list.handle;
      Thread.sleep(400);
      check(!handle.isClosed() && list.size() == 1, "it is in use");
      list = null;
      for (int wait = 0; wait < 200 && !handle.isClosed(); wait++) {
        System.gc();
        Thread.sleep(10);
      }
      check(handle.isClosed(), "an old object is released although no others are made");
    }
  }

  @Test
  static void oldObjectsAreReleased() throws Exception {
    Runner.runClass(Idle.class, List.of("-Dorg.anyfn.idle=50"));
  }

  @Test
  static void argumentsAfterOneThatFailsAreReleased() throws Exception {
    PackedFunc function = args -> null;
    java.lang.reflect.Method invoke = Callback.class.getDeclaredMethod("invokeLarge", java.nio.ByteBuffer.class, int.class);
    invoke.setAccessible(true);
    ListRef list = ListRef.of(1, 2);
    // Loads the library that counts its objects.
    Samples.get("echo");
    long before = live();
    for (int i = 0; i < 100; i++) {
      ListRef passed = ListRef.copyOf(list);
      long reference = passed.handle.retained();
      passed.close();
      java.nio.ByteBuffer frame = java.nio.ByteBuffer.allocateDirect(48).order(java.nio.ByteOrder.nativeOrder());
      // A type that Java does not know, and then an object.
      Frame.write(frame, 16, Value.OBJECT - 1, 0, 0);
      Frame.write(frame, 32, Value.LIST, Value.OWNED, reference);
      Runner.equal(invoke.invoke(new Callback(function, function), frame, 2), -1);
      Native.release(frame.getLong(8));
    }
    check(live() - before < 50, "objects are left");
    Runner.equal(list.size(), 2);
  }
}
