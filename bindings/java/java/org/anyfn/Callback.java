package org.anyfn;

import java.nio.ByteBuffer;

/** What a native function that Java implements refers to. */
final class Callback {
  final PackedFunc function;
  /** True if the function calls an object of another functional interface. */
  final boolean isAdapter;

  Callback(PackedFunc function, Object converted) {
    this.function = function;
    isAdapter = function != converted;
  }

  /** Returns the address of the buffer of this thread. Native code calls it. */
  @SuppressWarnings("unused")
  private long stack() {
    return Stack.address(Stack.current());
  }

  /** Calls the function with a frame in the buffer of this thread. Native code calls it. Returns 0, or -1 after an exception. */
  @SuppressWarnings("unused")
  private int invoke(int position, int count) throws Throwable {
    return run(Stack.current(), position, count);
  }

  /** Calls the function with a frame in a buffer of its own. Native code calls it. */
  @SuppressWarnings("unused")
  private int invokeLarge(ByteBuffer frame, int count) throws Throwable {
    return run(frame.order(java.nio.ByteOrder.nativeOrder()), 0, count);
  }

  private int run(ByteBuffer buffer, int position, int count) throws Throwable {
    int taken = 0;
    try {
      Object[] args = new Object[count];
      while (taken < count) {
        int at = taken++;
        args[at] = Frame.take(buffer, position + (at + 1) * Frame.PLACE);
      }
      Frame.putResult(buffer, position, function.invoke(args));
      return 0;
    } catch (Throwable exception) {
      while (taken < count) {
        Frame.drop(buffer, position + ++taken * Frame.PLACE);
      }
      return fail(buffer, position, exception);
    }
  }

  private static int fail(ByteBuffer buffer, int position, Throwable exception) throws Throwable {
    long error;
    try {
      error = Errors.toNative(exception);
    } catch (Throwable outOfMemory) {
      // Native code keeps an exception that leaves this method.
      throw exception;
    }
    Frame.write(buffer, position, Value.ERROR, Value.OWNED, error);
    return -1;
  }
}
