package org.anyfn;

import static org.anyfn.Runner.check;
import static org.anyfn.Runner.fails;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/** The example that runs and times a function on a board. */
final class BoardTest {
  private static final Path EXAMPLE = Samples.ROOT.resolve("examples/board/Board.java");
  private static final Path BUILT = Samples.library().toAbsolutePath().getParent();

  private BoardTest() {}

  private static boolean has(String program) {
    for (String folder : System.getenv("PATH").split(":")) {
      if (Files.isExecutable(Path.of(folder, program))) {
        return true;
      }
    }
    return false;
  }

  private static void run(String compiler, String... server) throws Exception {
    Path folder = Samples.folder();
    Path library = folder.resolve("saxpy.so");
    String source = Samples.ROOT.resolve("examples/kernels/saxpy.c").toString();
    Runner.output(
        new ProcessBuilder(
            compiler, "-O3", "-shared", "-fPIC", "-I", Samples.ROOT.resolve("bindings/c/include").toString(), source, "-o", library.toString()));
    List<String> command = Runner.javaWithJar("-Dorg.anyfn.cache=" + folder.resolve("cache"));
    command.addAll(List.of(EXAMPLE.toString(), library.toString(), "--start"));
    command.addAll(List.of(server));
    String output = Runner.output(new ProcessBuilder(command));
    check(output.contains("saxpy is equal to a loop here\n") && output.contains("saxpy takes "), output);
    boolean isEmulated = server.length > 1;
    check(!isEmulated || output.contains("the board is aarch64\n"), output);
    LibrariesTest.delete(folder);
  }

  @Test
  static void theExampleIsShort() throws Exception {
    check(Files.readAllLines(EXAMPLE).size() < 60, "it is short");
  }

  @Test
  static void withThisMachineAsTheBoard() throws Exception {
    Path program = BUILT.resolve("anyfn");
    if (!Files.exists(program)) {
      throw new Runner.Skip("the command `anyfn` is not built");
    }
    run("cc", program.toString());
  }

  @Test
  static void withAnEmulatedBoard() throws Exception {
    Path program = BUILT.resolveSibling("aarch64/aarch64-unknown-linux-gnu/board/anyfn");
    for (String tool : List.of("qemu-aarch64-static", "aarch64-linux-gnu-gcc")) {
      if (!has(tool)) {
        throw new Runner.Skip("there is no " + tool);
      }
    }
    if (!Files.exists(program)) {
      throw new Runner.Skip("there is no `anyfn` for AArch64: `./x demo --all` builds it");
    }
    run("aarch64-linux-gnu-gcc", "qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu", program.toString());
  }

  @Test
  static void filesThatAreNoLibraries() throws Exception {
    Path folder = Samples.folder();
    try (Session session = Session.spawn(SessionTest.worker())) {
      Path text = Files.writeString(folder.resolve("text.so"), "no library");
      String message = fails(IllegalArgumentException.class, () -> session.load(text)).getMessage();
      check(message.contains("not a shared library"), message);
      fails(java.nio.file.NoSuchFileException.class, () -> session.load(folder.resolve("missing.so")));
    }
    LibrariesTest.delete(folder);
  }
}
