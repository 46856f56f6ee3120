package org.anyfn;

import java.util.AbstractList;
import java.util.RandomAccess;
import org.jspecify.annotations.Nullable;

/** A native sequence as a list. */
abstract sealed class Sequence extends AbstractList<@Nullable Object> implements NativeObject, RandomAccess permits ArrayRef, ListRef {
  final Handle handle;
  final int typeIndex;
  private final Handle getter;
  private final Handle sizer;

  Sequence(long address, int typeIndex, Handle getter, Handle sizer) {
    this.typeIndex = typeIndex;
    this.getter = getter;
    this.sizer = sizer;
    handle = Handle.of(this, address);
  }

  @Override
  public @Nullable Object get(int index) {
    java.util.Objects.checkIndex(index, size());
    return Frame.call(getter, this, index);
  }

  @Override
  public int size() {
    return Math.toIntExact((Long) Frame.call(sizer, this));
  }

  @Override
  public boolean contains(@Nullable Object element) {
    return super.contains(Value.normal(element));
  }

  @Override
  public int indexOf(@Nullable Object element) {
    return super.indexOf(Value.normal(element));
  }

  @Override
  public int lastIndexOf(@Nullable Object element) {
    return super.lastIndexOf(Value.normal(element));
  }

  @Override
  public boolean remove(@Nullable Object element) {
    return super.remove(Value.normal(element));
  }

  @Override
  public String typeKey() {
    return typeIndex == Value.ARRAY ? "ffi.Array" : "ffi.List";
  }

  @Override
  public boolean isSame(@Nullable Object other) {
    return Value.isSame(this, other);
  }

  @Override
  public void close() {
    handle.close();
  }

  @Override
  public boolean isClosed() {
    return handle.isClosed();
  }
}
