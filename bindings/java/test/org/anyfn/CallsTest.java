package org.anyfn;

import static org.anyfn.Runner.check;
import static org.anyfn.Runner.equal;
import static org.anyfn.Runner.fails;

import java.util.List;
import java.util.Map;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.BiFunction;
import java.util.function.DoubleBinaryOperator;
import java.util.function.LongBinaryOperator;
import java.util.function.LongSupplier;
import java.util.function.LongUnaryOperator;

/** Calls in both directions, the registry, typed views, asynchronous calls. */
final class CallsTest {
  private CallsTest() {}

  @Test
  static void registry() {
    Function made = Function.register("java.test.add", args -> (Long) args[0] + (Long) args[1]);
    equal(made.invoke(1, 2), 3L);
    equal(Function.get("java.test.add").invoke(1, 2), 3L);
    check(Function.names().contains("java.test.add"), "the name is listed");
    AnyfnException error = fails(AnyfnException.RuntimeError.class, () -> Function.register("java.test.add", args -> null));
    check(error.getMessage().contains("java.test.add"), error.getMessage());
    Function.replace("java.test.add", args -> "replaced");
    equal(Function.get("java.test.add").invoke(), "replaced");
    check(Function.remove("java.test.add"), "it existed");
    check(!Function.remove("java.test.add"), "it is gone");
    check(Function.find("java.test.add").isEmpty(), "it is gone");
    AnyfnException missing = fails(AnyfnException.class, () -> Function.get("testing.add_i65"));
    check(missing.getMessage().contains("testing.add_i64"), missing.getMessage());
  }

  @Test
  static void functionsAreValues() {
    // The documents' `callhello`.
    PackedFunc hello = args -> "hello " + args[0];
    Function call = Function.of(args -> ((PackedFunc) args[0]).invoke("world"));
    equal(call.invoke(hello), "hello world");
    // A lambda comes back as itself.
    Object same = Samples.get("echo").invoke(hello);
    check(same == hello, "expected the lambda itself, got " + same);
    check(Samples.get("echo").invoke(Samples.get("add_i64")) instanceof Function, "a native function stays one");
    LongBinaryOperator add = Long::sum;
    equal(Samples.get("apply").invoke(add, 20, 22), 42L);
    AnyfnException error = fails(AnyfnException.TypeError.class, () -> Samples.get("apply").invoke(add, 20, "x"));
    equal(error.getMessage(), "argument #1: expected int, got String");
  }

  @Test
  static void manyArguments() {
    Function count = Function.of(args -> args.length);
    for (int length : new int[] {0, 1, 7, 8, 9, 100, 400, 2000}) {
      Object[] args = new Object[length];
      java.util.Arrays.fill(args, "a string of more than seven bytes");
      equal(count.invoke(args), (long) length);
    }
    Function last = Function.of(args -> args[args.length - 1]);
    Object[] args = new Object[1500];
    args[1499] = "x".repeat(100_000);
    equal(last.invoke(args), args[1499]);
  }

  @Test
  static void nestedCalls() {
    Function[] self = new Function[1];
    self[0] = Function.of(args -> {
      long depth = (Long) args[0];
      String text = (String) args[1];
      return depth == 0 ? text : self[0].invoke(depth - 1, text + depth + ";");
    });
    String result = (String) self[0].invoke(200, "");
    check(result.startsWith("200;199;") && result.endsWith("2;1;"), result);
  }

  /** Calls with up to three numbers have no frame: each kind of result, also of calls inside of other calls. */
  @Test
  static void numbers() {
    List<Object> results = new java.util.ArrayList<>(List.of(1L, 2.5, true, "short", "a string of more than seven bytes", "x".repeat(100_000)));
    results.add(null);
    results.add(java.math.BigInteger.ONE.shiftLeft(100));
    results.add(List.of(1L, "two"));
    Function[] self = new Function[1];
    self[0] = Function.of(args -> {
      int depth = ((Long) args[0]).intValue();
      if (depth == 0) {
        return args.length;
      }
      // The calls inside write their results to the same place.
      for (Object result : results) {
        Object got = Function.of(given -> result).invoke(depth, 2.5);
        check(result == null ? got == null : result.equals(got), "expected " + result + ", got " + got);
      }
      fails(IllegalStateException.class, () -> Function.of(given -> {
        throw new IllegalStateException();
      }).invoke(depth));
      return (Long) self[0].invoke(depth - 1, 0.5, depth) + depth;
    });
    equal(self[0].invoke(20), 213L);
    Function list = Function.of(List::of);
    equal(list.invoke(), List.of());
    equal(list.invoke(-1), List.of(-1L));
    equal(list.invoke(Long.MIN_VALUE, -0.0), List.of(Long.MIN_VALUE, -0.0));
    equal(list.invoke(1, 2.5, Integer.MAX_VALUE), List.of(1L, 2.5, (long) Integer.MAX_VALUE));
    equal(list.invoke(1, 2, 3, 4.5), List.of(1L, 2L, 3L, 4.5));
    equal(list.invoke((short) 1, 2f, true), List.of(1L, 2.0, true));
    list.close();
    fails(IllegalStateException.class, () -> list.invoke(1));
  }

  @Test
  static void endlessRecursion() {
    Function[] self = new Function[1];
    self[0] = Function.of(args -> self[0].invoke((Long) args[0] + 1));
    fails(StackOverflowError.class, () -> self[0].invoke(0));
    equal(Samples.get("echo").invoke("still works"), "still works");
  }

  @Test
  static void typedViews() {
    Function add = Samples.get("add_i64");
    equal(add.as(LongBinaryOperator.class).applyAsLong(40, 2), 42L);
    LongTernaryOperator three = Function.of(args -> (Long) args[0] + (Long) args[1] * (Long) args[2]).as(LongTernaryOperator.class);
    equal(three.applyAsLong(1, 2, 3), 7L);
    equal(Function.of(args -> 5).as(LongSupplier.class).getAsLong(), 5L);
    DoubleBinaryOperator power = Function.of(args -> Math.pow((Double) args[0], (Double) args[1])).as(DoubleBinaryOperator.class);
    equal(power.applyAsDouble(2, 10), 1024.0);
    @SuppressWarnings("unchecked")
    BiFunction<Object, Object, Object> concat = Samples.get("concat").as(BiFunction.class);
    equal(concat.apply("a", "b"), "ab");
    AnyfnException arity = fails(AnyfnException.TypeError.class, () -> add.as(LongUnaryOperator.class));
    check(arity.getMessage().contains("takes 2 arguments"), arity.getMessage());
    fails(AnyfnException.TypeError.class, () -> add.as(DoubleBinaryOperator.class));
    LongSupplier wrong = Function.of(args -> "text").as(LongSupplier.class);
    AnyfnException result = fails(AnyfnException.TypeError.class, wrong::getAsLong);
    check(result.getMessage().contains("expected the function to return int"), result.getMessage());
    LongSupplier failing = Function.of(args -> {
      throw new IllegalStateException("in Java");
    }).as(LongSupplier.class);
    equal(fails(IllegalStateException.class, failing::getAsLong).getMessage(), "in Java");
    // A view keeps the function alive.
    Function closed = Function.of(args -> 9);
    LongSupplier view = closed.as(LongSupplier.class);
    closed.close();
    equal(view.getAsLong(), 9L);
  }

  /** An interface of a user. */
  interface Repeat {
    String repeat(String text, int times);

    default String twice(String text) {
      return repeat(text, 2);
    }
  }

  @Test
  static void interfacesOfUsers() {
    Repeat repeat = Function.of(args -> ((String) args[0]).repeat(((Long) args[1]).intValue())).as(Repeat.class);
    equal(repeat.repeat("ab", 3), "ababab");
    equal(Function.of(args -> null).as(Repeat.class).repeat("", 0), null);
    fails(AnyfnException.TypeError.class, () -> Function.of(args -> 1).as(Repeat.class).repeat("", 0));
    fails(IllegalArgumentException.class, () -> Function.of(args -> 1).as(Map.class));
  }

  @Test
  static void namedArguments() {
    Function add = Samples.get("add_i64");
    String signature = add.signature();
    check(signature.contains("type_schema"), signature);
    check(Function.of(args -> null).signature() == null, "a lambda has no signature");
    equal(Samples.get("defaults").invokeNamed(Map.of("s", "y"), 1), "1 2 y None [1, 2]");
    fails(AnyfnException.TypeError.class, () -> Samples.get("defaults").invokeNamed(Map.of("unknown", 1), 1));
  }

  @Test
  static void defaultMethods() {
    equal(outside.Shapes.twice(Function.of(args -> (Long) args[0] * 3), 2), 18L);
    Repeat repeat = Function.of(args -> ((String) args[0]).repeat(((Long) args[1]).intValue())).as(Repeat.class);
    equal(repeat.twice("ab"), "abab");
    @SuppressWarnings("unchecked")
    BiFunction<Object, Object, Object> concat = Samples.get("concat").as(BiFunction.class);
    equal(concat.andThen(text -> text + "!").apply("a", "b"), "ab!");
  }

  /** A record that is a function. */
  record Adder(long to) implements PackedFunc {
    @Override
    public Object invoke(Object... args) {
      return to + (Long) args[0];
    }
  }

  @Test
  static void objectsThatAreFunctions() {
    equal(Samples.get("apply").invoke(new Adder(40), 2), 42L);
    String message = fails(IllegalArgumentException.class, () -> Samples.get("echo").invoke(new Thread())).getMessage();
    check(message.contains("Function.from"), message);
    String unknown = fails(IllegalArgumentException.class, () -> Function.from((java.util.function.IntBinaryOperator) Integer::sum)).getMessage();
    check(unknown.contains("PackedFunc"), unknown);
    fails(NullPointerException.class, () -> Samples.get("echo").invoke((Object[]) null));
  }

  @Test
  static void argumentsOfAsynchronousCalls() throws Exception {
    java.util.concurrent.CountDownLatch begin = new java.util.concurrent.CountDownLatch(1);
    java.util.concurrent.Executor executor = task -> {
      Thread thread = new Thread(() -> {
        try {
          begin.await();
        } catch (InterruptedException error) {
          throw new IllegalStateException(error);
        }
        task.run();
      });
      thread.setDaemon(true);
      thread.start();
    };
    byte[] bytes = {1};
    CompletableFuture<Object> first = Function.of(args -> (long) ((byte[]) args[0])[0]).invokeAsync(executor, (Object) bytes);
    bytes[0] = 2;
    CompletableFuture<Object> second;
    try (Tensor tensor = Tensor.of(new float[] {1, 2, 3})) {
      second = Function.of(args -> ((Tensor) args[0]).toFloatArray()[2]).invokeAsync(executor, tensor);
    }
    begin.countDown();
    equal(first.get(10, TimeUnit.SECONDS), 1L);
    equal(second.get(10, TimeUnit.SECONDS), 3.0);
  }

  @Test
  static void asynchronousCalls() throws Exception {
    Function slow = Function.of(args -> {
      Thread.sleep(20);
      return (Long) args[0] * 2;
    });
    CompletableFuture<Object> future = slow.invokeAsync(21);
    equal(future.get(10, TimeUnit.SECONDS), 42L);
    List<CompletableFuture<Object>> all = java.util.stream.IntStream.range(0, 50).mapToObj(slow::invokeAsync).toList();
    for (int i = 0; i < 50; i++) {
      equal(all.get(i).get(), 2L * i);
    }
    Function failing = Function.of(args -> {
      throw new java.io.IOException("no file");
    });
    ExecutionException failed = fails(ExecutionException.class, () -> failing.invokeAsync().get());
    equal(failed.getCause().getClass(), java.io.IOException.class);
    // The function may be closed once the call has begun.
    Function gone = Function.of(args -> "done");
    CompletableFuture<Object> last = gone.invokeAsync();
    gone.close();
    equal(last.get(), "done");
  }

  @Test
  static void cancellation() throws Exception {
    AtomicReference<Throwable> seen = new AtomicReference<>();
    java.util.concurrent.CountDownLatch ended = new java.util.concurrent.CountDownLatch(1);
    Function endless = Samples.get("sleep");
    Function outer = Function.of(args -> {
      try {
        return endless.invoke(30, true);
      } catch (AnyfnException error) {
        seen.set(error);
        throw error;
      } finally {
        ended.countDown();
      }
    });
    CompletableFuture<Object> future = outer.invokeAsync();
    Thread.sleep(50);
    check(future.cancel(true), "the call is cancelled");
    fails(CancellationException.class, future::get);
    check(ended.await(10, TimeUnit.SECONDS), "native code notices it");
    equal(((AnyfnException) seen.get()).kind(), "CancelledError");
  }

  @Test
  static void closedObjects() {
    Function function = Function.of(args -> 1);
    function.close();
    function.close();
    check(function.isClosed(), "it is closed");
    equal(fails(IllegalStateException.class, function::invoke).getMessage(), "this native object was closed");
    fails(IllegalStateException.class, () -> Samples.get("echo").invoke(function));
  }

  @Test
  static void objectsAreAliveWhileTheyAreUsed() {
    // The function is last used before its argument is converted, during which garbage is collected.
    List<Object> collecting = new java.util.AbstractList<>() {
      @Override
      public Object get(int index) {
        return "element " + index;
      }

      @Override
      public int size() {
        return 2;
      }

      @Override
      public Object[] toArray() {
        for (int i = 0; i < 3; i++) {
          System.gc();
          try {
            Thread.sleep(20);
          } catch (InterruptedException error) {
            throw new IllegalStateException(error);
          }
          // Making an object releases those that were collected.
          ListRef.of().close();
        }
        return super.toArray();
      }
    };
    for (int i = 0; i < 3; i++) {
      equal(Function.get("testing.echo").invoke(collecting), List.of("element 0", "element 1"));
      equal(Function.get("testing.apply").invoke(Function.get("testing.echo"), collecting), List.of("element 0", "element 1"));
      ObjectRef point = (ObjectRef) Function.get("testing.make_point").invoke(1, 2);
      equal(point.toString().startsWith("testing.Point"), true);
    }
  }

  @Test
  static void closedDuringTheCall() {
    Function[] self = new Function[1];
    self[0] = Function.of(args -> {
      self[0].close();
      System.gc();
      return "returned";
    });
    equal(self[0].invoke(), "returned");
    check(self[0].isClosed(), "it is closed");
    Tensor tensor = Tensor.of(new float[] {1, 2, 3});
    Function use = Function.of(args -> {
      tensor.close();
      return ((Tensor) args[0]).toFloatArray()[2];
    });
    equal(use.invoke(tensor), 3.0);
  }
}
