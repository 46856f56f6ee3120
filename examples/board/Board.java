import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.anyfn.Function;
import org.anyfn.ObjectRef;
import org.anyfn.Session;
import org.anyfn.Tensor;

/**
 * Uploads a function to a board, and runs and times it there. `board.py` says what the board needs; here, for a board with AArch64:
 *
 * <pre>
 * aarch64-linux-gnu-gcc -O3 -shared -fPIC -I bindings/c/include examples/kernels/saxpy.c -o saxpy.so
 * java -cp anyfn.jar examples/board/Board.java saxpy.so HOST 9190 board.key
 * java -cp anyfn.jar examples/board/Board.java saxpy.so --start qemu-aarch64-static -L /usr/aarch64-linux-gnu PATH/anyfn
 * </pre>
 */
public class Board {
  private static void run(Session session, Path library) throws IOException {
    System.out.println("the board is " + session.info().get("arch"));
    Function saxpy = session.load(library).getFunction("saxpy");
    float[] x = new float[100_000];
    float[] y = new float[x.length];
    float[] expected = new float[x.length];
    for (int i = 0; i < x.length; i++) {
      x[i] = i % 1000;
      y[i] = 1;
      expected[i] = 2 * x[i] + 1;
    }
    ObjectRef there = session.send(Tensor.of(x));
    ObjectRef result = session.send(Tensor.of(y));
    saxpy.invoke(2, there, result);
    System.out.println("saxpy is " + (Arrays.equals(session.fetch(result).toFloatArray(), expected) ? "equal" : "NOT EQUAL") + " to a loop here");
    Function evaluator = (Function) Function.get("anyfn.time_evaluator").invoke(saxpy, null, 10, 3);
    ObjectRef timing = (ObjectRef) evaluator.invoke(0, there, result);
    System.out.printf("saxpy takes %.3f ms there%n", (Double) timing.field("min") * 1e3);
  }

  public static void main(String[] args) throws IOException {
    Process server = null;
    if (args[1].equals("--start")) {
      List<String> command = new ArrayList<>(List.of(args).subList(2, args.length));
      String runner = String.join(" ", command.subList(0, command.size() - 1));
      command.addAll(List.of("rpc", "server", "--port", "0", "--upload", "--log", "/dev/null"));
      if (!runner.isEmpty()) command.addAll(List.of("--runner", runner));
      server = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
      String[] address = server.inputReader().readLine().replaceAll(".* ", "").split(":");
      args = new String[] {args[0], address[0], address[1]};
    }
    try (Session session = Session.connect(args[1], Integer.parseInt(args[2]), args.length > 3 ? Path.of(args[3]) : null, Duration.ofMinutes(2))) {
      run(session, Path.of(args[0]));
    } finally {
      if (server != null) server.destroy();
    }
  }
}
