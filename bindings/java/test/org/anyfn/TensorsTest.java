package org.anyfn;

import static org.anyfn.Runner.check;
import static org.anyfn.Runner.equal;
import static org.anyfn.Runner.fails;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.util.Arrays;

/** Tensors and their memory. */
final class TensorsTest {
  private TensorsTest() {}

  private static FloatBuffer direct(int size) {
    return ByteBuffer.allocateDirect(size * 4).order(ByteOrder.nativeOrder()).asFloatBuffer();
  }

  @Test
  static void arrays() {
    Tensor tensor = Tensor.of(new float[] {1, 2, 3, 4, 5, 6}, 2, 3);
    equal(Arrays.toString(tensor.shape()), "[2, 3]");
    equal(tensor.dtype(), DType.FLOAT32);
    equal(tensor.device(), Device.cpu());
    equal(tensor.size(), 6L);
    equal(Arrays.toString(tensor.toFloatArray()), "[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]");
    tensor.set(new float[] {6, 5, 4, 3, 2, 1});
    equal(tensor.reshape(6).toFloatArray()[0], 6f);
    equal(Arrays.toString(Tensor.of(new long[] {1L << 60}).toLongArray()), "[" + (1L << 60) + "]");
    equal(Tensor.of(new double[] {0.5}).toDoubleArray()[0], 0.5);
    equal(Tensor.of(new int[] {7}).toIntArray()[0], 7);
    equal(Tensor.of(new short[] {7}).toShortArray()[0], (short) 7);
    Tensor small = Tensor.of(new byte[] {7});
    equal(small.dtype(), DType.INT8);
    small.set(new byte[] {8});
    equal(small.toByteArray()[0], (byte) 8);
    Tensor shorts = Tensor.of(new short[2]);
    shorts.set(new short[] {1, -2});
    equal(shorts.toShortArray()[1], (short) -2);
    Tensor scalar = Tensor.of(new float[] {5}).reshape();
    equal(scalar.shape().length, 0);
    equal(scalar.toFloatArray()[0], 5f);
    fails(IllegalArgumentException.class, () -> Tensor.of(new float[3], 2, 2));
    fails(AnyfnException.TypeError.class, tensor::toDoubleArray);
    equal(Tensor.of(new float[0]).toFloatArray().length, 0);
  }

  @Test
  static void buffersAreNotCopied() {
    Tensor tensor = Tensor.of(new float[] {1, 2, 3});
    FloatBuffer view = tensor.buffer().asFloatBuffer();
    view.put(1, 20);
    equal(tensor.toFloatArray()[1], 20f);
    FloatBuffer memory = direct(4);
    Tensor wrapped = Tensor.wrap(memory, 2, 2);
    memory.put(3, 9);
    equal(wrapped.toFloatArray()[3], 9f);
    wrapped.buffer().asFloatBuffer().put(0, 5);
    equal(memory.get(0), 5f);
    // From position to limit.
    memory.position(1).limit(3);
    equal(Tensor.wrap(memory).size(), 2L);
    memory.put(1, 8);
    equal(Tensor.wrap(memory).toFloatArray()[0], 8f);
  }

  @Test
  static void buffersAsArguments() {
    FloatBuffer memory = direct(3);
    Function fill = Function.of(args -> {
      ((Tensor) args[0]).buffer().asFloatBuffer().put(2, 42);
      return null;
    });
    fill.invoke(memory);
    equal(memory.get(2), 42f);
    Object kept = Samples.get("echo").invoke(memory);
    memory.put(0, 7);
    equal(((Tensor) kept).toFloatArray()[0], 7f);
    String heap = fails(IllegalArgumentException.class, () -> fill.invoke(FloatBuffer.allocate(3))).getMessage();
    check(heap.contains("direct buffer"), heap);
    FloatBuffer swapped = ByteBuffer.allocateDirect(12).order(ByteOrder.BIG_ENDIAN).asFloatBuffer();
    if (ByteOrder.nativeOrder() != ByteOrder.BIG_ENDIAN) {
      fails(IllegalArgumentException.class, () -> fill.invoke(swapped));
    }
    fails(IllegalArgumentException.class, () -> Tensor.wrap(memory, 4));
    fails(IllegalArgumentException.class, () -> Tensor.wrap(memory, Long.MAX_VALUE, 3));
    fails(IllegalArgumentException.class, () -> Tensor.of(new float[3], Long.MAX_VALUE, 3));
    fails(IllegalArgumentException.class, () -> Tensor.wrap(memory, DType.of("void")));
    ByteBuffer shifted = ByteBuffer.allocateDirect(16).position(1).slice();
    String aligned = fails(IllegalArgumentException.class, () -> Tensor.wrap(shifted, DType.FLOAT32, 2)).getMessage();
    check(aligned.contains("not aligned"), aligned);
    equal(Tensor.wrap(shifted).size(), 15L);
    Tensor readOnly = Tensor.wrap(memory.asReadOnlyBuffer());
    check(readOnly.isReadOnly(), "it is read-only");
    fails(java.nio.ReadOnlyBufferException.class, () -> readOnly.set(new float[3]));
  }

  @Test
  static void memoryOutlivesTheTensor() {
    Tensor tensor = Tensor.of(new float[100_000]);
    FloatBuffer view = tensor.buffer().asFloatBuffer();
    tensor.close();
    for (int i = 0; i < 5; i++) {
      System.gc();
      Tensor.of(new float[100_000]).close();
    }
    view.put(99_999, 3);
    equal(view.get(99_999), 3f);
  }

  @Test
  static void typesWithoutArrays() {
    Tensor half = Tensor.ofBytes(new byte[] {0, 0x3c}, DType.of("float16"));
    equal(half.dtype().toString(), "float16");
    equal(half.toBytes().length, 2);
    equal(DType.of("int8x16").lanes(), 16);
    fails(AnyfnException.class, () -> DType.of("nonsense"));
    equal(Device.of("opencl", 1).toString(), "opencl:1");
  }

  @Test
  static void borrowedTensorsAreCopied() {
    Tensor tensor = (Tensor) Samples.get("pass_on_read_only").invoke(Tensor.of(new float[] {1, 2}), (PackedFunc) args -> args[0]);
    equal(Arrays.toString(tensor.toFloatArray()), "[1.0, 2.0]");
  }

  /** {@code Arena} exists since JDK 22. */
  @Test
  static void buffersOfArenas() throws Exception {
    Class<?> type;
    try {
      type = Class.forName("java.lang.foreign.Arena");
    } catch (ClassNotFoundException error) {
      throw new Runner.Skip("JDK " + Runtime.version().feature() + " has no arenas");
    }
    for (String name : new String[] {"ofConfined", "ofShared"}) {
      AutoCloseable arena = (AutoCloseable) type.getMethod(name).invoke(null);
      ByteBuffer buffer = allocate(type, arena);
      FloatBuffer floats = buffer.asFloatBuffer();
      for (int closed = 0; closed < 2; closed++) {
        for (java.nio.Buffer one : new java.nio.Buffer[] {buffer, floats, floats.duplicate(), buffer.slice(8, 8), buffer.asReadOnlyBuffer()}) {
          String message = fails(IllegalArgumentException.class, () -> Tensor.wrap(one)).getMessage();
          check(message.contains("arena that can be closed") && message.contains("Arena.ofAuto()"), message);
          fails(IllegalArgumentException.class, () -> Samples.get("echo").invoke(one));
          fails(IllegalArgumentException.class, () -> Samples.get("echo").invoke(java.util.List.of(one)));
        }
        if (closed == 0) {
          arena.close();
        }
      }
    }
    for (String name : new String[] {"ofAuto", "global"}) {
      FloatBuffer floats = allocate(type, type.getMethod(name).invoke(null)).asFloatBuffer().put(0, 7);
      Tensor tensor = Tensor.wrap(floats);
      floats = null;
      System.gc();
      equal(tensor.toFloatArray()[0], 7f);
    }
    java.nio.file.Path file = java.nio.file.Files.createTempFile("anyfn-java-", ".bin");
    java.nio.file.Files.write(file, new byte[] {5, 6});
    try (java.nio.channels.FileChannel channel = java.nio.channels.FileChannel.open(file)) {
      equal(Tensor.wrap(channel.map(java.nio.channels.FileChannel.MapMode.READ_ONLY, 0, 2)).toByteArray()[1], (byte) 6);
    }
    java.nio.file.Files.delete(file);
  }

  private static ByteBuffer allocate(Class<?> type, Object arena) throws ReflectiveOperationException {
    Object segment = type.getMethod("allocate", long.class, long.class).invoke(arena, 64L, 8L);
    ByteBuffer buffer = (ByteBuffer) Class.forName("java.lang.foreign.MemorySegment").getMethod("asByteBuffer").invoke(segment);
    return buffer.order(ByteOrder.nativeOrder());
  }
}
