package org.anyfn;

import java.util.Map;

/**
 * A device: its type, as DLPack numbers it, and its index.
 *
 * @param type the number of the type
 * @param index the index among the devices of the type
 */
public record Device(int type, int index) {
  private static final Map<String, Integer> TYPES =
      Map.ofEntries(
          Map.entry("cpu", 1),
          Map.entry("cuda", 2),
          Map.entry("cuda_host", 3),
          Map.entry("opencl", 4),
          Map.entry("vulkan", 7),
          Map.entry("metal", 8),
          Map.entry("vpi", 9),
          Map.entry("rocm", 10),
          Map.entry("rocm_host", 11),
          Map.entry("ext_dev", 12),
          Map.entry("cuda_managed", 13),
          Map.entry("oneapi", 14),
          Map.entry("webgpu", 15),
          Map.entry("hexagon", 16),
          Map.entry("maia", 17),
          Map.entry("trn", 18));

  /**
   * Returns the processor.
   *
   * @return the device
   */
  public static Device cpu() {
    return new Device(1, 0);
  }

  /**
   * Returns a device.
   *
   * @param type the name of the type, such as {@code opencl}
   * @param index the index
   * @return the device
   * @throws IllegalArgumentException if there is no such type
   */
  public static Device of(String type, int index) {
    Integer number = TYPES.get(type);
    if (number == null) {
      throw new IllegalArgumentException("unknown device type '" + type + "'");
    }
    return new Device(number, index);
  }

  /**
   * Returns the name of the type.
   *
   * @return the name
   */
  public String name() {
    for (Map.Entry<String, Integer> entry : TYPES.entrySet()) {
      if (entry.getValue() == type) {
        return entry.getKey();
      }
    }
    return "device" + type;
  }

  @Override
  public String toString() {
    return name() + ":" + index;
  }
}
