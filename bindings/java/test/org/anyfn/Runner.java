package org.anyfn;

import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Objects;

/** Runs the test methods of the classes that are named on the command line. */
final class Runner {
  /** Thrown by a test that cannot run here. */
  static final class Skip extends RuntimeException {
    private static final long serialVersionUID = 1;

    Skip(String reason) {
      super(reason);
    }
  }

  /** Code that may throw. */
  interface Code {
    void run() throws Throwable;
  }

  private Runner() {}

  public static void main(String[] classes) throws Exception {
    if (System.getProperty("org.anyfn.child") == null) {
      System.exit(inChild(classes));
    }
    int failed = 0;
    int passed = 0;
    for (String name : classes) {
      List<Method> methods = new ArrayList<>(List.of(Class.forName("org.anyfn." + name).getDeclaredMethods()));
      methods.removeIf(method -> !method.isAnnotationPresent(Test.class));
      methods.sort(Comparator.comparing(Method::getName));
      if (methods.isEmpty()) {
        throw new IllegalStateException(name + " has no tests");
      }
      for (Method method : methods) {
        if (run(name + "." + method.getName(), method)) {
          passed++;
        } else {
          failed++;
        }
      }
    }
    System.out.println(passed + " tests passed, " + failed + " failed");
    System.exit(failed == 0 ? 0 : 1);
  }

  /** Runs the classes in a process whose VM checks all uses of JNI. Returns its exit code, or 1 if the VM has reported a wrong use. */
  private static int inChild(String[] classes) throws Exception {
    List<String> command = new ArrayList<>(java("-Xcheck:jni", "-Dorg.anyfn.child=yes"));
    command.add(Runner.class.getName());
    command.addAll(List.of(classes));
    Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
    process.getOutputStream().close();
    boolean isWrong = false;
    try (java.io.BufferedReader lines = process.inputReader()) {
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        System.out.println(line);
        isWrong |= line.contains("in native method") || line.contains("exceeds capacity");
      }
    }
    int code = process.waitFor();
    if (isWrong) {
      System.out.println("FAILED: the VM reports a wrong use of JNI, see above");
    }
    return code != 0 ? code : isWrong ? 1 : 0;
  }

  /** Returns the command line of a VM with the classes and the libraries of this one. */
  static List<String> java(String... options) {
    List<String> command = new ArrayList<>(List.of(Path.of(System.getProperty("java.home"), "bin", "java").toString(), "-Xmx512m"));
    if (Runtime.version().feature() >= 24) {
      command.add("--enable-native-access=ALL-UNNAMED");
    }
    String libraries = System.getenv("ANYFN_LIB_DIR");
    if (libraries != null) {
      command.add("-Dorg.anyfn.library.path=" + libraries);
    }
    command.addAll(List.of(options));
    command.addAll(List.of("-cp", System.getProperty("java.class.path")));
    return command;
  }

  /** Returns the command line of a VM with the jar. */
  static List<String> javaWithJar(String... options) {
    List<String> command = new ArrayList<>(List.of(Path.of(System.getProperty("java.home"), "bin", "java").toString()));
    if (Runtime.version().feature() >= 24) {
      command.add("--enable-native-access=ALL-UNNAMED");
    }
    command.addAll(List.of(options));
    command.addAll(List.of("-cp", System.getenv("ANYFN_JAR")));
    return command;
  }

  /** Runs a class of the tests in a process of its own, and returns its output. The exit code must be 0. */
  static String runClass(Class<?> main, List<String> options, String... args) throws Exception {
    List<String> command = new ArrayList<>(java(options.toArray(String[]::new)));
    command.add(main.getName());
    command.addAll(List.of(args));
    return output(new ProcessBuilder(command));
  }

  /** Runs a program, and returns its output. The exit code must be 0. */
  static String output(ProcessBuilder builder) throws Exception {
    Process process = builder.redirectErrorStream(true).start();
    process.getOutputStream().close();
    String output = new String(process.getInputStream().readAllBytes(), java.nio.charset.StandardCharsets.UTF_8);
    int code = process.waitFor();
    check(code == 0, builder.command() + " ends with " + code + ":\n" + output);
    return output;
  }

  private static boolean run(String name, Method method) throws IOException {
    long start = System.nanoTime();
    try {
      method.setAccessible(true);
      method.invoke(null);
      System.out.printf("ok %s (%d ms)%n", name, (System.nanoTime() - start) / 1_000_000);
      return true;
    } catch (InvocationTargetException wrapped) {
      if (wrapped.getCause() instanceof Skip skip) {
        System.out.println("skipped " + name + ": " + skip.getMessage());
        String file = System.getenv("ANYFN_SKIPS");
        if (file != null) {
          String line = name + "\t" + skip.getMessage() + "\n";
          Files.writeString(Path.of(file), line, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        }
        return true;
      }
      System.out.println("FAILED " + name);
      wrapped.getCause().printStackTrace(System.out);
    } catch (ReflectiveOperationException error) {
      System.out.println("FAILED " + name + ": " + error);
    }
    return false;
  }

  static void equal(Object actual, Object expected) {
    if (!Objects.equals(actual, expected)) {
      throw new AssertionError("expected " + expected + ", got " + actual);
    }
  }

  static void check(boolean holds, String what) {
    if (!holds) {
      throw new AssertionError(what);
    }
  }

  static <T extends Throwable> T fails(Class<T> type, Code code) {
    try {
      code.run();
    } catch (Throwable exception) {
      if (type.isInstance(exception)) {
        return type.cast(exception);
      }
      throw new AssertionError("expected " + type.getName() + ", got " + exception, exception);
    }
    throw new AssertionError("expected " + type.getName() + ", got no exception");
  }
}
