package org.anyfn;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * The buffer that a thread shares with native code. It is a stack of frames, and begins with a header: offset of the first free byte
 * ({@code int}), capacity ({@code int}), address ({@code long}), and the place of the result of a call that has no frame.
 *
 * <p>The buffers are plain objects of the JDK, so that the threads of a program do not keep the class loader of this package alive.
 */
final class Stack {
  /** Size of the header in bytes. */
  private static final int HEADER = 32;
  /** Offset of the place of the result of a call that has no frame. It is read before other code runs on the thread. */
  static final int RESULT = 16;
  /** Size of the buffer in bytes: frames that do not fit have a buffer of their own. */
  private static final int SIZE = 8192;
  /** Size of the buffer of a virtual thread, of which there may be very many. */
  private static final int SIZE_VIRTUAL = 1024;
  /** The method {@code Thread.isVirtual}, or null before JDK 21. */
  private static final MethodHandle IS_VIRTUAL = isVirtual();

  private static final ThreadLocal<ByteBuffer> CURRENT = new ThreadLocal<>();

  private Stack() {}

  /** Returns the buffer of this thread. */
  static ByteBuffer current() {
    ByteBuffer buffer = CURRENT.get();
    return buffer != null ? buffer : make();
  }

  private static MethodHandle isVirtual() {
    try {
      return MethodHandles.publicLookup().findVirtual(Thread.class, "isVirtual", MethodType.methodType(boolean.class));
    } catch (ReflectiveOperationException error) {
      return null;
    }
  }

  private static int size() {
    try {
      return IS_VIRTUAL != null && (boolean) IS_VIRTUAL.invokeExact(Thread.currentThread()) ? SIZE_VIRTUAL : SIZE;
    } catch (Throwable failure) {
      throw Errors.<RuntimeException>sneaky(failure);
    }
  }

  private static ByteBuffer make() {
    int size = size();
    ByteBuffer buffer = ByteBuffer.allocateDirect(size).order(ByteOrder.nativeOrder());
    buffer.putInt(0, HEADER).putInt(4, size).putLong(8, Native.address(buffer));
    CURRENT.set(buffer);
    return buffer;
  }

  static int top(ByteBuffer buffer) {
    return buffer.getInt(0);
  }

  static void setTop(ByteBuffer buffer, int top) {
    buffer.putInt(0, top);
  }

  static long address(ByteBuffer buffer) {
    return buffer.getLong(8);
  }
}
