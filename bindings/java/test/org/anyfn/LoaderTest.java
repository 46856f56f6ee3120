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
      try (Module library = Module.load(System.getProperty("org.anyfn.test.worker")); Function onWorker = library.getFunction("on_worker")) {
        for (int i = 0; i < 3; i++) {
          equal(onWorker.invoke((PackedFunc) args -> args[0] + " " + args[1], "from a thread that lasts", i), "from a thread that lasts " + i);
        }
      }
    }
  }

  /** Calls its first argument, a function, with the others, always on the same native thread. */
  private static final String WORKER =
      """
      #include <anyfn/anyfn.h>
      #include <pthread.h>

      static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
      static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
      static int is_started, has_call, status;
      static const TVMFFIAny* call_args;
      static int call_count;
      static TVMFFIAny call_result;

      static void* work(void* unused) {
        pthread_mutex_lock(&mutex);
        for (;;) {
          while (!has_call) pthread_cond_wait(&changed, &mutex);
          call_result = (TVMFFIAny){0};
          status = TVMFFIFunctionCall(call_args[0].v_obj, (TVMFFIAny*)call_args + 1, call_count - 1, &call_result);
          has_call = 0;
          pthread_cond_broadcast(&changed);
        }
        return unused;
      }

      ANYFN_EXPORT(on_worker) {
        pthread_t thread;
        if (num_args < 1) return -1;
        pthread_mutex_lock(&mutex);
        if (!is_started) is_started = pthread_create(&thread, 0, work, 0) == 0;
        call_args = args;
        call_count = num_args;
        has_call = 1;
        pthread_cond_broadcast(&changed);
        while (has_call) pthread_cond_wait(&changed, &mutex);
        *result = status ? (TVMFFIAny){0} : call_result;
        pthread_mutex_unlock(&mutex);
        return 0;
      }
      """;

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
    // The library, one of whose threads runs, stays loaded.
    Module worker = Module.load(System.getProperty("org.anyfn.test.worker"));
    equal(Function.of(given -> 1).invoke(), 1L);
    for (int round = 0; round < 6; round++) {
      WeakReference<ClassLoader> loader = useOnce();
      for (int wait = 0; wait < 300 && loader.get() != null; wait++) {
        System.gc();
        Thread.sleep(10);
      }
      check(loader.get() == null, "the class loader is unloaded");
      // What is allocated where the buffers of the class loader were.
      for (int i = 0; i < 20; i++) {
        java.nio.ByteBuffer.allocateDirect(8192).putLong(0, -1);
      }
    }
    long copies = java.nio.file.Files.readAllLines(java.nio.file.Path.of("/proc/self/maps")).stream()
        .filter(line -> line.contains("libanyfn_java") && line.contains("r-xp"))
        .count();
    // That of this loader, and those of the others, one after the other.
    System.out.println("copies of the thin library: " + copies);
    check(!worker.isClosed() && copies <= 3, copies + " copies of the library are mapped");
    equal(Function.of(given -> 1).invoke(), 1L);
  }

  @Test
  static void classLoadersAreUnloaded() throws Exception {
    java.nio.file.Path folder = Samples.folder();
    for (String name : List.of("libanyfn.so", "libanyfn_java.so")) {
      java.nio.file.Files.copy(java.nio.file.Path.of(System.getenv("ANYFN_LIB_DIR"), name), folder.resolve(name));
    }
    String output = Runner.runClass(LoaderTest.class, List.of(
        "-Dorg.anyfn.library.path=" + folder, "-Dorg.anyfn.idle=50", "-Dorg.anyfn.test.worker=" + LibrariesTest.compile(WORKER, folder, "worker")));
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
