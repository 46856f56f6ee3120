import java.nio.FloatBuffer;
import java.util.function.LongUnaryOperator;

/** The functions of {@code plain.c} through JNI. */
final class Plain {
  static {
    System.load(System.getProperty("plain"));
  }

  private Plain() {}

  static native long longs0();

  static native long longs3(long a, long b, long c);

  static native String echo(String text);

  static native double first(FloatBuffer buffer);

  static native long callback(LongUnaryOperator f, long x);
}
