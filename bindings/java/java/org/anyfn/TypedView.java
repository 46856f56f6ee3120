package org.anyfn;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.ref.Reference;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.Proxy;
import java.util.List;
import java.util.function.DoubleBinaryOperator;
import java.util.function.DoubleSupplier;
import java.util.function.DoubleUnaryOperator;
import java.util.function.LongBinaryOperator;
import java.util.function.LongSupplier;
import java.util.function.LongUnaryOperator;

/** Views of functions with fixed types. A view has a reference of its own, which is released when the view is collected. */
abstract class TypedView {
  final long function;

  TypedView(Function function) {
    this.function = function.retained();
    Handle.of(this, this.function);
  }

  static <T> T of(Function function, Class<T> type) {
    Method method = methodOf(type);
    check(function, method);
    Object view;
    if (type == LongSupplier.class) {
      view = new Longs0(function);
    } else if (type == LongUnaryOperator.class) {
      view = new Longs1(function);
    } else if (type == LongBinaryOperator.class) {
      view = new Longs2(function);
    } else if (type == LongTernaryOperator.class) {
      view = new Longs3(function);
    } else if (type == DoubleSupplier.class) {
      view = new Doubles0(function);
    } else if (type == DoubleUnaryOperator.class) {
      view = new Doubles1(function);
    } else if (type == DoubleBinaryOperator.class) {
      view = new Doubles2(function);
    } else if (type == Runnable.class) {
      view = new Run(function);
    } else if (type.isInstance(function)) {
      view = function;
    } else {
      view = proxy(new Function(function.retained()), type, method);
    }
    return type.cast(view);
  }

  /** Returns the abstract method of a functional interface. */
  private static Method methodOf(Class<?> type) {
    Method found = null;
    if (type.isInterface()) {
      for (Method method : type.getMethods()) {
        if (Modifier.isAbstract(method.getModifiers()) && !isOfObject(method)) {
          if (found != null) {
            throw new IllegalArgumentException(type.getName() + " has more than one abstract method");
          }
          found = method;
        }
      }
    }
    if (found == null) {
      throw new IllegalArgumentException(type.getName() + " is not an interface with an abstract method");
    }
    return found;
  }

  private static boolean isOfObject(Method method) {
    try {
      Object.class.getMethod(method.getName(), method.getParameterTypes());
      return true;
    } catch (NoSuchMethodException error) {
      return false;
    }
  }

  /** Compares the parameters of a method with the signature of a function. */
  private static void check(Function function, Method method) {
    String signature = function.signature();
    if (signature == null || method.isVarArgs()) {
      return;
    }
    Signature told = Signature.parse(signature);
    if (told == null) {
      return;
    }
    Class<?>[] parameters = method.getParameterTypes();
    String name = told.name().isEmpty() ? "the function" : "`" + told.name() + "`";
    List<String> types = told.types();
    if (parameters.length > types.size() && !told.isVariadic() || parameters.length < types.size() - told.optional()) {
      throw new AnyfnException.TypeError(
          name + " takes " + types.size() + " arguments, and " + method.getDeclaringClass().getName() + " passes " + parameters.length);
    }
    for (int index = 0; index < Math.min(parameters.length, types.size()); index++) {
      if (!accepts(types.get(index), parameters[index])) {
        throw new AnyfnException.TypeError(
            name + ": argument #" + index + " is " + types.get(index) + ", and " + method.getDeclaringClass().getName() + " passes "
                + parameters[index].getSimpleName());
      }
    }
    if (!returns(told.result(), method.getReturnType())) {
      throw new AnyfnException.TypeError(
          name + " returns " + told.result() + ", and " + method.getDeclaringClass().getName() + " returns " + method.getReturnType().getSimpleName());
    }
  }

  private static boolean isInteger(Class<?> type) {
    return type == long.class || type == int.class || type == short.class || type == byte.class;
  }

  private static boolean accepts(String type, Class<?> java) {
    boolean isFloat = java == double.class || java == float.class;
    return switch (type) {
      case "int" -> !(isFloat || java == boolean.class || java == String.class);
      case "float" -> !(java == boolean.class || java == String.class);
      case "bool" -> !(isFloat || java == String.class);
      case "ffi.String" -> !java.isPrimitive();
      default -> true;
    };
  }

  private static boolean returns(String type, Class<?> java) {
    return switch (type) {
      case "int" -> java != boolean.class && java != String.class;
      case "float" -> !isInteger(java) && java != boolean.class && java != String.class;
      case "ffi.String", "None" -> !java.isPrimitive() || java == void.class;
      case "bool" -> java == boolean.class || !java.isPrimitive() && java != String.class || java == void.class;
      default -> true;
    };
  }

  private static Object proxy(Function function, Class<?> type, Method method) {
    Class<?> result = method.getReturnType();
    return Proxy.newProxyInstance(
        type.getClassLoader() != null ? type.getClassLoader() : TypedView.class.getClassLoader(),
        new Class<?>[] {type},
        (proxy, called, args) -> {
          Object[] given = args == null ? new Object[0] : args;
          if (called.equals(method)) {
            Object[] all = method.isVarArgs() && given.length == 1 && given[0] instanceof Object[] more ? more : given;
            return cast(function.invoke(all), result);
          }
          if (called.isDefault()) {
            return invokeDefault(proxy, called, given);
          }
          return switch (called.getName()) {
            case "equals" -> proxy == given[0];
            case "hashCode" -> function.hashCode();
            default -> type.getSimpleName() + " of " + function;
          };
        });
  }

  private static Object invokeDefault(Object proxy, Method method, Object[] args) throws Throwable {
    MethodHandle handle;
    try {
      handle = lookupDefault(method);
    } catch (IllegalAccessException error) {
      throw new UnsupportedOperationException("the default method " + method.getName() + " cannot be called on a typed view; its module must open its package to org.anyfn", error);
    }
    return handle.bindTo(proxy).invokeWithArguments(args);
  }

  private static MethodHandle lookupDefault(Method method) throws IllegalAccessException {
    Class<?> type = method.getDeclaringClass();
    try {
      return MethodHandles.lookup().unreflectSpecial(method, type);
    } catch (IllegalAccessException error) {
      // The interface is not public.
      TypedView.class.getModule().addReads(type.getModule());
      return MethodHandles.privateLookupIn(type, MethodHandles.lookup()).unreflectSpecial(method, type);
    }
  }

  /** Converts a result to the type that an interface returns. */
  static Object cast(Object value, Class<?> type) {
    if (type == void.class) {
      return null;
    }
    if (value instanceof Long number) {
      if (type == int.class || type == Integer.class) {
        return Math.toIntExact(number);
      }
      if (type == double.class || type == Double.class) {
        return number.doubleValue();
      }
      if (type == float.class || type == Float.class) {
        return number.floatValue();
      }
      if (type == short.class || type == byte.class) {
        throw new AnyfnException.TypeError("a function cannot return " + type + "; use int or long");
      }
    }
    if (value instanceof Double number && (type == float.class || type == Float.class)) {
      return number.floatValue();
    }
    Class<?> boxed = MethodType.methodType(type).wrap().returnType();
    if (value == null ? type.isPrimitive() : !boxed.isInstance(value)) {
      String got = value == null ? "null" : value.getClass().getSimpleName();
      throw new AnyfnException.TypeError("expected the function to return " + type.getSimpleName() + ", got " + got);
    }
    return value;
  }

  private static final class Longs0 extends TypedView implements LongSupplier {
    Longs0(Function function) {
      super(function);
    }

    @Override
    public long getAsLong() {
      try {
        return Native.longs0(function);
      } finally {
        Reference.reachabilityFence(this);
      }
    }
  }

  private static final class Longs1 extends TypedView implements LongUnaryOperator {
    Longs1(Function function) {
      super(function);
    }

    @Override
    public long applyAsLong(long a) {
      try {
        return Native.longs1(function, a);
      } finally {
        Reference.reachabilityFence(this);
      }
    }
  }

  private static final class Longs2 extends TypedView implements LongBinaryOperator {
    Longs2(Function function) {
      super(function);
    }

    @Override
    public long applyAsLong(long a, long b) {
      try {
        return Native.longs2(function, a, b);
      } finally {
        Reference.reachabilityFence(this);
      }
    }
  }

  private static final class Longs3 extends TypedView implements LongTernaryOperator {
    Longs3(Function function) {
      super(function);
    }

    @Override
    public long applyAsLong(long a, long b, long c) {
      try {
        return Native.longs3(function, a, b, c);
      } finally {
        Reference.reachabilityFence(this);
      }
    }
  }

  private static final class Doubles0 extends TypedView implements DoubleSupplier {
    Doubles0(Function function) {
      super(function);
    }

    @Override
    public double getAsDouble() {
      try {
        return Native.doubles0(function);
      } finally {
        Reference.reachabilityFence(this);
      }
    }
  }

  private static final class Doubles1 extends TypedView implements DoubleUnaryOperator {
    Doubles1(Function function) {
      super(function);
    }

    @Override
    public double applyAsDouble(double a) {
      try {
        return Native.doubles1(function, a);
      } finally {
        Reference.reachabilityFence(this);
      }
    }
  }

  private static final class Doubles2 extends TypedView implements DoubleBinaryOperator {
    Doubles2(Function function) {
      super(function);
    }

    @Override
    public double applyAsDouble(double a, double b) {
      try {
        return Native.doubles2(function, a, b);
      } finally {
        Reference.reachabilityFence(this);
      }
    }
  }

  private static final class Run extends TypedView implements Runnable {
    Run(Function function) {
      super(function);
    }

    @Override
    public void run() {
      try {
        Native.run(function);
      } finally {
        Reference.reachabilityFence(this);
      }
    }
  }
}
