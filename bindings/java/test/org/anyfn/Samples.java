package org.anyfn;

import java.nio.file.Files;
import java.nio.file.Path;

/** What the tests share: the folder of the project, and the library of sample functions. */
final class Samples {
  static final Path ROOT = Path.of(System.getenv().getOrDefault("ANYFN_ROOT", "../..")).toAbsolutePath().normalize();
  private static final Module LIBRARY = Module.load(library().toString());

  private Samples() {}

  static Path library() {
    String given = System.getenv("ANYFN_TESTING_LIB");
    return given != null ? Path.of(given) : ROOT.resolve("target/debug/libanyfn_testing.so");
  }

  /** Returns the sample function with a name. */
  static Function get(String name) {
    Runner.check(!LIBRARY.isClosed(), "the library is loaded");
    return Function.get("testing." + name);
  }

  static Path folder() throws java.io.IOException {
    return Files.createTempDirectory("anyfn-java-");
  }
}
