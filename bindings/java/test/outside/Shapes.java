package outside;

import org.anyfn.Function;

/** Uses the package from another package, with an interface that is not public. */
public final class Shapes {
  /** An interface with a default method. */
  interface Doubler {
    long apply(long value);

    default long twice(long value) {
      return apply(apply(value));
    }
  }

  private Shapes() {}

  /** Calls the default method of a typed view. */
  public static long twice(Function function, long value) {
    return function.as(Doubler.class).twice(value);
  }
}
