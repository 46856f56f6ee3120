package org.anyfn;

import java.util.Arrays;
import org.jspecify.annotations.Nullable;

/** The extents of a tensor, {@code ffi.Shape}. */
public final class Shape extends ObjectRef {
  Shape(long address) {
    super(address, Value.SHAPE);
  }

  /**
   * Makes a shape.
   *
   * @param extents the extents
   * @return the shape
   */
  public static Shape of(long... extents) {
    return (Shape) Frame.call(Globals.SHAPE, Arrays.stream(extents).boxed().toArray());
  }

  /**
   * Returns the extents.
   *
   * @return a new array
   */
  public long[] toArray() {
    long object = enter();
    try {
      return Native.shape(object);
    } finally {
      handle.leave();
    }
  }

  /** Returns true if the other object is a shape with the same extents. */
  @Override
  public boolean equals(@Nullable Object other) {
    return other instanceof Shape shape && Arrays.equals(toArray(), shape.toArray());
  }

  @Override
  public int hashCode() {
    return Arrays.hashCode(toArray());
  }
}
