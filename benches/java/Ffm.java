import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_DOUBLE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.nio.FloatBuffer;
import java.util.function.LongUnaryOperator;

/**
 * The functions of {@code plain.c} through the foreign-function API of Java 22 and later, and functions of anyfn called through it: what
 * typed views would cost if they used it instead of JNI.
 */
final class Ffm implements Calls.Other {
  private static final Linker LINKER = Linker.nativeLinker();
  private static final SymbolLookup PLAIN = SymbolLookup.libraryLookup(System.getProperty("plain"), Arena.global());
  private static final MethodHandle LONGS0 = plain("plain_longs0", FunctionDescriptor.of(JAVA_LONG));
  private static final MethodHandle LONGS3 = plain("plain_longs3", FunctionDescriptor.of(JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG));
  private static final MethodHandle ECHO = plain("plain_echo", FunctionDescriptor.ofVoid(ADDRESS, ADDRESS));
  private static final MethodHandle FIRST = plain("plain_first", FunctionDescriptor.of(JAVA_DOUBLE, ADDRESS));
  private static final MethodHandle CALLBACK = plain("plain_callback", FunctionDescriptor.of(JAVA_LONG, ADDRESS, JAVA_LONG));
  /** {@code safe_call} of a function object, whose address is the first argument. */
  private static final MethodHandle SAFE_CALL =
      LINKER.downcallHandle(FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS, JAVA_INT, ADDRESS));
  /** Places of the result and of three arguments, for each thread. */
  private static final ThreadLocal<MemorySegment> PLACES = ThreadLocal.withInitial(() -> Arena.ofAuto().allocate(64, 16));
  private static final int ARGS = 16;
  /** Size of the header of a native object, behind which a function object has its {@code safe_call}. */
  private static final int HEADER = 24;
  private static final int INT = 1;

  private static final SymbolLookup RUNTIME =
      SymbolLookup.libraryLookup(java.nio.file.Path.of(System.getProperty("org.anyfn.library.path"), "libanyfn.so"), Arena.global());
  private static final MemorySegment NOP = global("testing.nop");
  private static final MemorySegment NOP_CALL = safeCall(NOP);
  private static final MemorySegment ADD = global("testing.add3_i64");
  private static final MemorySegment ADD_CALL = safeCall(ADD);

  private static MethodHandle plain(String name, FunctionDescriptor type) {
    return LINKER.downcallHandle(PLAIN.find(name).orElseThrow(), type);
  }

  private static MemorySegment global(String name) {
    try (Arena arena = Arena.ofConfined()) {
      MethodHandle get =
          LINKER.downcallHandle(
              RUNTIME.find("TVMFFIFunctionGetGlobal").orElseThrow(), FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS));
      MemorySegment text = arena.allocateFrom(name);
      MemorySegment bytes = arena.allocate(MemoryLayout.structLayout(ADDRESS, JAVA_LONG));
      bytes.set(ADDRESS, 0, text);
      bytes.set(JAVA_LONG, 8, name.length());
      MemorySegment out = arena.allocate(ADDRESS);
      if ((int) get.invokeExact(bytes, out) != 0) {
        throw new IllegalStateException(name);
      }
      return out.get(ADDRESS, 0);
    } catch (Throwable error) {
      throw new IllegalStateException(error);
    }
  }

  private static MemorySegment safeCall(MemorySegment function) {
    return function.reinterpret(HEADER + 8).get(ADDRESS, HEADER);
  }

  @Override
  public long longs0(int calls) throws Throwable {
    long total = 0;
    for (int i = 0; i < calls; i++) {
      total += (long) LONGS0.invokeExact();
    }
    return total;
  }

  @Override
  public long longs3(int calls) throws Throwable {
    long total = 0;
    for (int i = 0; i < calls; i++) {
      total += (long) LONGS3.invokeExact((long) i, 2L, 3L);
    }
    return total;
  }

  @Override
  public long echo(int calls, String text) throws Throwable {
    long total = 0;
    for (int i = 0; i < calls; i++) {
      try (Arena arena = Arena.ofConfined()) {
        MemorySegment given = arena.allocateFrom(text);
        MemorySegment result = arena.allocate(given.byteSize());
        ECHO.invokeExact(given, result);
        total += result.getString(0).length();
      }
    }
    return total;
  }

  @Override
  public long first(int calls, FloatBuffer buffer) throws Throwable {
    long total = 0;
    for (int i = 0; i < calls; i++) {
      total += (long) (double) FIRST.invokeExact(MemorySegment.ofBuffer(buffer));
    }
    return total;
  }

  @Override
  public long callback(int calls, LongUnaryOperator f) throws Throwable {
    long total = 0;
    try (Arena arena = Arena.ofConfined()) {
      MethodHandle apply =
          MethodHandles.lookup().findVirtual(LongUnaryOperator.class, "applyAsLong", MethodType.methodType(long.class, long.class));
      MemorySegment stub = LINKER.upcallStub(apply.bindTo(f), FunctionDescriptor.of(JAVA_LONG, JAVA_LONG), arena);
      for (int i = 0; i < calls; i++) {
        total += (long) CALLBACK.invokeExact(stub, (long) i);
      }
    }
    return total;
  }

  @Override
  public long anyfn0(int calls) throws Throwable {
    long total = 0;
    for (int i = 0; i < calls; i++) {
      MemorySegment places = PLACES.get();
      places.set(JAVA_LONG, 0, 0);
      if ((int) SAFE_CALL.invokeExact(NOP_CALL, NOP, places, 0, places) != 0) {
        throw new IllegalStateException();
      }
      total++;
    }
    return total;
  }

  @Override
  public long anyfn3(int calls) throws Throwable {
    long total = 0;
    for (int i = 0; i < calls; i++) {
      MemorySegment places = PLACES.get();
      places.set(JAVA_LONG, 0, 0);
      places.set(JAVA_LONG, 16, INT);
      places.set(JAVA_LONG, 24, i);
      places.set(JAVA_LONG, 32, INT);
      places.set(JAVA_LONG, 40, 2);
      places.set(JAVA_LONG, 48, INT);
      places.set(JAVA_LONG, 56, 3);
      if ((int) SAFE_CALL.invokeExact(ADD_CALL, ADD, places.asSlice(ARGS), 3, places) != 0 || places.get(JAVA_INT, 0) != INT) {
        throw new IllegalStateException();
      }
      total += places.get(JAVA_LONG, 8);
    }
    return total;
  }
}
