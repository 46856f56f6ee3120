package org.anyfn;

/**
 * An address that native code passes on.
 *
 * @param address the address
 */
public record OpaquePointer(long address) {
  @Override
  public String toString() {
    return "0x" + Long.toHexString(address);
  }
}
