package org.anyfn;

import java.util.concurrent.Callable;
import java.util.function.BiConsumer;
import java.util.function.BiFunction;
import java.util.function.BiPredicate;
import java.util.function.Consumer;
import java.util.function.DoubleBinaryOperator;
import java.util.function.DoubleSupplier;
import java.util.function.DoubleUnaryOperator;
import java.util.function.LongBinaryOperator;
import java.util.function.LongSupplier;
import java.util.function.LongUnaryOperator;
import java.util.function.Predicate;
import java.util.function.Supplier;

/** Java's functional interfaces as functions that take any values. */
final class Adapters {
  private Adapters() {}

  /** Returns a function that calls an object of a functional interface, or null if the interface is not known. */
  static PackedFunc find(Object f) {
    if (f instanceof PackedFunc function) {
      return function;
    }
    if (f instanceof Callable<?> callable) {
      return args -> {
        expect(args, 0);
        return callable.call();
      };
    }
    if (f instanceof Runnable runnable) {
      return args -> {
        expect(args, 0);
        runnable.run();
        return null;
      };
    }
    if (f instanceof Supplier<?> supplier) {
      return args -> {
        expect(args, 0);
        return supplier.get();
      };
    }
    if (f instanceof LongSupplier supplier) {
      return args -> {
        expect(args, 0);
        return supplier.getAsLong();
      };
    }
    if (f instanceof DoubleSupplier supplier) {
      return args -> {
        expect(args, 0);
        return supplier.getAsDouble();
      };
    }
    if (f instanceof LongUnaryOperator operator) {
      return args -> operator.applyAsLong(integer(expect(args, 1), 0));
    }
    if (f instanceof LongBinaryOperator operator) {
      return args -> operator.applyAsLong(integer(expect(args, 2), 0), integer(args, 1));
    }
    if (f instanceof LongTernaryOperator operator) {
      return args -> operator.applyAsLong(integer(expect(args, 3), 0), integer(args, 1), integer(args, 2));
    }
    if (f instanceof DoubleUnaryOperator operator) {
      return args -> operator.applyAsDouble(number(expect(args, 1), 0));
    }
    if (f instanceof DoubleBinaryOperator operator) {
      return args -> operator.applyAsDouble(number(expect(args, 2), 0), number(args, 1));
    }
    return findGeneric(f);
  }

  @SuppressWarnings("unchecked")
  private static PackedFunc findGeneric(Object f) {
    if (f instanceof java.util.function.Function<?, ?> function) {
      return args -> ((java.util.function.Function<Object, Object>) function).apply(expect(args, 1)[0]);
    }
    if (f instanceof BiFunction<?, ?, ?> function) {
      return args -> ((BiFunction<Object, Object, Object>) function).apply(expect(args, 2)[0], args[1]);
    }
    if (f instanceof Predicate<?> predicate) {
      return args -> ((Predicate<Object>) predicate).test(expect(args, 1)[0]);
    }
    if (f instanceof BiPredicate<?, ?> predicate) {
      return args -> ((BiPredicate<Object, Object>) predicate).test(expect(args, 2)[0], args[1]);
    }
    if (f instanceof Consumer<?> consumer) {
      return args -> {
        ((Consumer<Object>) consumer).accept(expect(args, 1)[0]);
        return null;
      };
    }
    if (f instanceof BiConsumer<?, ?> consumer) {
      return args -> {
        ((BiConsumer<Object, Object>) consumer).accept(expect(args, 2)[0], args[1]);
        return null;
      };
    }
    return null;
  }

  private static Object[] expect(Object[] args, int count) {
    if (args.length != count) {
      throw new AnyfnException.TypeError("expected " + count + " arguments, got " + args.length);
    }
    return args;
  }

  private static long integer(Object[] args, int index) {
    if (args[index] instanceof Long number) {
      return number;
    }
    throw mismatch(index, "int", args[index]);
  }

  private static double number(Object[] args, int index) {
    if (args[index] instanceof Double || args[index] instanceof Long) {
      return ((Number) args[index]).doubleValue();
    }
    throw mismatch(index, "float", args[index]);
  }

  private static AnyfnException mismatch(int index, String expected, Object value) {
    String got = value == null ? "null" : value.getClass().getSimpleName();
    return new AnyfnException.TypeError("argument #" + index + ": expected " + expected + ", got " + got);
  }
}
