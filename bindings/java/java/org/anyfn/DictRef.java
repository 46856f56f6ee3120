package org.anyfn;

import java.util.Map;
import org.jspecify.annotations.Nullable;

/** A mutable native mapping, {@code ffi.Dict}, as a map. All holders of the native object see changes. */
public final class DictRef extends Mapping {
  private static final Functions FUNCTIONS = Functions.of("ffi.Dict");
  private static final Handle SET = Globals.find("ffi.DictSetItem");
  private static final Handle ERASE = Globals.find("ffi.DictErase");
  private static final Handle CLEAR = Globals.find("ffi.DictClear");

  DictRef(long address) {
    super(address, Value.DICT, FUNCTIONS);
  }

  /**
   * Makes a native mapping.
   *
   * @param entries the entries
   * @return the mapping
   */
  public static DictRef copyOf(Map<? extends @Nullable Object, ? extends @Nullable Object> entries) {
    return (DictRef) Frame.call(Globals.DICT, Frame.flat(entries));
  }

  @Override
  public @Nullable Object put(@Nullable Object key, @Nullable Object value) {
    Object before = get(key);
    Frame.call(SET, this, key, value);
    return before;
  }

  @Override
  public @Nullable Object remove(@Nullable Object key) {
    Object before = get(key);
    removeKey(key);
    return before;
  }

  @Override
  Map.Entry<Object, Object> entry(Object key, Object value) {
    return new Entry(key, value);
  }

  /** An entry of an iteration, through which the value can be changed. */
  private final class Entry extends SimpleEntry<Object, Object> {
    private static final long serialVersionUID = 1;

    Entry(Object key, Object value) {
      super(key, value);
    }

    @Override
    public Object setValue(Object value) {
      put(getKey(), value);
      return super.setValue(Value.normal(value));
    }
  }

  @Override
  void removeKey(Object key) {
    if (containsKey(key)) {
      Frame.call(ERASE, this, key);
    }
  }

  @Override
  public void clear() {
    Frame.call(CLEAR, this);
  }
}
