package org.anyfn;

import org.jspecify.annotations.Nullable;

/**
 * A native object. It is released when the garbage collector frees the Java object, or by {@link #close}.
 *
 * <p>All native objects are instances of {@link ObjectRef} or one of the containers, which are {@link java.util.List} or
 * {@link java.util.Map}.
 */
public sealed interface NativeObject extends AutoCloseable permits ObjectRef, Sequence, Mapping {
  /**
   * Returns the key of the object's type, such as {@code ffi.Tensor}.
   *
   * @return the type key
   */
  String typeKey();

  /**
   * Returns true if both refer to the same native object.
   *
   * @param other another object
   * @return true if they are the same
   */
  boolean isSame(@Nullable Object other);

  /** Releases the object, after calls in progress have ended. Using it afterwards throws {@link IllegalStateException}. */
  @Override
  void close();

  /**
   * Returns true if the object was closed.
   *
   * @return true if {@link #close} was called
   */
  boolean isClosed();
}
