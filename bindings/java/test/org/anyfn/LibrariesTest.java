package org.anyfn;

import static org.anyfn.Runner.check;
import static org.anyfn.Runner.equal;
import static org.anyfn.Runner.fails;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;

/** Libraries that are compiled from C, and functions that Python compiles. */
final class LibrariesTest {
  private static final String SOURCE =
      """
      #include <anyfn/anyfn.h>

      /* Passes the second argument, a tensor, to the first, a function, as DLTensor*. */
      ANYFN_EXPORT(lend) {
        DLTensor* x;
        if (anyfn_check_num_args(num_args, 2)) return -1;
        if (anyfn_arg_tensor(args, num_args, 1, &x)) return -1;
        TVMFFIAny view = {0};
        view.type_index = kTVMFFIDLTensorPtr;
        view.v_ptr = x;
        return TVMFFIFunctionCall(args[0].v_obj, &view, 1, result);
      }
      """;

  private LibrariesTest() {}

  /** Compiles C code to a library. */
  static Path compile(String source, Path folder, String name) throws Exception {
    Files.writeString(folder.resolve(name + ".c"), source);
    String compiler = System.getenv().getOrDefault("CC", "cc");
    Path library = folder.resolve(name + ".so");
    Path include = Samples.ROOT.resolve("bindings/c/include");
    List<String> command =
        List.of(compiler, "-O2", "-shared", "-fPIC", "-I", include.toString(), folder.resolve(name + ".c").toString(), "-o", library.toString());
    try {
      Runner.output(new ProcessBuilder(command));
    } catch (java.io.IOException error) {
      throw new Runner.Skip("no C compiler");
    }
    return library;
  }

  static void delete(Path folder) throws Exception {
    try (java.util.stream.Stream<Path> files = Files.walk(folder)) {
      for (Path file : files.sorted(java.util.Comparator.reverseOrder()).toList()) {
        Files.delete(file);
      }
    }
  }

  @Test
  static void borrowedTensorsAreWrittenBack() throws Exception {
    Path folder = Samples.folder();
    Module module = Module.load(compile(SOURCE, folder, "lend"));
    Function lend = module.getFunction("lend");
    Tensor tensor = Tensor.of(new float[] {1, 2, 3});
    Tensor[] kept = new Tensor[1];
    lend.invoke((PackedFunc) args -> {
      kept[0] = (Tensor) args[0];
      kept[0].set(new float[] {4, 5, 6});
      return null;
    }, tensor);
    equal(Arrays.toString(tensor.toFloatArray()), "[4.0, 5.0, 6.0]");
    // What is kept is a copy.
    kept[0].set(new float[] {0, 0, 0});
    equal(Arrays.toString(tensor.toFloatArray()), "[4.0, 5.0, 6.0]");
    // A function keeps its library.
    module.close();
    lend.invoke((PackedFunc) args -> null, tensor);
    fails(IllegalStateException.class, () -> module.getFunction("lend"));
    delete(folder);
  }

  private static final String BUILD =
      """
      import anyfn
      from anyfn import te, tir
      n = 64
      a, b = te.placeholder((n, n), name="a"), te.placeholder((n, n), name="b")
      k = te.reduce_axis((0, n), name="k")
      c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
      anyfn.build([a, b, c], name="matmul").export("matmul.so")
      x = te.placeholder((1000,), name="x")
      squared = te.compute((1000,), lambda i: x[i] * x[i], name="squared")
      looked = te.extern((1000,), [squared], lambda ins, outs: tir.call_packed("java.test.look", ins[0], outs[0]), name="looked")
      anyfn.build([x, looked], name="look").export("look.so")
      """;

  @Test
  static void functionsThatPythonCompiles() throws Exception {
    Path python = Samples.ROOT.resolve(".x/venv/bin/python");
    if (!Files.exists(python)) {
      throw new Runner.Skip("no Python environment");
    }
    Path folder = Samples.folder();
    ProcessBuilder builder = new ProcessBuilder(python.toString(), "-c", BUILD).directory(folder.toFile());
    builder.environment().put("PYTHONPATH", Samples.ROOT.resolve("bindings/python").toString());
    builder.environment().put("ANYFN_CACHE_DIR", folder.toString());
    try {
      Runner.output(builder);
    } catch (AssertionError error) {
      if (error.getMessage().contains("libanyfn_compiler") || error.getMessage().contains("No module named")) {
        throw new Runner.Skip("no library of the compiler");
      }
      throw error;
    }
    Function matmul = Module.load(folder.resolve("matmul.so")).getFunction("matmul");
    int n = 64;
    float[] a = new float[n * n];
    float[] b = new float[n * n];
    for (int i = 0; i < n * n; i++) {
      a[i] = i * 7 % 13;
      b[i] = i * 5 % 11;
    }
    Tensor out = Tensor.zeros(DType.FLOAT32, n, n);
    matmul.invoke(Tensor.of(a, n, n), Tensor.of(b, n, n), out);
    float[] result = out.toFloatArray();
    for (int i = 0; i < n; i++) {
      for (int j = 0; j < n; j++) {
        float sum = 0;
        for (int k = 0; k < n; k++) {
          sum += a[i * n + k] * b[k * n + j];
        }
        equal(result[i * n + j], sum);
      }
    }
    AnyfnException error = fails(AnyfnException.class, () -> matmul.invoke(Tensor.of(a), Tensor.of(b, n, n), out));
    check(error.getMessage().contains("a"), error.getMessage());
    compiledCodeCallsJava(folder);
    delete(folder);
  }

  /** A Java function looks at the tensors inside of a compiled function, and writes one of them. */
  private static void compiledCodeCallsJava(Path folder) {
    float[] seen = new float[1];
    Exception[] failing = new Exception[1];
    Function.register("java.test.look", args -> {
      if (failing[0] != null) {
        throw failing[0];
      }
      float[] squares = ((Tensor) args[0]).toFloatArray();
      seen[0] = squares[999];
      for (int i = 0; i < squares.length; i++) {
        squares[i] += 1;
      }
      ((Tensor) args[1]).set(squares);
      return null;
    });
    float[] numbers = new float[1000];
    for (int i = 0; i < numbers.length; i++) {
      numbers[i] = i;
    }
    Function look = Module.load(folder.resolve("look.so")).getFunction("look");
    Tensor out = Tensor.zeros(DType.FLOAT32, 1000);
    look.invoke(Tensor.of(numbers), out);
    equal(seen[0], 999f * 999f);
    equal(out.toFloatArray()[3], 10f);
    // The compiled function has cached the look-up, so the same function fails now.
    failing[0] = new java.io.IOException("in Java, called by compiled code");
    Throwable thrown = fails(java.io.IOException.class, () -> look.invoke(Tensor.of(numbers), out));
    check(thrown == failing[0], "the same exception passes through compiled code");
    Function.remove("java.test.look");
  }
}
