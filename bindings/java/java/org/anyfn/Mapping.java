package org.anyfn;

import java.util.AbstractMap;
import java.util.AbstractSet;
import java.util.Iterator;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/** A native mapping as a map. */
abstract sealed class Mapping extends AbstractMap<@Nullable Object, @Nullable Object> implements NativeObject permits MapRef, DictRef {
  /** The functions of a kind of mappings. */
  record Functions(Handle get, Handle count, Handle size, Handle iterate) {
    static Functions of(String key) {
      return new Functions(
          Globals.find(key + "GetItem"), Globals.find(key + "Count"), Globals.find(key + "Size"), Globals.find(key + "ForwardIterFunctor"));
    }
  }

  final Handle handle;
  final int typeIndex;
  private final Functions functions;

  Mapping(long address, int typeIndex, Functions functions) {
    this.typeIndex = typeIndex;
    this.functions = functions;
    handle = Handle.of(this, address);
  }

  @Override
  public int size() {
    return Math.toIntExact((Long) Frame.call(functions.size, this));
  }

  @Override
  public boolean containsKey(@Nullable Object key) {
    try {
      return ((Number) Frame.call(functions.count, this, key)).longValue() > 0;
    } catch (IllegalArgumentException error) {
      // A key that cannot be converted is not a key here.
      return false;
    }
  }

  @Override
  public boolean containsValue(@Nullable Object value) {
    return super.containsValue(Value.normal(value));
  }

  @Override
  public @Nullable Object get(@Nullable Object key) {
    return containsKey(key) ? Frame.call(functions.get, this, key) : null;
  }

  @Override
  public Set<Map.Entry<Object, Object>> entrySet() {
    return new AbstractSet<>() {
      @Override
      public int size() {
        return Mapping.this.size();
      }

      @Override
      public Iterator<Map.Entry<Object, Object>> iterator() {
        return new Entries();
      }
    };
  }

  /** Makes an entry of an iteration. */
  Map.Entry<Object, Object> entry(Object key, Object value) {
    return new SimpleImmutableEntry<>(key, value);
  }

  /** Removes an entry during an iteration. */
  void removeKey(Object key) {
    throw new UnsupportedOperationException("this mapping is immutable");
  }

  /** Iterates over the entries. The native iterator sees the entries that exist when it begins. */
  private final class Entries implements Iterator<Map.Entry<Object, Object>> {
    // Commands of the native iterator: 0 key, 1 value, 2 advance.
    private final Function steps = size() == 0 ? null : (Function) Frame.call(functions.iterate, Mapping.this);
    private boolean hasNext = steps != null;
    private Object last;
    private boolean isRemovable;

    @Override
    public boolean hasNext() {
      return hasNext;
    }

    @Override
    public Map.Entry<Object, Object> next() {
      if (!hasNext) {
        throw new NoSuchElementException();
      }
      last = steps.invoke(0);
      Map.Entry<Object, Object> entry = entry(last, steps.invoke(1));
      hasNext = (Boolean) steps.invoke(2);
      isRemovable = true;
      if (!hasNext) {
        steps.close();
      }
      return entry;
    }

    @Override
    public void remove() {
      if (!isRemovable) {
        throw new IllegalStateException();
      }
      isRemovable = false;
      removeKey(last);
    }
  }

  @Override
  public String typeKey() {
    return typeIndex == Value.MAP ? "ffi.Map" : "ffi.Dict";
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
