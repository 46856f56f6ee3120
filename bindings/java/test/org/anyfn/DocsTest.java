package org.anyfn;

import static org.anyfn.Runner.equal;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Runs the Java of the guides and READMEs with the jar. A comment behind `println(..);` is what the line must print. */
final class DocsTest {
  private DocsTest() {}

  /** Returns the samples of a page in a language, as one text. */
  static String samples(String page, String language) throws Exception {
    String text = Files.readString(Samples.ROOT.resolve(page));
    Matcher blocks = Pattern.compile("```" + language + "\n(.*?)```", Pattern.DOTALL).matcher(text);
    StringBuilder all = new StringBuilder();
    while (blocks.find()) {
      all.append(blocks.group(1)).append('\n');
    }
    return all.toString();
  }

  /** Returns what a program must print. */
  static List<String> expected(String source) {
    List<String> lines = new ArrayList<>();
    Matcher prints = Pattern.compile("println\\(.*\\); *// (.*)").matcher(source);
    while (prints.find()) {
      lines.add(prints.group(1));
    }
    return lines;
  }

  /** Makes a program of samples: the imports, and the rest as the body of `main`. */
  static String program(String samples) {
    StringBuilder imports = new StringBuilder();
    StringBuilder body = new StringBuilder();
    for (String line : samples.split("\n")) {
      (line.startsWith("import ") ? imports : body).append(line).append('\n');
    }
    return imports + "\npublic class Page {\n  public static void main(String[] argv) throws Exception {\n" + body + "  }\n}\n";
  }

  static void runPage(String page, Path folder) throws Exception {
    String source = samples(page, "java");
    Path file = folder.resolve("Page.java");
    Files.writeString(file, program(source));
    List<String> command = Runner.javaWithJar("-Dorg.anyfn.cache=" + folder.resolve("cache"));
    command.add(file.toString());
    String output = Runner.output(new ProcessBuilder(command).directory(folder.toFile()));
    equal(List.of(output.split("\n")), expected(source));
  }

  private static void run(String page) throws Exception {
    Path folder = Samples.folder();
    runPage(page, folder);
    LibrariesTest.delete(folder);
  }

  @Test
  static void guide() throws Exception {
    run("docs/java.md");
  }

  @Test
  static void readme() throws Exception {
    run("README.md");
  }

  @Test
  static void start() throws Exception {
    Path folder = Samples.folder();
    LibrariesTest.compile(samples("docs/start/java.md", "c"), folder, "axpy");
    runPage("docs/start/java.md", folder);
    LibrariesTest.delete(folder);
  }
}
