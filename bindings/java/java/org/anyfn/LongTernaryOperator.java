package org.anyfn;

/** A function of three integers that returns an integer. */
@FunctionalInterface
public interface LongTernaryOperator {
  /**
   * Applies the function.
   *
   * @param a the first argument
   * @param b the second argument
   * @param c the third argument
   * @return the result
   */
  long applyAsLong(long a, long b, long c);
}
