package org.anyfn;

import java.util.Collection;
import org.jspecify.annotations.Nullable;

/** A mutable native sequence, {@code ffi.List}, as a list. All holders of the native object see changes. */
public final class ListRef extends Sequence {
  private static final Handle GET = Globals.find("ffi.ListGetItem");
  private static final Handle SIZE = Globals.find("ffi.ListSize");
  private static final Handle SET = Globals.find("ffi.ListSetItem");
  private static final Handle INSERT = Globals.find("ffi.ListInsert");
  private static final Handle ERASE = Globals.find("ffi.ListErase");
  private static final Handle CLEAR = Globals.find("ffi.ListClear");

  ListRef(long address) {
    super(address, Value.LIST, GET, SIZE);
  }

  /**
   * Makes a native sequence.
   *
   * @param elements the elements
   * @return the sequence
   */
  public static ListRef of(@Nullable Object... elements) {
    return (ListRef) Frame.call(Globals.LIST, elements);
  }

  /**
   * Makes a native sequence with the elements of a collection.
   *
   * @param elements the elements
   * @return the sequence
   */
  public static ListRef copyOf(Collection<? extends @Nullable Object> elements) {
    return of(elements.toArray());
  }

  @Override
  public @Nullable Object set(int index, @Nullable Object value) {
    Object before = get(index);
    Frame.call(SET, this, index, value);
    return before;
  }

  @Override
  public void add(int index, @Nullable Object value) {
    java.util.Objects.checkIndex(index, size() + 1);
    modCount++;
    Frame.call(INSERT, this, index, value);
  }

  @Override
  public @Nullable Object remove(int index) {
    Object before = get(index);
    modCount++;
    Frame.call(ERASE, this, index);
    return before;
  }

  @Override
  public void clear() {
    modCount++;
    Frame.call(CLEAR, this);
  }
}
