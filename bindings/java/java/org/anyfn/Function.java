package org.anyfn;

import java.lang.ref.Reference;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import org.jspecify.annotations.Nullable;

/** A native function. Functions of all languages are native functions. */
public final class Function extends ObjectRef implements PackedFunc {
  Function(long address) {
    super(address, Value.FUNCTION);
  }

  /**
   * Returns the global function with a name.
   *
   * @param name the name
   * @return the function
   * @throws AnyfnException.ValueError if there is none
   */
  public static Function get(String name) {
    return new Function(Native.getGlobal(Value.utf8(name)));
  }

  /**
   * Returns the global function with a name, if there is one.
   *
   * @param name the name
   * @return the function
   */
  public static Optional<Function> find(String name) {
    long found = Native.findGlobal(Value.utf8(name));
    return found == 0 ? Optional.empty() : Optional.of(new Function(found));
  }

  /**
   * Registers a function under a name, by which all languages find it.
   *
   * @param name the name
   * @param function the function
   * @return the native function
   * @throws AnyfnException.RuntimeError if a function with this name exists
   */
  public static Function register(String name, PackedFunc function) {
    return registerAny(name, function, false);
  }

  /**
   * Registers a function, and replaces one that exists.
   *
   * @param name the name
   * @param function the function
   * @return the native function
   */
  public static Function replace(String name, PackedFunc function) {
    return registerAny(name, function, true);
  }

  private static Function registerAny(String name, PackedFunc function, boolean override) {
    Function made = of(function);
    long object = made.enter();
    try {
      Native.setGlobal(Value.utf8(name), object, override);
    } finally {
      made.handle.leave();
    }
    return made;
  }

  /**
   * Removes a global function.
   *
   * @param name the name
   * @return true if there was one
   */
  public static boolean remove(String name) {
    return Native.removeGlobal(Value.utf8(name));
  }

  /**
   * Returns the names of all global functions.
   *
   * @return the names
   */
  public static List<String> names() {
    try (ArrayRef names = new ArrayRef(Native.listGlobals())) {
      List<String> all = new ArrayList<>(names.size());
      for (Object name : names) {
        all.add((String) name);
      }
      return all;
    }
  }

  /**
   * Makes a native function of a lambda.
   *
   * @param function the lambda
   * @return a native function that calls it
   */
  public static Function of(PackedFunc function) {
    if (function instanceof Function known) {
      return known;
    }
    java.util.Objects.requireNonNull(function);
    return new Function(Native.makeFunction(new Callback(function, function)));
  }

  /**
   * Makes a native function of an object of a functional interface: {@link PackedFunc}, {@link java.util.concurrent.Callable}, {@link
   * Runnable}, {@link LongTernaryOperator} or, of {@link java.util.function}, {@code Supplier}, {@code LongSupplier}, {@code
   * DoubleSupplier}, {@code LongUnaryOperator}, {@code LongBinaryOperator}, {@code DoubleUnaryOperator}, {@code DoubleBinaryOperator},
   * {@code Function}, {@code BiFunction}, {@code Predicate}, {@code BiPredicate}, {@code Consumer}, {@code BiConsumer} and what derives from
   * these. For another interface, pass a lambda of type {@code PackedFunc} that calls it. The number of arguments and, for interfaces with primitive
   * types, the types are checked at each call.
   *
   * @param function the object
   * @return a native function that calls it
   * @throws IllegalArgumentException if the object is of no such interface
   */
  public static Function from(Object function) {
    if (function instanceof Function known) {
      return known;
    }
    java.util.Objects.requireNonNull(function);
    PackedFunc adapter = Adapters.find(function);
    if (adapter == null) {
      throw new IllegalArgumentException("an object of class " + function.getClass().getName() + " is not of a functional interface that is known here; pass a lambda of type PackedFunc that calls it");
    }
    return new Function(Native.makeFunction(new Callback(adapter, function)));
  }

  /**
   * Converts a value as if it was passed to a native function and returned: an {@code Integer} becomes a {@code Long}, and lists, maps and
   * records become native objects. A lambda becomes a {@code Function}.
   *
   * @param value the value
   * @return the converted value
   */
  public static @Nullable Object convert(@Nullable Object value) {
    if (value instanceof NativeObject || value == null) {
      return value;
    }
    try (ArrayRef one = ArrayRef.of(new Object[] {value})) {
      Object converted = one.get(0);
      return converted instanceof PackedFunc lambda ? of(lambda) : converted;
    }
  }

  /**
   * {@inheritDoc}
   *
   * @throws IllegalArgumentException if an argument cannot be converted
   * @throws AnyfnException if the function fails. An exception of a Java function that the function calls is thrown unchanged
   */
  @Override
  public @Nullable Object invoke(@Nullable Object... args) {
    java.util.Objects.requireNonNull(args, "args; to pass null as an argument, write `invoke((Object) null)`");
    try {
      return Frame.call(handle, args);
    } finally {
      Reference.reachabilityFence(this);
    }
  }

  /**
   * Calls the function with named arguments. The names come from the {@link #signature}.
   *
   * @param named the named arguments
   * @param args the positional arguments
   * @return the result
   */
  public @Nullable Object invokeNamed(Map<String, ? extends @Nullable Object> named, @Nullable Object... args) {
    return Globals.call("ffi.FunctionCallNamed", this, args, named);
  }

  /**
   * Calls the function on another thread. A call that waits, such as one to another machine, holds the carrier of a virtual thread, and
   * this does not.
   *
   * <p>The arguments are converted now, so a list, an array of bytes or a native object that is changed or closed later is passed as it
   * is now. A buffer and a mutable native object share their elements with the call. {@code cancel} of the future makes native code that checks for signals stop.
   *
   * @param args the arguments
   * @return the result
   */
  public CompletableFuture<@Nullable Object> invokeAsync(@Nullable Object... args) {
    return AsyncCall.start(AsyncCall.EXECUTOR, this, args);
  }

  /**
   * Calls the function on a thread of an executor.
   *
   * @param executor the executor, whose threads should not be virtual
   * @param args the arguments
   * @return the result
   */
  public CompletableFuture<@Nullable Object> invokeAsync(Executor executor, @Nullable Object... args) {
    return AsyncCall.start(executor, this, args);
  }

  /**
   * Returns a typed view of the function. The number and the types of the parameters are compared once with the signature, if the function
   * has one, and primitive arguments are not boxed for {@link java.util.function.LongSupplier}, {@link
   * java.util.function.LongUnaryOperator}, {@link java.util.function.LongBinaryOperator}, {@link LongTernaryOperator}, {@link
   * java.util.function.DoubleSupplier}, {@link java.util.function.DoubleUnaryOperator}, {@link java.util.function.DoubleBinaryOperator}
   * and {@link Runnable}.
   *
   * <p>The view keeps the function alive, also after {@link #close}.
   *
   * @param <T> the functional interface
   * @param type an interface with one abstract method
   * @return an object of the interface
   * @throws AnyfnException.TypeError if the signature differs
   */
  public <T> T as(Class<T> type) {
    return TypedView.of(this, type);
  }

  /**
   * Returns the signature: names, types, defaults and documentation of the parameters as JSON.
   *
   * @return the signature, or null if the function has none
   */
  public @Nullable String signature() {
    long object = enter();
    try {
      byte[] text = Native.signature(object);
      return text == null ? null : Value.text(text);
    } finally {
      handle.leave();
    }
  }
}
