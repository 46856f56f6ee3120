package org.anyfn;

import org.jspecify.annotations.Nullable;

/**
 * The type of an element of a tensor, such as {@code float32}.
 */
public final class DType {
  /** {@code float32}. */
  public static final DType FLOAT32 = new DType(2 | 32 << 8 | 1 << 16);
  /** {@code float64}. */
  public static final DType FLOAT64 = new DType(2 | 64 << 8 | 1 << 16);
  /** {@code int8}. */
  public static final DType INT8 = new DType(8 << 8 | 1 << 16);
  /** {@code int16}. */
  public static final DType INT16 = new DType(16 << 8 | 1 << 16);
  /** {@code int32}. */
  public static final DType INT32 = new DType(32 << 8 | 1 << 16);
  /** {@code int64}. */
  public static final DType INT64 = new DType(64 << 8 | 1 << 16);
  /** {@code uint8}. */
  public static final DType UINT8 = new DType(1 | 8 << 8 | 1 << 16);
  /** {@code bool}. */
  public static final DType BOOL = new DType(6 | 8 << 8 | 1 << 16);

  private final long word;

  DType(long word) {
    this.word = word;
  }

  /**
   * Returns the data type with a name.
   *
   * @param name a name such as {@code float32}, {@code int8x16} or {@code float8_e4m3fn}
   * @return the data type
   * @throws AnyfnException.ValueError if there is none
   */
  public static DType of(String name) {
    return new DType(Native.parseDType(Value.utf8(name)));
  }

  long bitsOfAll() {
    return word;
  }

  /**
   * Returns the code of the kind of numbers, as DLPack defines it: 0 signed, 1 unsigned, 2 floating-point, ...
   *
   * @return the code
   */
  public int code() {
    return (int) (word & 0xff);
  }

  /**
   * Returns the number of bits of an element, or of a lane of it.
   *
   * @return the number of bits
   */
  public int bits() {
    return (int) (word >> 8 & 0xff);
  }

  /**
   * Returns the number of lanes of a vector type; 1 for numbers.
   *
   * @return the number of lanes
   */
  public int lanes() {
    return (int) (word >> 16 & 0xffff);
  }

  @Override
  public boolean equals(@Nullable Object other) {
    return other instanceof DType dtype && dtype.word == word;
  }

  @Override
  public int hashCode() {
    return Long.hashCode(word);
  }

  @Override
  public String toString() {
    return Value.text(Native.dtypeText(word));
  }
}
