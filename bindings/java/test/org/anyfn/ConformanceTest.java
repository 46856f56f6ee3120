package org.anyfn;

import static org.anyfn.Runner.equal;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** Runs the conformance corpus. */
final class ConformanceTest {
  private static int count;
  private static final List<String> FAILED = new ArrayList<>();

  private ConformanceTest() {}

  private static void one(String file, Object name, Runner.Code code) {
    count++;
    try {
      code.run();
    } catch (Throwable failure) {
      FAILED.add(file + ": " + name);
      System.out.println("FAILED " + file + ", " + name);
      failure.printStackTrace(System.out);
    }
  }

  @Test
  static void corpus() {
    Samples.get("echo");
    for (Map<String, Object> one : Corpus.cases("objects")) {
      if (one.get("name").toString().startsWith("define ")) {
        Corpus.run(one);
      }
    }
    Function.get("anyfn.device_enable_null").invoke();
    for (Map<String, Object> one : Corpus.cases("values")) {
      one("values, out", one.get("name"), () -> {
        Object made = Corpus.make(one.get("value"), Map.of());
        equal(Corpus.plain(Samples.get("echo").invoke(made)), Corpus.plain(made));
      });
      one("values, in", one.get("name"), () -> {
        Object made = Corpus.make(one.get("value"), Map.of());
        equal(Corpus.plain(Samples.get("apply").invoke(Corpus.callback("echo"), made)), Corpus.plain(made));
      });
    }
    for (String file : List.of("calls", "errors", "named", "operations", "objects", "tensors")) {
      for (Map<String, Object> one : Corpus.cases(file)) {
        one(file, one.get("name"), () -> run(one));
      }
    }
    System.out.println(count + " checks of the corpus");
    equal(FAILED, List.of());
  }

  private static void run(Map<String, Object> one) {
    if (!(one.get("error") instanceof Map<?, ?> expected)) {
      equal(Corpus.plain(Corpus.run(one)), Corpus.plain(Corpus.make(one.get("result"), Map.of())));
      return;
    }
    AnyfnException error = Runner.fails(AnyfnException.class, () -> Corpus.run(one));
    equal(error.getMessage(), expected.get("message"));
    equal(error.kind(), expected.get("kind"));
    equal(Samples.get("echo").invoke(1), 1L);
  }
}
