package org.anyfn;

import static org.anyfn.Runner.check;
import static org.anyfn.Runner.equal;
import static org.anyfn.Runner.fails;

import java.io.IOException;

/** Errors and exceptions, in both directions. */
final class ErrorsTest {
  private ErrorsTest() {}

  private static Object raise(Throwable exception) {
    return Samples.get("apply").invoke((PackedFunc) args -> {
      throw Errors.<Exception>sneaky(exception);
    });
  }

  @Test
  static void theSameExceptionComesBack() {
    for (Throwable exception : new Throwable[] {new IOException("file"), new Error("x"), new AnyfnException.KeyError("k"), new Throwable("plain")}) {
      check(fails(Throwable.class, () -> raise(exception)) == exception, "expected " + exception + " itself");
    }
    Throwable twice = new IOException("nested");
    Function outer = Function.of(args -> raise(twice));
    check(fails(IOException.class, outer::invoke) == twice, "also through two native calls");
    check(fails(IOException.class, () -> Samples.get("apply_on_thread").invoke(outer)) == twice, "also from another thread");
  }

  @Test
  static void nativeErrors() {
    AnyfnException error = fails(AnyfnException.ValueError.class, () -> Samples.get("raise_error").invoke("ValueError", "told so"));
    equal(error.toString(), "ValueError: told so");
    StackTraceElement[] trace = error.getStackTrace();
    check(trace[0].getFileName().endsWith(".rs"), "the trace begins with native frames, got " + trace[0]);
    boolean isHere = java.util.Arrays.stream(trace).anyMatch(frame -> frame.getClassName().contains("ErrorsTest"));
    check(isHere, "the trace goes on with Java frames");
    // Through Java and native code it stays the same exception, whose trace shows the Java code in between.
    check(fails(AnyfnException.ValueError.class, () -> raise(error)) == error, "the same exception");
    Function between = Function.of(args -> Samples.get("raise_error").invoke("KeyError", "inside"));
    AnyfnException inside = fails(AnyfnException.KeyError.class, () -> Samples.get("apply").invoke(between));
    boolean isShown = java.util.Arrays.stream(inside.getStackTrace()).anyMatch(frame -> frame.getMethodName().startsWith("lambda$nativeErrors"));
    check(isShown, "the lambda is in the trace");
    AnyfnException other = fails(AnyfnException.class, () -> Samples.get("raise_error").invoke("my.Kind", "m"));
    equal(other.kind(), "my.Kind");
  }

  /** A class of a user for a kind. */
  static final class MyError extends AnyfnException {
    private static final long serialVersionUID = 1;

    MyError(String message, Throwable cause) {
      super("java.test.MyError", message, cause);
    }
  }

  @Test
  static void kindsOfUsers() {
    AnyfnException.register("java.test.MyError", MyError::new);
    MyError error = fails(MyError.class, () -> Samples.get("raise_error").invoke("java.test.MyError", "mine"));
    equal(error.getMessage(), "mine");
  }

  @Test
  static void kindsOfExceptions() {
    Function describe = Samples.get("describe_error");
    java.util.function.Function<RuntimeException, String> kind = exception -> (String) describe.invoke(exception);
    check(kind.apply(new IllegalArgumentException("bad")).contains("ValueError"), kind.apply(new IllegalArgumentException("bad")));
    check(kind.apply(new IndexOutOfBoundsException("3")).contains("IndexError"), "index");
    check(kind.apply(new ClassCastException("c")).contains("TypeError"), "cast");
  }

  @Test
  static void causes() {
    IOException cause = new IOException("below");
    Throwable exception = fails(Throwable.class, () -> raise(new AnyfnException.RuntimeError("above", cause)));
    check(exception.getCause() == cause, "the cause stays");
    AnyfnException error = fails(AnyfnException.class, () -> Samples.get("raise_error_with_cause").invoke("ValueError", "a", "KeyError", "b"));
    equal(((AnyfnException) error.getCause()).kind(), "KeyError");
  }

  @Test
  static void panics() {
    AnyfnException error = fails(AnyfnException.class, () -> Samples.get("panic").invoke("at the disco"));
    check(error.getMessage().contains("at the disco"), error.getMessage());
  }

  @Test
  static void outOfMemoryInACallback() {
    OutOfMemoryError error = fails(OutOfMemoryError.class, () -> Samples.get("apply").invoke((PackedFunc) args -> new long[Integer.MAX_VALUE]));
    check(error.getMessage() != null, "it has a message");
    Function fill = Function.of(args -> {
      java.util.List<Object> all = new java.util.ArrayList<>();
      while (true) {
        all.add(new byte[1 << 20]);
      }
    });
    fails(OutOfMemoryError.class, fill::invoke);
    equal(Samples.get("echo").invoke("still works"), "still works");
  }

  @Test
  static void exceptionsAsValues() {
    IOException exception = new IOException("a value");
    check(Samples.get("echo").invoke(exception) == exception, "it comes back as itself");
  }

  @Test
  static void kindsOfSubclasses() {
    Function describe = Samples.get("describe_error");
    java.util.function.Function<Throwable, String> kind = exception -> (String) describe.invoke(exception);
    for (java.util.Map.Entry<Throwable, String> one : java.util.Map.<Throwable, String>of(
        new NumberFormatException("n"), "ValueError", new IOException("i"), "OSError", new java.util.concurrent.TimeoutException("t"), "TimeoutError",
        new java.util.concurrent.CancellationException("c"), "CancelledError", new java.nio.file.NoSuchFileException("f"), "OSError").entrySet()) {
      check(kind.apply(one.getKey()).contains(one.getValue()), one.getKey() + " is " + kind.apply(one.getKey()));
    }
    Throwable silent = new RuntimeException() {
      private static final long serialVersionUID = 1;

      @Override
      public String getMessage() {
        throw new AssertionError("no message");
      }
    };
    check(fails(Throwable.class, () -> raise(silent)) == silent, "the message is not needed");
    check(kind.apply(silent).contains(silent.getClass().getName()), kind.apply(silent));
    AnyfnException.register("java.test.Nothing", (message, cause) -> null);
    equal(fails(AnyfnException.class, () -> Samples.get("raise_error").invoke("java.test.Nothing", "m")).kind(), "java.test.Nothing");
  }

  /** An exception that fails while it is made of a native error. */
  static final class Unfinished extends AnyfnException {
    private static final long serialVersionUID = 1;
    private static final java.util.List<Unfinished> ALL = new java.util.ArrayList<>();

    Unfinished(String message, Throwable cause) {
      super("java.test.Unfinished", message, cause);
      ALL.add(this);
    }

    @Override
    public void setStackTrace(StackTraceElement[] frames) {
      throw new IllegalStateException("no trace");
    }
  }

  @Test
  static void errorsThatAreNotConverted() {
    AnyfnException.register("java.test.Unfinished", Unfinished::new);
    for (int i = 0; i < 50; i++) {
      fails(IllegalStateException.class, () -> Samples.get("raise_error").invoke("java.test.Unfinished", "m"));
    }
    // Each error is released once: the exceptions, which are reachable, still have theirs.
    Object live = ((java.util.Map<?, ?>) Samples.get("live_objects_by_type").invoke()).get("ffi.Error");
    check(live instanceof Long count && count >= 50, live + " errors are alive");
    Unfinished.ALL.forEach(exception -> exception.error.close());
    Unfinished.ALL.clear();
  }

  /** A program in which native errors become exceptions close to the end of the stack. */
  static final class Deep {
    private static final Function FAIL = Function.get("ffi.ArrayGetItem");
    private static int tries;
    private static int exceptions;

    private static void dive() {
      try {
        dive();
      } catch (StackOverflowError end) {
        if (tries++ < 120) {
          try {
            FAIL.invoke(1);
          } catch (AnyfnException | StackOverflowError error) {
            exceptions++;
          }
        }
        throw end;
      }
    }

    public static void main(String[] args) throws Exception {
      fails(AnyfnException.class, () -> FAIL.invoke(1));
      for (int round = 0; round < 15; round++) {
        tries = 0;
        Thread thread = new Thread(null, () -> fails(StackOverflowError.class, Deep::dive), "deep", (250 << 10) + round * 500L);
        thread.start();
        thread.join();
        if (round % 10 == 9) {
          System.gc();
          Thread.sleep(10);
        }
      }
      for (int i = 0; i < 2000; i++) {
        Function.of(given -> 1).invoke(1, 2);
      }
      check(exceptions > 200, exceptions + " exceptions");
      System.out.println("done");
    }
  }

  @Test
  static void nearTheEndOfTheStack() throws Exception {
    String output = Runner.runClass(Deep.class, java.util.List.of());
    check(output.endsWith("done\n"), output);
  }
}
