package org.anyfn;

import static org.anyfn.Runner.check;
import static org.anyfn.Runner.equal;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicLong;

/** Threads of Java and of native code. */
final class ThreadsTest {
  private static final int ROUNDS = System.getenv("ANYFN_SOAK") != null ? 100_000 : 5_000;

  private ThreadsTest() {}

  @Test
  static void nativeThreadsCallJava() {
    Function onThreads = Samples.get("apply_on_threads");
    AtomicLong calls = new AtomicLong();
    int threads = Thread.activeCount();
    PackedFunc count = args -> {
      calls.incrementAndGet();
      check(Thread.currentThread().isDaemon(), "native threads are daemons");
      return args[0];
    };
    for (int round = 0; round < 20; round++) {
      equal(onThreads.invoke(count, 16), 120L);
    }
    equal(calls.get(), 320L);
    for (int wait = 0; wait < 100 && Thread.activeCount() > threads + 1; wait++) {
      sleep();
    }
    check(Thread.activeCount() <= threads + 1, "native threads are detached when they end, got " + Thread.activeCount());
  }

  private static void sleep() {
    try {
      Thread.sleep(10);
    } catch (InterruptedException error) {
      throw new IllegalStateException(error);
    }
  }

  @Test
  static void sixteenThreads() throws Exception {
    Function add = Samples.get("add_i64");
    Function echo = Samples.get("echo");
    Function apply = Samples.get("apply");
    ExecutorService executor = Executors.newFixedThreadPool(16);
    try {
      List<Future<?>> all = new ArrayList<>();
      for (int thread = 0; thread < 16; thread++) {
        long base = thread;
        all.add(executor.submit(() -> {
          for (int round = 0; round < ROUNDS; round++) {
            equal(add.invoke(base, round), base + round);
            String text = "thread " + base + ", round " + round;
            equal(echo.invoke(text), text);
            equal(apply.invoke((PackedFunc) args -> args[1] + "!", round, text), text + "!");
          }
        }));
      }
      for (Future<?> one : all) {
        one.get();
      }
    } finally {
      executor.shutdown();
    }
  }

  @Test
  static void virtualThreads() throws Exception {
    ExecutorService executor;
    try {
      executor = (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
    } catch (NoSuchMethodException error) {
      throw new Runner.Skip("JDK " + Runtime.version().feature() + " has no virtual threads");
    }
    Function apply = Samples.get("apply");
    List<Future<?>> all = new ArrayList<>();
    for (int thread = 0; thread < 1000; thread++) {
      String text = "virtual thread " + thread;
      all.add(executor.submit(() -> {
        for (int round = 0; round < 20; round++) {
          equal(apply.invoke((PackedFunc) args -> {
            Thread.yield();
            return args[0];
          }, text), text);
        }
        return apply.invokeAsync((PackedFunc) args -> args[0], text).get();
      }));
    }
    for (int thread = 0; thread < 1000; thread++) {
      Object result = all.get(thread).get();
      equal(result, "virtual thread " + thread);
    }
    equal(executor.submit(() -> Stack.current().capacity()).get(), 1024);
    executor.shutdown();
  }

  @Test
  static void handlesClosedByOtherThreads() throws Exception {
    Function echo = Samples.get("echo");
    ExecutorService executor = Executors.newFixedThreadPool(2);
    for (int round = 0; round < ROUNDS; round++) {
      ListRef list = ListRef.of("a string in an object", round);
      Future<?> closing = executor.submit(list::close);
      try {
        ListRef same = (ListRef) echo.invoke(list);
        equal(same.size(), 2);
      } catch (IllegalStateException closed) {
        equal(closed.getMessage(), "this native object was closed");
      }
      closing.get();
    }
    executor.shutdown();
  }
}
