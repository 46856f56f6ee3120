package org.anyfn;

import java.lang.ref.Reference;
import java.nio.charset.StandardCharsets;

/** Numbers that Java and the native library share, and the handles of objects. */
final class Value {
  static final int NONE = 0;
  static final int INT = 1;
  static final int BOOL = 2;
  static final int FLOAT = 3;
  static final int OPAQUE = 4;
  static final int DTYPE = 5;
  static final int DEVICE = 6;
  static final int SMALL_STRING = 11;
  static final int SMALL_BYTES = 12;
  static final int OBJECT = 64;
  static final int STRING = 65;
  static final int BYTES = 66;
  static final int ERROR = 67;
  static final int FUNCTION = 68;
  static final int SHAPE = 69;
  static final int TENSOR = 70;
  static final int ARRAY = 71;
  static final int MAP = 72;
  static final int MODULE = 73;
  static final int LIST = 75;
  static final int DICT = 76;
  static final int BIG_INT = 78;

  // Tags of content that is in the buffer; `src/place.rs` defines the same.
  static final int TEXT_HERE = -101;
  static final int BYTES_HERE = -102;
  static final int BIG_HERE = -103;
  /** Second word of an object whose reference passes on. */
  static final int OWNED = 1;
  /** Second word of a function that Java implements. */
  static final int IS_JAVA = 2;

  private Value() {}

  /** Returns the handle of a native object. */
  static Handle handle(NativeObject object) {
    if (object instanceof ObjectRef ref) {
      return ref.handle;
    }
    return object instanceof Sequence sequence ? sequence.handle : ((Mapping) object).handle;
  }

  /** Returns the type index of a native object. */
  static int typeIndex(NativeObject object) {
    if (object instanceof ObjectRef ref) {
      return ref.typeIndex;
    }
    return object instanceof Sequence sequence ? sequence.typeIndex : ((Mapping) object).typeIndex;
  }

  static boolean isSame(NativeObject object, Object other) {
    boolean isSame = other instanceof NativeObject that && isSame(handle(object), handle(that));
    Reference.reachabilityFence(object);
    Reference.reachabilityFence(other);
    return isSame;
  }

  private static boolean isSame(Handle one, Handle other) {
    // Another object may be at the address of one that was closed.
    return one == other || one.identity() == other.identity() && !one.isClosed() && !other.isClosed();
  }

  /** Returns a number as native code returns it, so that it is equal to such a number. */
  static Object normal(Object value) {
    if (value instanceof Integer || value instanceof Short || value instanceof Byte) {
      return ((Number) value).longValue();
    }
    return value instanceof Float number ? number.doubleValue() : value;
  }

  static String text(byte[] utf8) {
    return new String(utf8, StandardCharsets.UTF_8);
  }

  /** Returns a string in UTF-8. */
  static byte[] utf8(String text) {
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    for (byte one : bytes) {
      // A question mark may replace a lone surrogate.
      if (one == '?') {
        checkSurrogates(text);
        break;
      }
    }
    return bytes;
  }

  private static void checkSurrogates(String text) {
    for (int index = 0; index < text.length(); index++) {
      char unit = text.charAt(index);
      if (Character.isHighSurrogate(unit) && index + 1 < text.length() && Character.isLowSurrogate(text.charAt(index + 1))) {
        index++;
      } else if (Character.isSurrogate(unit)) {
        throw new IllegalArgumentException("the string has a lone surrogate at index " + index + ", which UTF-8 cannot represent");
      }
    }
  }
}
