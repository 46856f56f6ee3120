package org.anyfn;

import java.util.Collection;
import org.jspecify.annotations.Nullable;

/** An immutable native sequence, {@code ffi.Array}, as a list. Lists are passed to native code as such sequences. */
public final class ArrayRef extends Sequence {
  private static final Handle GET = Globals.find("ffi.ArrayGetItem");
  private static final Handle SIZE = Globals.find("ffi.ArraySize");
  private int size = -1;

  ArrayRef(long address) {
    super(address, Value.ARRAY, GET, SIZE);
  }

  /**
   * Makes a native sequence.
   *
   * @param elements the elements
   * @return the sequence
   */
  public static ArrayRef of(@Nullable Object... elements) {
    return (ArrayRef) Frame.call(Globals.ARRAY, elements);
  }

  /**
   * Makes a native sequence with the elements of a collection.
   *
   * @param elements the elements
   * @return the sequence
   */
  public static ArrayRef copyOf(Collection<? extends @Nullable Object> elements) {
    return of(elements.toArray());
  }

  @Override
  public int size() {
    // The sequence never changes.
    if (size < 0 || isClosed()) {
      size = super.size();
    }
    return size;
  }
}
