package org.anyfn;

import static org.anyfn.Runner.check;
import static org.anyfn.Runner.equal;

import java.io.File;
import java.lang.ref.WeakReference;
import java.net.MalformedURLException;
import java.net.URL;
import java.net.URLClassLoader;
import java.util.ArrayList;
import java.util.List;

/** The package in several class loaders, as in application servers. */
final class LoaderTest {
  private LoaderTest() {}

  /** Uses the package. It is loaded by each class loader anew. */
  public static final class Use implements Runnable {
    /** Native objects in static fields must not keep the class loader alive, except functions of Java. */
    private static final List<Object> KEPT = new ArrayList<>();

    @Override
    public void run() {
      KEPT.add(ListRef.of("kept"));
      Function twice = Function.of(args -> 2 * (Long) args[0]);
      equal(twice.invoke(21), 42L);
      equal(Function.register("java.test.loader", args -> "from a loader").invoke(), "from a loader");
      Function.remove("java.test.loader");
      Tensor.of(new float[] {1}).buffer();
    }
  }

  private static URLClassLoader loader() throws MalformedURLException {
    List<URL> urls = new ArrayList<>();
    for (String entry : System.getProperty("java.class.path").split(File.pathSeparator)) {
      urls.add(new File(entry).toURI().toURL());
    }
    return new URLClassLoader(urls.toArray(URL[]::new), ClassLoader.getPlatformClassLoader());
  }

  private static WeakReference<ClassLoader> useOnce() throws Exception {
    URLClassLoader loader = loader();
    Class<?> use = loader.loadClass(Use.class.getName());
    check(use != Use.class, "it is another class");
    ((Runnable) use.getConstructor().newInstance()).run();
    return new WeakReference<>(loader);
  }

  /** The program of a process of its own: it uses the package in class loaders that are dropped. */
  public static void main(String[] args) throws Exception {
    equal(Function.of(given -> 1).invoke(), 1L);
    for (int round = 0; round < 6; round++) {
      WeakReference<ClassLoader> loader = useOnce();
      for (int wait = 0; wait < 300 && loader.get() != null; wait++) {
        System.gc();
        Thread.sleep(10);
      }
      check(loader.get() == null, "the class loader is unloaded");
    }
    long copies = java.nio.file.Files.readAllLines(java.nio.file.Path.of("/proc/self/maps")).stream()
        .filter(line -> line.contains("libanyfn_java") && line.contains("r-xp"))
        .count();
    // That of this loader, and those of the others, one after the other.
    System.out.println("copies of the thin library: " + copies);
    check(copies <= 3, copies + " copies of the library are mapped");
    equal(Function.of(given -> 1).invoke(), 1L);
  }

  @Test
  static void classLoadersAreUnloaded() throws Exception {
    java.nio.file.Path folder = Samples.folder();
    for (String name : List.of("libanyfn.so", "libanyfn_java.so")) {
      java.nio.file.Files.copy(java.nio.file.Path.of(System.getenv("ANYFN_LIB_DIR"), name), folder.resolve(name));
    }
    String output = Runner.runClass(LoaderTest.class, List.of("-Dorg.anyfn.library.path=" + folder, "-Dorg.anyfn.idle=50"));
    check(output.contains("copies of the thin library"), output);
    try (java.util.stream.Stream<java.nio.file.Path> files = java.nio.file.Files.list(folder)) {
      for (java.nio.file.Path file : files.toList()) {
        java.nio.file.Files.delete(file);
      }
    }
    java.nio.file.Files.delete(folder);
  }

  @Test
  static void processesEnd() throws Exception {
    equal(Runner.runClass(Exit.class, List.of("-Xcheck:jni")), "called from a native thread\n");
  }

  /** A program that ends while native code keeps a function of Java. */
  static final class Exit {
    public static void main(String[] args) {
      Samples.get("keep").invoke((PackedFunc) given -> {
        System.out.println("called from a native thread");
        return null;
      });
      Samples.get("call_kept_on_thread").invoke();
    }
  }
}
