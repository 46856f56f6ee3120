package org.anyfn;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.Callable;

/**
 * Runs values and errors of the conformance corpus between Java and the frontends whose libraries are given, for {@code
 * bindings/python/tests/test_matrix.py}. The argument is JSON: {@code {"define": [libraries], "run": {"C": [library, function], ..},
 * "prefixes": {"C": "matrix.c", ..}}}. Prints a line of JSON: [[defined in, called from, passed, failed], ..].
 */
final class Matrix {
  private static final String NAME = "Java";
  private static final String PREFIX = "matrix.java";

  private record Check(String name, Callable<Boolean> holds) {}

  private Matrix() {}

  public static void main(String[] args) throws Exception {
    Map<?, ?> told = (Map<?, ?>) Json.parse(args[0]);
    Samples.get("echo");
    List<Module> kept = new ArrayList<>();
    for (Object path : (List<?>) told.get("define")) {
      Module module = Module.load((String) path);
      kept.add(module);
      module.findFunction("define", false).ifPresent(Function::invoke);
    }
    Function.register(PREFIX + ".echo", given -> given[0]);
    Function.register(PREFIX + ".apply", given -> ((PackedFunc) given[0]).invoke(rest(given)));
    Function.register(PREFIX + ".raise_error", given -> {
      throw AnyfnException.make((String) given[0], (String) given[1], null);
    });
    List<String> cells = new ArrayList<>();
    List<Map<String, Object>> values = Corpus.cases("values");
    for (Map.Entry<?, ?> entry : ((Map<?, ?>) told.get("prefixes")).entrySet()) {
      cells.add(cell(entry.getKey(), NAME, runHere((String) entry.getValue(), values)));
    }
    cells.add(cell(NAME, NAME, runHere(PREFIX, values)));
    List<Object> names = new ArrayList<>();
    values.forEach(value -> names.add(value.get("name")));
    for (Map.Entry<?, ?> entry : ((Map<?, ?>) told.get("run")).entrySet()) {
      List<?> place = (List<?>) entry.getValue();
      Module module = Module.load((String) place.get(0));
      kept.add(module);
      List<?> counted = (List<?>) module.getFunction((String) place.get(1)).invoke(PREFIX, names);
      cells.add(cell(NAME, entry.getKey(), new long[] {(Long) counted.get(0), (Long) counted.get(1)}));
    }
    System.out.println("[" + String.join(", ", cells) + "]");
    System.exit(0);
  }

  private static Object[] rest(Object[] given) {
    return java.util.Arrays.copyOfRange(given, 1, given.length);
  }

  private static String cell(Object definedIn, Object calledFrom, long[] counted) {
    return "[\"" + definedIn + "\", \"" + calledFrom + "\", " + counted[0] + ", " + counted[1] + "]";
  }

  private static boolean raises(String message, Callable<?> code) {
    try {
      code.call();
    } catch (AnyfnException error) {
      return error.kind().equals("ValueError") && message.equals(error.getMessage());
    } catch (Exception error) {
      return false;
    }
    return false;
  }

  private static boolean same(Function function, Object[] args, Object value) {
    return Objects.equals(Corpus.plain(function.invoke(args)), Corpus.plain(value));
  }

  /** Runs all cases with the functions of a frontend. Returns how many checks passed and failed. */
  private static long[] runHere(String prefix, List<Map<String, Object>> values) {
    List<Check> checks = new ArrayList<>();
    Function echo = Function.get(prefix + ".echo");
    Function apply = Function.get(prefix + ".apply");
    for (Map<String, Object> one : values) {
      String name = (String) one.get("name");
      Object value = Corpus.make(one.get("value"), Map.of());
      checks.add(new Check(name, () -> same(echo, new Object[] {value}, value)));
      checks.add(new Check(name, () -> same(apply, new Object[] {Corpus.callback("echo"), value}, value)));
    }
    Function raise = Function.get(prefix + ".raise_error");
    checks.add(new Check("raised", () -> raises("told so", () -> raise.invoke("ValueError", "told so"))));
    checks.add(new Check("passed through", () -> raises("callback failed", () -> apply.invoke(Corpus.callback("fail")))));
    long passed = 0;
    for (Check check : checks) {
      boolean held = false;
      try {
        held = check.holds.call();
      } catch (Exception error) {
        System.err.println(prefix + ", " + check.name + ": " + error);
      }
      if (!held) {
        System.err.println("FAILED " + prefix + ", " + check.name);
      }
      passed += held ? 1 : 0;
    }
    return new long[] {passed, checks.size() - passed};
  }
}
