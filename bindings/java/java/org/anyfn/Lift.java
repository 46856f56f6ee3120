package org.anyfn;

/** Conversion of native objects to Java objects. */
final class Lift {
  private Lift() {}

  /** Makes the Java object of a native object, whose reference passes to it. */
  static Object object(long address, int type, boolean isJava) {
    switch (type) {
      case Value.FUNCTION:
        if (isJava) {
          Callback callback = Native.target(address);
          if (callback != null && !callback.isAdapter) {
            Native.release(address);
            return callback.function;
          }
        }
        return new Function(address);
      case Value.TENSOR:
        return new Tensor(address);
      case Value.ARRAY:
        return new ArrayRef(address);
      case Value.MAP:
        return new MapRef(address);
      case Value.LIST:
        return new ListRef(address);
      case Value.DICT:
        return new DictRef(address);
      case Value.SHAPE:
        return new Shape(address);
      case Value.MODULE:
        return new Module(address);
      case Value.ERROR:
        return Errors.take(address);
      case Value.STRING:
        return Value.text(content(address));
      case Value.BYTES:
        return content(address);
      case Value.BIG_INT:
        return Frame.bigEndian(content(address));
      default:
        if (type < Value.OBJECT) {
          throw new IllegalStateException("a native value of type " + type + " cannot be converted to a Java value");
        }
        return new ObjectRef(address, type);
    }
  }

  private static byte[] content(long address) {
    try {
      return Native.content(address);
    } finally {
      Native.release(address);
    }
  }
}
