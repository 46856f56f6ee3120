import java.util.Arrays;
import org.anyfn.DType;
import org.anyfn.Function;
import org.anyfn.Module;
import org.anyfn.Tensor;

/**
 * A Java program that calls the compiled matrix product with bias and relu of the demonstration:
 *
 * <pre>java -cp anyfn.jar examples/te/Dense.java dense.so</pre>
 *
 * Prints {@code key=value} lines: {@code right} is 1 if every element equals the result of plain loops.
 */
public class Dense {
  private static final int N = 512;
  private static final int M = 512;
  private static final int K = 512;
  private static final int CALLS = 10;

  /** Returns numbers whose products and sums are exact. */
  private static float[] numbers(int count) {
    float[] numbers = new float[count];
    for (int i = 0; i < count; i++) {
      numbers[i] = (int) (i * 7919L % 23) - 11;
    }
    return numbers;
  }

  public static void main(String[] args) {
    Function dense = Module.load(args[0]).getFunction("dense");
    float[] a = numbers(N * K);
    float[] b = numbers(K * M);
    float[] bias = numbers(M);
    Tensor left = Tensor.of(a, N, K);
    Tensor right = Tensor.of(b, K, M);
    Tensor offset = Tensor.of(bias);
    Tensor out = Tensor.zeros(DType.FLOAT32, N, M);

    long best = Long.MAX_VALUE;
    for (int call = 0; call < CALLS; call++) {
      long start = System.nanoTime();
      dense.invoke(left, right, offset, out);
      best = Math.min(best, System.nanoTime() - start);
    }

    float[] result = out.toFloatArray();
    boolean isRight = true;
    for (int i = 0; i < N; i++) {
      float[] row = bias.clone();
      for (int k = 0; k < K; k++) {
        for (int j = 0; j < M; j++) {
          row[j] += a[i * K + k] * b[k * M + j];
        }
      }
      for (int j = 0; j < M; j++) {
        row[j] = Math.max(row[j], 0);
      }
      isRight &= Arrays.equals(row, Arrays.copyOfRange(result, i * M, (i + 1) * M));
    }
    System.out.println("right=" + (isRight ? 1 : 0));
    System.out.println("ns_per_call=" + best);
  }
}
