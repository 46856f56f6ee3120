package org.anyfn;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.nio.Buffer;
import java.nio.ByteBuffer;

/**
 * Recognises the buffers whose memory is freed although they exist: those of an {@code Arena} that can be closed. A tensor cannot keep
 * such memory alive.
 */
final class Arenas {
  /** {@code buffer -> MemorySegment.ofBuffer(buffer).scope().getClass()}, or null if this version of Java has no arenas. */
  private static final MethodHandle SCOPE = scope();

  // Classes of the scopes of memory that lasts as long as anything refers to it: of direct buffers, `Arena.global()` and `Arena.ofAuto()`.
  private static final Class<?> DIRECT = SCOPE == null ? null : scopeOf(ByteBuffer.allocateDirect(1));
  private static final Class<?> GLOBAL = SCOPE == null ? null : scopeOfArena("global");
  private static final Class<?> AUTO = SCOPE == null ? null : scopeOfArena("ofAuto");

  private Arenas() {}

  /** Throws an exception if the memory of a buffer can be freed while the buffer exists. */
  static void check(Buffer buffer) {
    if (SCOPE == null) {
      return;
    }
    Class<?> scope = scopeOf(buffer);
    if (scope != DIRECT && scope != GLOBAL && scope != AUTO) {
      throw new IllegalArgumentException(
          "the memory of the buffer belongs to an arena that can be closed, and would then be freed while a tensor uses it. Allocate it by"
              + " `ByteBuffer.allocateDirect` or in `Arena.ofAuto()`, or copy it into `Tensor.zeros(dtype, shape).buffer()`");
    }
  }

  private static Class<?> scopeOf(Buffer buffer) {
    try {
      return (Class<?>) SCOPE.invokeExact(buffer);
    } catch (Throwable failure) {
      throw Errors.<RuntimeException>sneaky(failure);
    }
  }

  private static Class<?> scopeOfArena(String name) {
    try {
      Class<?> arena = Class.forName("java.lang.foreign.Arena");
      Object made = arena.getMethod(name).invoke(null);
      return arena.getMethod("scope").invoke(made).getClass();
    } catch (ReflectiveOperationException error) {
      return null;
    }
  }

  private static MethodHandle scope() {
    try {
      Class<?> segment = Class.forName("java.lang.foreign.MemorySegment");
      Class<?> scope = Class.forName("java.lang.foreign.MemorySegment$Scope");
      MethodHandles.Lookup lookup = MethodHandles.publicLookup();
      MethodHandle ofBuffer = lookup.findStatic(segment, "ofBuffer", MethodType.methodType(segment, Buffer.class));
      MethodHandle scopeOf = lookup.findVirtual(segment, "scope", MethodType.methodType(scope));
      MethodHandle classOf = lookup.findVirtual(Object.class, "getClass", MethodType.methodType(Class.class));
      MethodHandle classOfScope = classOf.asType(MethodType.methodType(Class.class, scope));
      return MethodHandles.filterReturnValue(MethodHandles.filterReturnValue(ofBuffer, scopeOf), classOfScope);
    } catch (ReflectiveOperationException error) {
      return null;
    }
  }
}
