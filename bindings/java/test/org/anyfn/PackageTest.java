package org.anyfn;

import static org.anyfn.Runner.check;
import static org.anyfn.Runner.equal;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.jar.JarFile;

/** The jar, and how it extracts the native libraries. */
final class PackageTest {
  private static final Path JAR = Path.of(System.getenv("ANYFN_JAR"));
  private PackageTest() {}

  /** A program that uses the jar. */
  static final class Program {
    public static void main(String[] args) {
      System.out.println(Function.of(given -> "called " + given[0]).invoke(args.length));
    }
  }

  private static ProcessBuilder program(String... options) {
    List<String> command = Runner.javaWithJar(options);
    String tests = System.getProperty("java.class.path").split(java.io.File.pathSeparator)[1];
    command.set(command.size() - 1, JAR + java.io.File.pathSeparator + tests);
    command.add(Program.class.getName());
    return new ProcessBuilder(command);
  }

  @Test
  static void content() throws Exception {
    try (JarFile jar = new JarFile(JAR.toFile())) {
      for (String name : List.of("module-info.class", "META-INF/LICENSE", "META-INF/maven/org.anyfn/anyfn/pom.xml", "org/anyfn/Function.class")) {
        check(jar.getEntry(name) != null, "the jar contains " + name);
      }
    }
  }

  @Test
  static void asAModule() throws Exception {
    Path folder = Samples.folder();
    Path sources = Files.createDirectories(folder.resolve("src/use"));
    Files.writeString(folder.resolve("src/module-info.java"), "module use { requires org.anyfn; opens use to org.anyfn; }");
    Files.writeString(
        sources.resolve("Use.java"),
        """
        package use;
        import org.anyfn.*;
        class Use {
          record Point(long x) {}
          public static void main(String[] args) {
            ObjectType.define("use.Point", Point.class);
            System.out.println(((ObjectRef) Function.of(given -> given[0]).invoke(new Point(3))).toRecord(Point.class));
          }
        }
        """);
    Path bin = Path.of(System.getProperty("java.home"), "bin");
    Runner.output(
        new ProcessBuilder(
            bin.resolve("javac").toString(), "-p", JAR.toString(), "-d", folder.resolve("out").toString(),
            folder.resolve("src/module-info.java").toString(), sources.resolve("Use.java").toString()));
    String modules = JAR + ":" + folder.resolve("out");
    List<String> command = new ArrayList<>(List.of(bin.resolve("java").toString(), "-Dorg.anyfn.cache=" + folder.resolve("cache")));
    if (Runtime.version().feature() >= 24) {
      command.addAll(List.of("--enable-native-access=org.anyfn", "--illegal-native-access=deny"));
    }
    command.addAll(List.of("-p", modules, "-m", "use/use.Use"));
    equal(Runner.output(new ProcessBuilder(command)), "Point[x=3]\n");
    LibrariesTest.delete(folder);
  }

  @Test
  static void extraction() throws Exception {
    Path folder = Samples.folder();
    Path cache = folder.resolve("cache");
    String option = "-Dorg.anyfn.cache=" + cache;
    equal(Runner.output(program(option)), "called 0\n");
    List<Path> libraries;
    try (java.util.stream.Stream<Path> files = Files.walk(cache)) {
      libraries = files.filter(Files::isRegularFile).sorted().toList();
    }
    equal(libraries.stream().map(file -> file.getFileName().toString()).toList(), List.of("libanyfn.so", "libanyfn_devices.so", "libanyfn_java.so"));
    // A file that is damaged is replaced.
    Files.writeString(libraries.get(1), "damaged");
    equal(Runner.output(program(option)), "called 0\n");
    check(Files.size(libraries.get(1)) > 1000, "the library is restored");
    // A folder that others may use is refused.
    Files.setPosixFilePermissions(libraries.get(0).getParent(), java.nio.file.attribute.PosixFilePermissions.fromString("rwxrwxrwx"));
    AssertionError error = Runner.fails(AssertionError.class, () -> Runner.output(program(option)));
    check(error.getMessage().contains("expected the permissions rwx------"), error.getMessage());
    LibrariesTest.delete(folder);
  }

  @Test
  static void folderOfAnotherUser() throws Exception {
    Path folder = Samples.folder();
    // As if another user had made the folder, to replace ours in it.
    Path shared = Files.createDirectory(folder.resolve("anyfn-java-" + System.getProperty("user.name")));
    Files.setPosixFilePermissions(shared, java.nio.file.attribute.PosixFilePermissions.fromString("rwxrwxrwx"));
    ProcessBuilder program = program("-Djava.io.tmpdir=" + folder, "-Duser.home=/proc/no-home");
    program.environment().remove("XDG_CACHE_HOME");
    AssertionError error = Runner.fails(AssertionError.class, () -> Runner.output(program));
    check(error.getMessage().contains("expected the permissions rwx------"), error.getMessage());
    Files.delete(shared);
    equal(Runner.output(program), "called 0\n");
    LibrariesTest.delete(folder);
  }

  @Test
  static void missingLibraries() throws Exception {
    Path folder = Samples.folder();
    AssertionError error = Runner.fails(AssertionError.class, () -> Runner.output(program("-Dorg.anyfn.library.path=" + folder)));
    check(error.getMessage().contains("UnsatisfiedLinkError"), error.getMessage());
    LibrariesTest.delete(folder);
  }
}
