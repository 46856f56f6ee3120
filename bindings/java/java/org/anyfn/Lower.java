package org.anyfn;

import java.nio.Buffer;
import java.util.List;
import java.util.Map;

/** Conversion of Java values of less frequent classes to native ones. */
final class Lower {
  /** Writes a value that owns nothing: offset, type, payload. */
  interface Word {
    void put(int at, int type, long word);
  }

  private Lower() {}

  /** Writes a value that owns nothing. Returns false if it is another one. */
  static boolean putPlain(Word out, int at, Object value) {
    if (value instanceof Boolean flag) {
      out.put(at, Value.BOOL, flag ? 1 : 0);
    } else if (value instanceof Float number) {
      out.put(at, Value.FLOAT, Double.doubleToRawLongBits(number));
    } else if (value instanceof Short || value instanceof Byte) {
      out.put(at, Value.INT, ((Number) value).longValue());
    } else if (value instanceof DType dtype) {
      out.put(at, Value.DTYPE, dtype.bitsOfAll());
    } else if (value instanceof Device device) {
      out.put(at, Value.DEVICE, device.type() & 0xffff_ffffL | (long) device.index() << 32);
    } else if (value instanceof OpaquePointer pointer) {
      out.put(at, Value.OPAQUE, pointer.address());
    } else {
      return false;
    }
    return true;
  }

  /** Converts a value to an object, and returns a reference of it. */
  static long toObject(Object value, int depth) {
    if (value instanceof List<?> || value instanceof Map<?, ?> || value instanceof Object[]) {
      return Frame.container(value, depth);
    }
    if (value instanceof Throwable exception) {
      return Errors.toNative(exception);
    }
    if (value instanceof Buffer buffer) {
      return Tensor.over(buffer);
    }
    if (value instanceof Record record && !(value instanceof PackedFunc)) {
      return ObjectType.construct(record, depth);
    }
    PackedFunc function = value instanceof Thread ? null : Adapters.find(value);
    if (function != null) {
      return Native.makeFunction(new Callback(function, value));
    }
    throw new IllegalArgumentException("an object of class " + value.getClass().getName() + " cannot be converted to a native value" + hint(value));
  }

  private static String hint(Object value) {
    if (value.getClass().isArray()) {
      return "; `Tensor.of(array)` makes a tensor with a copy of it, and a direct buffer is passed without a copy";
    }
    if (value instanceof Character) {
      return "; convert it to a String";
    }
    if (value instanceof Thread) {
      return "; `Function.from` makes a function that calls its method `run`";
    }
    if (value instanceof java.util.concurrent.Future<?>) {
      return "; wait for its result first";
    }
    if (value instanceof Iterable<?>) {
      return "; copy it to a List";
    }
    return "";
  }
}
