package org.anyfn;

import java.util.Map;
import org.jspecify.annotations.Nullable;

/** An immutable native mapping, {@code ffi.Map}, as a map. Maps are passed to native code as such mappings. */
public final class MapRef extends Mapping {
  private static final Functions FUNCTIONS = Functions.of("ffi.Map");

  MapRef(long address) {
    super(address, Value.MAP, FUNCTIONS);
  }

  /**
   * Makes a native mapping.
   *
   * @param entries the entries
   * @return the mapping
   */
  public static MapRef copyOf(Map<? extends @Nullable Object, ? extends @Nullable Object> entries) {
    return (MapRef) Frame.call(Globals.MAP, Frame.flat(entries));
  }
}
