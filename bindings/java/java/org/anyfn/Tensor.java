package org.anyfn;

import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.DoubleBuffer;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.LongBuffer;
import java.nio.ShortBuffer;
import java.util.Arrays;
import org.jspecify.annotations.Nullable;

/**
 * An array of numbers, which native code and Java use without a copy.
 *
 * <p>{@link #of(float[], long...)} copies an array of Java; {@link #wrap} shares the memory of a direct buffer, and {@link #buffer} is a
 * direct buffer over the memory of a tensor. Concurrent use of the elements is up to the program.
 */
public final class Tensor extends ObjectRef {
  /** A direct buffer, kept alive by a native tensor. Its class keeps the class loader of this package alive, too. */
  private record Kept(Buffer buffer) {}

  private long[] shape;

  Tensor(long address) {
    super(address, Value.TENSOR);
  }

  /**
   * Makes a tensor of zeros.
   *
   * @param dtype the type of the elements
   * @param shape the extents
   * @return the tensor
   */
  public static Tensor zeros(DType dtype, long... shape) {
    return zeros(dtype, Device.cpu(), shape);
  }

  /**
   * Makes a tensor of zeros on a device.
   *
   * @param dtype the type of the elements
   * @param device the device
   * @param shape the extents
   * @return the tensor
   */
  public static Tensor zeros(DType dtype, Device device, long... shape) {
    try (Shape extents = Shape.of(shape)) {
      return (Tensor) Globals.call("anyfn.tensor_zeros", extents, dtype, device);
    }
  }

  private static Tensor filled(DType dtype, int length, long[] shape, java.util.function.Consumer<ByteBuffer> fill) {
    long[] extents = shape.length == 0 ? new long[] {length} : shape;
    checkSize(extents, length);
    Tensor tensor = zeros(dtype, extents);
    fill.accept(tensor.buffer());
    return tensor;
  }

  private static void checkSize(long[] shape, long length) {
    long size = 1;
    for (long extent : shape) {
      if (extent < 0) {
        throw new IllegalArgumentException("negative extent in the shape " + Arrays.toString(shape));
      }
      size = extent == 0 || size == 0 ? 0 : multiply(size, extent, shape);
    }
    if (size != length) {
      throw new IllegalArgumentException("the shape " + Arrays.toString(shape) + " has " + size + " elements, got " + length);
    }
  }

  private static long multiply(long one, long other, long[] shape) {
    try {
      return Math.multiplyExact(one, other);
    } catch (ArithmeticException error) {
      throw new IllegalArgumentException("the shape " + Arrays.toString(shape) + " is too large", error);
    }
  }

  /**
   * Makes a tensor with a copy of an array.
   *
   * @param elements the elements, in row-major order
   * @param shape the extents; by default the length of the array. {@code Tensor.of(array).reshape()} has no dimensions
   * @return a tensor of type {@code float32}
   */
  public static Tensor of(float[] elements, long... shape) {
    return filled(DType.FLOAT32, elements.length, shape, buffer -> buffer.asFloatBuffer().put(elements));
  }

  /**
   * Makes a tensor with a copy of an array.
   *
   * @param elements the elements, in row-major order
   * @param shape the extents; by default the length of the array
   * @return a tensor of type {@code float64}
   */
  public static Tensor of(double[] elements, long... shape) {
    return filled(DType.FLOAT64, elements.length, shape, buffer -> buffer.asDoubleBuffer().put(elements));
  }

  /**
   * Makes a tensor with a copy of an array.
   *
   * @param elements the elements, in row-major order
   * @param shape the extents; by default the length of the array
   * @return a tensor of type {@code int64}
   */
  public static Tensor of(long[] elements, long... shape) {
    return filled(DType.INT64, elements.length, shape, buffer -> buffer.asLongBuffer().put(elements));
  }

  /**
   * Makes a tensor with a copy of an array.
   *
   * @param elements the elements, in row-major order
   * @param shape the extents; by default the length of the array
   * @return a tensor of type {@code int32}
   */
  public static Tensor of(int[] elements, long... shape) {
    return filled(DType.INT32, elements.length, shape, buffer -> buffer.asIntBuffer().put(elements));
  }

  /**
   * Makes a tensor with a copy of an array.
   *
   * @param elements the elements, in row-major order
   * @param shape the extents; by default the length of the array
   * @return a tensor of type {@code int16}
   */
  public static Tensor of(short[] elements, long... shape) {
    return filled(DType.INT16, elements.length, shape, buffer -> buffer.asShortBuffer().put(elements));
  }

  /**
   * Makes a tensor with a copy of an array.
   *
   * @param elements the elements, in row-major order
   * @param shape the extents; by default the length of the array
   * @return a tensor of type {@code int8}
   */
  public static Tensor of(byte[] elements, long... shape) {
    return filled(DType.INT8, elements.length, shape, buffer -> buffer.put(elements));
  }

  /**
   * Makes a tensor with a copy of bytes.
   *
   * @param content the bytes of the elements, in row-major order and the byte order of the machine
   * @param dtype the type of the elements
   * @param shape the extents
   * @return the tensor
   */
  public static Tensor ofBytes(byte[] content, DType dtype, long... shape) {
    try (Shape extents = Shape.of(shape)) {
      return (Tensor) Globals.call("anyfn.tensor_from_bytes", content, extents, dtype, Device.cpu());
    }
  }

  /**
   * Makes a tensor over the memory of a direct buffer, from its position to its limit, without a copy. The tensor keeps the buffer alive.
   *
   * <p>The memory of an {@code Arena} that can be closed ({@code ofConfined}, {@code ofShared}) would be freed while the tensor exists, so
   * its buffers are refused. Those of {@code Arena.ofAuto()} and {@code Arena.global()} are not.
   *
   * @param buffer a direct buffer in the byte order of the machine; the elements of a {@link ByteBuffer} are {@code uint8}
   * @param shape the extents; by default the number of remaining elements
   * @return the tensor
   * @throws IllegalArgumentException if the buffer is not direct, not aligned, too small, or of an arena that can be closed
   */
  public static Tensor wrap(Buffer buffer, long... shape) {
    return wrap(buffer, dtypeOf(buffer), shape);
  }

  /**
   * Makes a tensor of a given data type over the memory of a direct buffer.
   *
   * @param buffer a direct buffer; those of a {@link ByteBuffer} may be of any type
   * @param dtype the type of the elements
   * @param shape the extents; by default the number of elements of the type
   * @return the tensor
   */
  public static Tensor wrap(Buffer buffer, DType dtype, long... shape) {
    return new Tensor(over(buffer, dtype, shape));
  }

  /** Makes a native tensor over the memory of a buffer, and returns a reference of it. */
  private static long over(Buffer buffer, DType dtype, long... shape) {
    if (!buffer.isDirect()) {
      throw new IllegalArgumentException("expected a direct buffer; `Tensor.of(array)` copies an array");
    }
    int width = widthOf(buffer);
    if (width > 1 && orderOf(buffer) != ByteOrder.nativeOrder()) {
      throw new IllegalArgumentException("expected a buffer in the byte order of the machine; see `ByteBuffer.order`");
    }
    Arenas.check(buffer);
    long bytes = (long) buffer.remaining() * width;
    long bits = (long) dtype.bits() * dtype.lanes();
    if (bits == 0) {
      throw new IllegalArgumentException("a tensor cannot have elements of type " + dtype);
    }
    long[] extents = shape.length == 0 ? new long[] {bytes * 8 / bits} : shape.clone();
    long size = 1;
    for (long extent : extents) {
      if (extent < 0) {
        throw new IllegalArgumentException("negative extent in the shape " + Arrays.toString(extents));
      }
      size = extent == 0 || size == 0 ? 0 : multiply(size, extent, extents);
    }
    if (multiply(size, bits, extents) > bytes * 8) {
      throw new IllegalArgumentException(
          "a tensor of shape " + Arrays.toString(extents) + " and type " + dtype + " does not fit in the " + bytes + " bytes of the buffer");
    }
    Buffer kept = buffer.duplicate();
    long offset = (long) buffer.position() * width;
    int unit = dtype.bits() / 8;
    if (unit > 1 && Integer.bitCount(unit) == 1 && bytes > 0 && (Native.address(kept) + offset) % unit != 0) {
      throw new IllegalArgumentException("the memory of the buffer is not aligned to the " + unit + " bytes of " + dtype + "; see `ByteBuffer.alignedSlice`");
    }
    return Native.tensorOver(new Kept(kept), kept, offset, dtype.bitsOfAll(), extents, buffer.isReadOnly());
  }

  /** Makes the native tensor of a buffer that is an argument, and returns a reference of it. */
  static long over(Buffer buffer) {
    return over(buffer, dtypeOf(buffer));
  }

  private static int widthOf(Buffer buffer) {
    if (buffer instanceof ByteBuffer) {
      return 1;
    }
    if (buffer instanceof ShortBuffer || buffer instanceof java.nio.CharBuffer) {
      return 2;
    }
    return buffer instanceof LongBuffer || buffer instanceof DoubleBuffer ? 8 : 4;
  }

  private static ByteOrder orderOf(Buffer buffer) {
    if (buffer instanceof FloatBuffer floats) {
      return floats.order();
    }
    if (buffer instanceof DoubleBuffer doubles) {
      return doubles.order();
    }
    if (buffer instanceof IntBuffer ints) {
      return ints.order();
    }
    if (buffer instanceof LongBuffer longs) {
      return longs.order();
    }
    return buffer instanceof ShortBuffer shorts ? shorts.order() : ByteOrder.nativeOrder();
  }

  private static DType dtypeOf(Buffer buffer) {
    if (buffer instanceof FloatBuffer) {
      return DType.FLOAT32;
    }
    if (buffer instanceof DoubleBuffer) {
      return DType.FLOAT64;
    }
    if (buffer instanceof IntBuffer) {
      return DType.INT32;
    }
    if (buffer instanceof LongBuffer) {
      return DType.INT64;
    }
    if (buffer instanceof ShortBuffer) {
      return DType.INT16;
    }
    if (buffer instanceof ByteBuffer) {
      return DType.UINT8;
    }
    throw new IllegalArgumentException("a " + buffer.getClass().getSimpleName() + " has no data type of numbers");
  }

  private long[] extents() {
    if (shape == null) {
      long object = enter();
      try {
        shape = Native.tensorShape(object);
      } finally {
        handle.leave();
      }
    }
    return shape;
  }

  /**
   * Returns the extents.
   *
   * @return a new array
   */
  public long[] shape() {
    return extents().clone();
  }

  /**
   * Returns the number of elements.
   *
   * @return the number of elements
   */
  public long size() {
    long size = 1;
    for (long extent : extents()) {
      size *= extent;
    }
    return size;
  }

  private long word(int part) {
    long object = enter();
    try {
      return Native.tensorWord(object, part);
    } finally {
      handle.leave();
    }
  }

  /**
   * Returns the type of the elements.
   *
   * @return the data type
   */
  public DType dtype() {
    return new DType(word(0));
  }

  /**
   * Returns the device of the memory.
   *
   * @return the device
   */
  public Device device() {
    long word = word(1);
    return new Device((int) word, (int) (word >> 32));
  }

  /**
   * Returns the strides in elements.
   *
   * @return a new array, or null if the tensor is compact
   */
  public long @Nullable [] strides() {
    long object = enter();
    try {
      return Native.tensorStrides(object);
    } finally {
      handle.leave();
    }
  }

  /**
   * Returns true if the elements lie one after the other.
   *
   * @return true if the tensor is contiguous
   */
  public boolean isContiguous() {
    return word(2) != 0;
  }

  /**
   * Returns true if the elements must not be changed.
   *
   * @return true if the tensor is read-only
   */
  public boolean isReadOnly() {
    return word(3) != 0;
  }

  /**
   * Returns the memory of the tensor, without a copy. The buffer, and its views such as {@code asFloatBuffer}, keep the memory alive.
   *
   * @return a direct buffer in the byte order of the machine; a read-only one if the tensor is read-only
   * @throws AnyfnException.TypeError if the tensor is not contiguous, or not on the CPU
   */
  public ByteBuffer buffer() {
    long object = enter();
    ByteBuffer buffer;
    try {
      buffer = Native.tensorBuffer(object);
      if (buffer != null) {
        Native.retain(object);
        Handle.of(buffer, object);
      }
    } finally {
      handle.leave();
    }
    if (buffer == null) {
      buffer = ByteBuffer.allocateDirect(0);
    }
    if (isReadOnly()) {
      buffer = buffer.asReadOnlyBuffer();
    }
    return buffer.order(ByteOrder.nativeOrder());
  }

  /** Returns the memory of a tensor of one of the given types, after checks. */
  private ByteBuffer bufferOf(DType... expected) {
    DType dtype = dtype();
    for (DType one : expected) {
      if (dtype.equals(one)) {
        return buffer();
      }
    }
    throw new AnyfnException.TypeError("expected a tensor of type " + expected[0] + ", got " + dtype);
  }

  /**
   * Copies the elements to an array.
   *
   * @return the elements of a tensor of type {@code float32}, in row-major order
   */
  public float[] toFloatArray() {
    FloatBuffer buffer = bufferOf(DType.FLOAT32).asFloatBuffer();
    float[] array = new float[buffer.remaining()];
    buffer.get(array);
    return array;
  }

  /**
   * Copies the elements to an array.
   *
   * @return the elements of a tensor of type {@code float64}, in row-major order
   */
  public double[] toDoubleArray() {
    DoubleBuffer buffer = bufferOf(DType.FLOAT64).asDoubleBuffer();
    double[] array = new double[buffer.remaining()];
    buffer.get(array);
    return array;
  }

  /**
   * Copies the elements to an array.
   *
   * @return the elements of a tensor of type {@code int64}, in row-major order
   */
  public long[] toLongArray() {
    LongBuffer buffer = bufferOf(DType.INT64).asLongBuffer();
    long[] array = new long[buffer.remaining()];
    buffer.get(array);
    return array;
  }

  /**
   * Copies the elements to an array.
   *
   * @return the elements of a tensor of type {@code int32}, in row-major order
   */
  public int[] toIntArray() {
    IntBuffer buffer = bufferOf(DType.INT32).asIntBuffer();
    int[] array = new int[buffer.remaining()];
    buffer.get(array);
    return array;
  }

  /**
   * Copies the elements to an array.
   *
   * @return the elements of a tensor of type {@code int16}, in row-major order
   */
  public short[] toShortArray() {
    ShortBuffer buffer = bufferOf(DType.INT16, DType.of("uint16")).asShortBuffer();
    short[] array = new short[buffer.remaining()];
    buffer.get(array);
    return array;
  }

  /**
   * Copies the elements to an array. {@link #toBytes} copies the content of a tensor of any type.
   *
   * @return the elements of a tensor of type {@code int8} or {@code uint8}, in row-major order
   */
  public byte[] toByteArray() {
    ByteBuffer buffer = bufferOf(DType.INT8, DType.UINT8);
    byte[] array = new byte[buffer.remaining()];
    buffer.get(array);
    return array;
  }

  /**
   * Copies the content of a tensor of any type and layout.
   *
   * @return the bytes of the elements, in row-major order
   */
  public byte[] toBytes() {
    return (byte[]) Globals.call("anyfn.tensor_to_bytes", this);
  }

  /**
   * Copies an array into a tensor of type {@code float32} and the same size.
   *
   * @param elements the elements, in row-major order
   */
  public void set(float[] elements) {
    checkSize(extents(), elements.length);
    bufferOf(DType.FLOAT32).asFloatBuffer().put(elements);
  }

  /**
   * Copies an array into a tensor of type {@code float64} and the same size.
   *
   * @param elements the elements, in row-major order
   */
  public void set(double[] elements) {
    checkSize(extents(), elements.length);
    bufferOf(DType.FLOAT64).asDoubleBuffer().put(elements);
  }

  /**
   * Copies an array into a tensor of type {@code int64} and the same size.
   *
   * @param elements the elements, in row-major order
   */
  public void set(long[] elements) {
    checkSize(extents(), elements.length);
    bufferOf(DType.INT64).asLongBuffer().put(elements);
  }

  /**
   * Copies an array into a tensor of type {@code int32} and the same size.
   *
   * @param elements the elements, in row-major order
   */
  public void set(int[] elements) {
    checkSize(extents(), elements.length);
    bufferOf(DType.INT32).asIntBuffer().put(elements);
  }

  /**
   * Copies an array into a tensor of type {@code int16} or {@code uint16} and the same size.
   *
   * @param elements the elements, in row-major order
   */
  public void set(short[] elements) {
    checkSize(extents(), elements.length);
    bufferOf(DType.INT16, DType.of("uint16")).asShortBuffer().put(elements);
  }

  /**
   * Copies an array into a tensor of type {@code int8} or {@code uint8} and the same size.
   *
   * @param elements the elements, in row-major order
   */
  public void set(byte[] elements) {
    checkSize(extents(), elements.length);
    bufferOf(DType.INT8, DType.UINT8).put(elements);
  }

  /**
   * Returns the same elements in another shape.
   *
   * @param shape the extents; one of them may be -1. Without extents, a tensor of one element becomes one without dimensions
   * @return a tensor that shares the memory if possible
   */
  public Tensor reshape(long... shape) {
    try (Shape extents = Shape.of(shape)) {
      return (Tensor) Globals.call("anyfn.tensor_reshape", this, extents);
    }
  }

  /**
   * Returns the tensor if it is contiguous, otherwise a compact copy.
   *
   * @return a contiguous tensor
   */
  public Tensor contiguous() {
    return isContiguous() ? this : (Tensor) Globals.call("anyfn.tensor_contiguous", this);
  }

  /**
   * Returns the tensor on a device; a copy unless it is there.
   *
   * @param device the device
   * @return a tensor on the device
   */
  public Tensor to(Device device) {
    return device().equals(device) ? this : (Tensor) Globals.call("anyfn.tensor_to_device", this, device);
  }

  @Override
  public String toString() {
    return isClosed() ? "closed tensor" : "Tensor(shape=" + Arrays.toString(extents()) + ", dtype=" + dtype() + ", device=" + device() + ")";
  }
}
