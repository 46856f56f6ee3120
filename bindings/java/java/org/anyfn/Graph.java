package org.anyfn;

import org.jspecify.annotations.Nullable;

/** Operations on graphs of objects. */
public final class Graph {
  private Graph() {}

  /**
   * Compares two values by their structure.
   *
   * @param a a value
   * @param b another value
   * @return true if they have the same structure
   */
  public static boolean isEqual(@Nullable Object a, @Nullable Object b) {
    return (Boolean) Globals.call("ffi.StructuralEqual", a, b, false, false);
  }

  /**
   * Returns a hash of a value, which is the same for values that {@link #isEqual} finds equal.
   *
   * @param value a value
   * @return the hash
   */
  public static long hash(@Nullable Object value) {
    return ((Number) Globals.call("ffi.StructuralHash", value, false, false)).longValue();
  }

  /**
   * Writes a graph as JSON.
   *
   * @param value a value
   * @return the text
   */
  public static String toJson(@Nullable Object value) {
    return (String) Globals.call("ffi.ToJSONGraphString", value, null);
  }

  /**
   * Reads a graph.
   *
   * @param text what {@link #toJson} has written
   * @return the value
   */
  public static @Nullable Object fromJson(String text) {
    return Globals.call("ffi.FromJSONGraphString", text);
  }
}
