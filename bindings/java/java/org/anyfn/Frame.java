package org.anyfn;

import java.lang.ref.Reference;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.List;
import java.util.Map;

/**
 * The arguments and the result of a call, in a buffer that native code reads: a place of 16 bytes for the result, one for each argument,
 * and the strings.
 */
final class Frame {
  /** Size of a place in bytes. */
  static final int PLACE = 16;
  /** Room that a frame has for strings at least, if it is in the buffer of the thread. */
  private static final int ROOM_MIN = 256;
  /** Number of arguments or elements that a frame has at most. */
  private static final int COUNT_MAX = (Integer.MAX_VALUE - ROOM_MIN) / PLACE - 1;
  /** Number of arguments that native code receives without a buffer, if they are numbers. */
  private static final int FEW = 3;
  /** Result of {@link Native#callNumbers} if the function fails. */
  private static final int FAILED = -1;
  /** Payload of an argument that is not there. */
  private static final Long ZERO = 0L;
  /** Nesting of collections that is converted. */
  private static final int DEPTH_MAX = 500;

  /** Buffer of the thread. */
  private final ByteBuffer stack;
  /** Buffer of the frame: that of the thread, or one of its own. */
  private final ByteBuffer buffer;
  private final long address;
  private final int base;
  private final int count;
  private final int top;
  private final int depth;
  /** Offset of the first free byte. */
  private int next;
  private boolean isPlain = true;
  private boolean isCalled;
  /** Handles that the call uses. */
  private Handle[] used;
  private int usedCount;

  private Frame(int count, int depth) {
    stack = Stack.current();
    top = Stack.top(stack);
    this.count = count;
    this.depth = depth;
    int size = sizeOf(count);
    if (size + ROOM_MIN <= stack.capacity() - top) {
      buffer = stack;
      base = top;
      address = Stack.address(stack);
      next = top + size;
      Stack.setTop(stack, next);
    } else {
      buffer = ByteBuffer.allocateDirect(size + ROOM_MIN).order(ByteOrder.nativeOrder());
      base = 0;
      address = Native.address(buffer);
      next = size;
    }
  }

  /** Returns the size in bytes of the places for a number of arguments. */
  private static int sizeOf(int count) {
    if (count > COUNT_MAX) {
      throw new AnyfnException.ValueError("too many arguments or elements: " + count + ", and at most " + COUNT_MAX + " are possible");
    }
    return (count + 1) * PLACE;
  }

  /** Calls a function. */
  static Object call(Handle function, Object... args) {
    int count = args.length;
    if (count > FEW) {
      return callMany(function, args);
    }
    // Each argument is read once: another thread may change the array.
    Object first = count > 0 ? args[0] : ZERO;
    Object second = count > 1 ? args[1] : ZERO;
    Object third = count > 2 ? args[2] : ZERO;
    int kinds = kind(first) << 8 | kind(second) << 16 | kind(third) << 24;
    if (kinds < 0) {
      return callAny(function, args);
    }
    // Up to three numbers pass as numbers. They need no frame, and nothing is released after the call.
    ByteBuffer stack = Stack.current();
    long callee = function.enter();
    try {
      int type = Native.callNumbers(callee, Stack.address(stack), kinds | count, word(first), word(second), word(third));
      if (type == Value.INT) {
        return stack.getLong(Stack.RESULT + 8);
      }
      if (type == FAILED) {
        throw Errors.<RuntimeException>sneaky(Errors.take(stack.getLong(Stack.RESULT + 8)));
      }
      return take(stack, Stack.RESULT);
    } finally {
      // Now that the result is taken: the function may be destroyed here, and what it owned may call functions, which write their results there.
      function.leave();
    }
  }

  /** Returns the type of an argument that is a number, or -1. */
  private static int kind(Object arg) {
    return arg instanceof Long || arg instanceof Integer ? Value.INT : arg instanceof Double ? Value.FLOAT : -1;
  }

  /** Returns the payload of an argument that is a number. */
  private static long word(Object arg) {
    if (arg instanceof Long number) {
      return number;
    }
    return arg instanceof Integer number ? number : Double.doubleToRawLongBits((Double) arg);
  }

  private static Object callMany(Handle function, Object[] args) {
    ByteBuffer stack = Stack.current();
    int base = Stack.top(stack);
    int size = sizeOf(args.length);
    if (size + ROOM_MIN > stack.capacity() - base || !putNumbers(stack, base, args)) {
      return callAny(function, args);
    }
    // Numbers need no frame object: nothing is released after the call.
    long address = Stack.address(stack);
    long callee = function.enter();
    Stack.setTop(stack, base + size);
    int status;
    try {
      status = Native.call(callee, address + base, stack.capacity() - base, args.length, true, address);
    } finally {
      function.leave();
      Stack.setTop(stack, base);
    }
    if (status != 0) {
      throw Errors.<RuntimeException>sneaky(Errors.take(stack.getLong(base + 8)));
    }
    return take(stack, base);
  }

  /** Writes arguments that are numbers. Returns false if one of them is not. */
  private static boolean putNumbers(ByteBuffer stack, int base, Object[] args) {
    int at = base;
    for (Object arg : args) {
      at += PLACE;
      if (arg instanceof Long number) {
        write(stack, at, Value.INT, 0, number);
      } else if (arg instanceof Integer number) {
        write(stack, at, Value.INT, 0, number);
      } else if (arg instanceof Double number) {
        write(stack, at, Value.FLOAT, 0, Double.doubleToRawLongBits(number));
      } else {
        return false;
      }
    }
    return true;
  }

  private static Object callAny(Handle function, Object[] args) {
    Frame frame = new Frame(args.length, 0);
    try {
      frame.fill(args);
      return frame.call(function) == 0 ? frame.result() : frame.fail();
    } finally {
      frame.end();
    }
  }

  /** Calls a function that returns an object, and returns a reference of it. */
  private static long callForObject(Handle function, Object[] args, int depth) {
    Frame frame = new Frame(args.length, depth);
    try {
      frame.fill(args);
      if (frame.call(function) != 0) {
        frame.fail();
      }
      return frame.buffer.getLong(frame.base + 8);
    } finally {
      frame.end();
    }
  }

  /** Reads a value that a function of the native library writes into a frame. Returns null if it writes none. */
  static Object read(java.util.function.BiFunction<Long, Integer, Boolean> function) {
    Frame frame = new Frame(0, 0);
    try {
      int room = frame.buffer.capacity() - frame.base;
      return function.apply(frame.address + frame.base, room) ? frame.result() : null;
    } finally {
      frame.end();
    }
  }

  /** Passes a value to a function of the native library, which takes the references of the frame. */
  static void write(Object value, java.util.function.LongConsumer function) {
    Frame frame = new Frame(1, 0);
    try {
      frame.put(frame.base + PLACE, value);
      frame.isCalled = true;
      function.accept(frame.address + frame.base + PLACE);
    } finally {
      frame.end();
    }
  }

  private void fill(Object[] args) {
    for (int index = 0; index < args.length; index++) {
      put(base + (index + 1) * PLACE, args[index]);
    }
  }

  private int call(Handle function) {
    long callee = function.enter();
    try {
      isCalled = true;
      return Native.call(callee, address + base, buffer.capacity() - base, count, isPlain, Stack.address(stack));
    } finally {
      function.leave();
    }
  }

  private Object result() {
    return take(buffer, base);
  }

  private Object fail() {
    throw Errors.<RuntimeException>sneaky(Errors.take(buffer.getLong(base + 8)));
  }

  /** Ends the use of the frame. */
  private void end() {
    if (!isCalled && !isPlain) {
      dropOwned();
    }
    for (int index = 0; index < usedCount; index++) {
      used[index].leave();
    }
    if (buffer == stack) {
      Stack.setTop(stack, top);
    }
  }

  /** Releases the references of arguments that native code has not received. */
  private void dropOwned() {
    for (int index = 1; index <= filled; index++) {
      int at = base + index * PLACE;
      if (buffer.getInt(at) >= Value.OBJECT && buffer.getInt(at + 4) == Value.OWNED) {
        Native.release(buffer.getLong(at + 8));
      }
    }
  }

  /** Number of places that were filled. */
  private int filled;

  private void word(int at, int type, long word) {
    write(buffer, at, type, 0, word);
    filled++;
  }

  /** Writes a place. The processors for which there are native libraries store the least significant byte first. */
  static void write(ByteBuffer buffer, int at, int type, int second, long word) {
    buffer.putLong(at, type & 0xffff_ffffL | (long) second << 32).putLong(at + 8, word);
  }

  private void owned(int at, int type, long object) {
    write(buffer, at, type, Value.OWNED, object);
    filled++;
    isPlain = false;
  }

  private void use(int at, NativeObject object) {
    Handle handle = Value.handle(object);
    if (used == null) {
      used = new Handle[4];
    } else if (usedCount == used.length) {
      used = java.util.Arrays.copyOf(used, 2 * usedCount);
    }
    long address = handle.enter();
    Reference.reachabilityFence(object);
    used[usedCount++] = handle;
    word(at, Value.typeIndex(object), address);
  }

  /** Writes an argument. */
  private void put(int at, Object value) {
    if (value instanceof Long number) {
      word(at, Value.INT, number);
    } else if (value instanceof Integer number) {
      word(at, Value.INT, number);
    } else if (value instanceof Double number) {
      word(at, Value.FLOAT, Double.doubleToRawLongBits(number));
    } else if (value instanceof NativeObject object) {
      use(at, object);
    } else if (value instanceof String text) {
      content(at, Value.utf8(text), true);
    } else if (value == null) {
      word(at, Value.NONE, 0);
    } else if (value instanceof byte[] bytes) {
      content(at, bytes, false);
    } else if (!Lower.putPlain(this::word, at, value)) {
      if (value instanceof BigInteger number) {
        big(at, number);
      } else if (value instanceof ObjectView view) {
        use(at, view.object());
      } else {
        long object = Lower.toObject(value, depth);
        owned(at, Native.typeIndexOf(object), object);
      }
    }
  }

  /** Writes a string or bytes. */
  private void content(int at, byte[] content, boolean isText) {
    if (content.length <= 7) {
      putSmall(buffer, at, content, isText);
      filled++;
      return;
    }
    isPlain = false;
    if (content.length > buffer.capacity() - next) {
      owned(at, isText ? Value.STRING : Value.BYTES, Native.newContent(content, isText ? 1 : 0));
      return;
    }
    here(at, isText ? Value.TEXT_HERE : Value.BYTES_HERE, content);
  }

  private void big(int at, BigInteger number) {
    if (number.bitLength() < 64) {
      word(at, Value.INT, number.longValue());
      return;
    }
    byte[] bytes = littleEndian(number);
    if (bytes.length > buffer.capacity() - next) {
      owned(at, Value.BIG_INT, Native.newContent(bytes, 2));
      return;
    }
    isPlain = false;
    here(at, Value.BIG_HERE, bytes);
  }

  private void here(int at, int tag, byte[] content) {
    buffer.put(next, content);
    write(buffer, at, tag, content.length, address + next);
    filled++;
    next = Math.min((next + content.length + 7) & -8, buffer.capacity());
    if (buffer == stack) {
      Stack.setTop(stack, next);
    }
  }

  static void putSmall(ByteBuffer buffer, int at, byte[] content, boolean isText) {
    write(buffer, at, isText ? Value.SMALL_STRING : Value.SMALL_BYTES, content.length, 0);
    buffer.put(at + 8, content);
  }

  /** Returns a number in two's complement, the least significant byte first, in whole words. */
  static byte[] littleEndian(BigInteger number) {
    byte[] bytes = number.toByteArray();
    byte[] words = new byte[(bytes.length + 7) & -8];
    java.util.Arrays.fill(words, (byte) (number.signum() < 0 ? -1 : 0));
    for (int index = 0; index < bytes.length; index++) {
      words[index] = bytes[bytes.length - 1 - index];
    }
    return words;
  }

  static void checkDepth(int depth) {
    if (depth >= DEPTH_MAX) {
      throw new IllegalArgumentException(
          "cannot convert a collection that contains itself, or is nested more than " + DEPTH_MAX + " deep");
    }
  }

  /** Calls a function that returns an object with converted arguments that are nested in others. Returns a reference of the object. */
  static long callNested(String name, Object[] args, int depth) {
    try (Function function = Function.get(name)) {
      return callForObject(function.handle, args, depth);
    }
  }

  /** Returns keys and values, one after the other. */
  static Object[] flat(Map<?, ?> entries) {
    int size = entries.size();
    if (size > COUNT_MAX / 2) {
      throw new AnyfnException.ValueError("too many entries: " + size + ", and at most " + COUNT_MAX / 2 + " are possible");
    }
    Object[] flat = new Object[2 * size];
    int index = 0;
    for (Map.Entry<?, ?> entry : entries.entrySet()) {
      if (index == flat.length) {
        throw new java.util.ConcurrentModificationException();
      }
      flat[index++] = entry.getKey();
      flat[index++] = entry.getValue();
    }
    if (index < flat.length) {
      throw new java.util.ConcurrentModificationException();
    }
    return flat;
  }

  /** Converts a collection to a container, and returns a reference of it. */
  static long container(Object value, int depth) {
    checkDepth(depth);
    if (value instanceof Map<?, ?> map) {
      return callForObject(Globals.MAP, flat(map), depth + 1);
    }
    Object[] elements = value instanceof List<?> list ? list.toArray() : (Object[]) value;
    return callForObject(Globals.ARRAY, elements, depth + 1);
  }

  /** Releases the reference of a place that {@link #take} does not read. */
  static void drop(ByteBuffer buffer, int at) {
    if (buffer.getInt(at) >= Value.OBJECT) {
      Native.release(buffer.getLong(at + 8));
    }
  }

  /** Reads a place, and takes the reference of an object that it contains. */
  static Object take(ByteBuffer buffer, int at) {
    int type = buffer.getInt(at);
    long word = buffer.getLong(at + 8);
    switch (type) {
      case Value.INT:
        return word;
      case Value.FLOAT:
        return Double.longBitsToDouble(word);
      case Value.NONE:
        return null;
      case Value.BOOL:
        return word != 0;
      case Value.SMALL_STRING:
        return Value.text(bytes(buffer, at + 8, buffer.getInt(at + 4)));
      case Value.SMALL_BYTES:
        return bytes(buffer, at + 8, buffer.getInt(at + 4));
      case Value.TEXT_HERE:
        return Value.text(here(buffer, at, word));
      case Value.BYTES_HERE:
        return here(buffer, at, word);
      case Value.BIG_HERE:
        return bigEndian(here(buffer, at, word));
      case Value.OPAQUE:
        return new OpaquePointer(word);
      case Value.DTYPE:
        return new DType(word);
      case Value.DEVICE:
        return new Device((int) word, (int) (word >> 32));
      default:
        return Lift.object(word, type, buffer.getInt(at + 4) == Value.IS_JAVA);
    }
  }

  private static byte[] bytes(ByteBuffer buffer, int at, int length) {
    byte[] bytes = new byte[length];
    buffer.get(at, bytes);
    return bytes;
  }

  /** Reads content that is in the buffer of this thread or in the buffer of the place. */
  private static byte[] here(ByteBuffer buffer, int at, long word) {
    int length = buffer.getInt(at + 4);
    ByteBuffer stack = Stack.current();
    long offset = word - Stack.address(stack);
    if (offset >= 0 && offset + length <= stack.capacity()) {
      return bytes(stack, (int) offset, length);
    }
    return bytes(buffer, (int) (word - Native.address(buffer)), length);
  }

  static BigInteger bigEndian(byte[] words) {
    byte[] bytes = new byte[words.length];
    for (int index = 0; index < bytes.length; index++) {
      bytes[index] = words[words.length - 1 - index];
    }
    return new BigInteger(bytes);
  }

  /** Writes the result of a callback to its place. Native code takes the references. */
  static void putResult(ByteBuffer buffer, int at, Object value) {
    if (value == null) {
      write(buffer, at, Value.NONE, 0, 0);
      return;
    }
    if (value instanceof Long number) {
      write(buffer, at, Value.INT, 0, number);
      return;
    }
    if (value instanceof Double number) {
      write(buffer, at, Value.FLOAT, 0, Double.doubleToRawLongBits(number));
      return;
    }
    // The frame is above those of the callback, and only its strings remain in use until native code has read them.
    Frame frame = new Frame(1, 0);
    if (frame.buffer != frame.stack) {
      // Native code reads the strings after the frame's own buffer is out of use.
      frame.next = frame.buffer.capacity();
    }
    try {
      int place = frame.base + PLACE;
      frame.put(place, value);
      int type = frame.buffer.getInt(place);
      long word = frame.buffer.getLong(place + 8);
      int second = frame.buffer.getInt(place + 4);
      if (frame.usedCount > 0) {
        Native.retain(word);
        second = Value.OWNED;
      }
      frame.isCalled = true;
      write(buffer, at, type, second, word);
    } finally {
      frame.end();
    }
  }
}
