package org.anyfn;

import java.nio.ByteBuffer;

/** The functions of the native library. Addresses of objects are {@code long}; strings are UTF-8. */
final class Native {
  static {
    NativeLibrary.load();
  }

  private Native() {}

  /** Throws a native error, whose reference passes to this method. Native code calls it. */
  @SuppressWarnings("unused")
  private static void raise(long error) throws Throwable {
    throw Errors.take(error);
  }

  static native byte[] attach(byte[] path, Class<?> callback);

  static native long address(java.nio.Buffer buffer);

  static native int call(long function, long frame, int room, int count, boolean isPlain, long stack);

  static native int callNumbers(long function, long stack, int kinds, long one, long two, long three);

  static native long longs0(long function);

  static native long longs1(long function, long a);

  static native long longs2(long function, long a, long b);

  static native long longs3(long function, long a, long b, long c);

  static native double doubles0(long function);

  static native double doubles1(long function, double a);

  static native double doubles2(long function, double a, double b);

  static native void run(long function);

  static native long setFlag(long address);

  static native long makeFunction(Callback callback);

  static native Callback target(long function);

  static native long live();

  static native void release(long object);

  static native void retain(long object);

  static native int typeIndexOf(long object);

  static native byte[] content(long object);

  static native long newContent(byte[] content, int kind);

  static native long findGlobal(byte[] name);

  static native long getGlobal(byte[] name);

  static native void setGlobal(byte[] name, long function, boolean override);

  static native boolean removeGlobal(byte[] name);

  static native long listGlobals();

  static native byte[] signature(long function);

  static native int typeIndex(byte[] key);

  static native byte[] typeKey(int index);

  static native boolean isInstance(int index, int parent);

  static native int typePart(int index, int part);

  static native byte[] fieldText(int index, int position, int part);

  static native byte[] typeDoc(int index);

  static native boolean isWritable(int index, int position);

  static native byte[] methodName(int index, int position);

  static native long methodFunction(int index, int position);

  static native boolean isStatic(int index, int position);

  static native void getField(long object, int typeIndex, int position, long frame, int room);

  static native void setField(long object, int typeIndex, int position, long frame);

  static native void addMethod(int typeIndex, byte[] name, long function, boolean isStatic);

  static native boolean typeAttribute(int index, byte[] name, long frame, int room);

  static native long makeError(byte[] kind, byte[] message, byte[] trace, long cause, Throwable exception);

  static native long keepException(long error, byte[] trace, Throwable exception);

  static native byte[] errorText(long error, int part);

  static native long errorCause(long error);

  static native Throwable errorException(long error);

  static native long[] tensorShape(long tensor);

  static native long[] tensorStrides(long tensor);

  static native long tensorWord(long tensor, int part);

  static native ByteBuffer tensorBuffer(long tensor);

  static native long tensorOver(Object keep, java.nio.Buffer buffer, long offset, long dtype, long[] shape, boolean isReadOnly);

  static native long[] shape(long shape);

  static native long parseDType(byte[] name);

  static native byte[] dtypeText(long dtype);
}
