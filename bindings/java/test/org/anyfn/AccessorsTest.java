package org.anyfn;

import static org.anyfn.Runner.check;
import static org.anyfn.Runner.equal;
import static org.anyfn.Runner.fails;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.spi.ToolProvider;

/** Accessors that are written for types: they compile without a warning, and a program uses them. */
public final class AccessorsTest {
  /** A program that uses accessors. */
  private static final String PROGRAM =
      """
      import java.util.List;
      import org.anyfn.Function;
      import org.anyfn.Module;
      import org.anyfn.ObjectRef;
      import org.anyfn.ObjectType;
      import shapes.Node;
      import shapes.Point;

      public class Use {
        public static void main(String[] args) {
          Module library = Module.load(args[0]);
          Point point = new Point((ObjectRef) Function.get("testing.make_point").invoke(3, 4));
          System.out.println(point.x() + " " + point.y());
          Object same = Function.get("testing.echo").invoke(point);
          System.out.println(same.equals(point.object()));
          ObjectType.define("java.view.Node", org.anyfn.Nodes.fields(), null).addMethod("total", given -> given.length);
          Node first = Node.of(1, 0.5, true, "one", new byte[] {7}, List.of(1, 2), null, "any", null, 5);
          Node second = Node.of(2, 0.25, false, "two", new byte[0], List.of(), "note", first, first, 6);
          second.count(second.count() + 40);
          second.class_(second.next().class_() + 1);
          System.out.println(second.count() + " " + second.ratio() + " " + second.is_set() + " " + second.name() + " " + second.note());
          System.out.println(second.next().data()[0] + " " + second.next().items() + " " + second.next().next() + " " + second.next().note());
          System.out.println(second.class_() + " " + second.any().equals(first.object()) + " " + second.equals(new Node(second.object())) + " " + second.total(1, 2));
          try {
            new Node(point.object());
          } catch (org.anyfn.AnyfnException.TypeError error) {
            System.out.println(error.getMessage());
          }
          library.close();
        }
      }
      """;

  private AccessorsTest() {}

  private static void compile(Path to, String path, Object... files) {
    List<String> args = new ArrayList<>(List.of("-Xlint:all", "-Xdoclint:all/protected", "-Werror", "--release", "17", "-cp", path, "-d", to.toString()));
    for (Object file : files) {
      args.add(file.toString());
    }
    java.io.StringWriter out = new java.io.StringWriter();
    java.io.PrintWriter lines = new java.io.PrintWriter(out);
    int code = ToolProvider.findFirst("javac").orElseThrow(() -> new Runner.Skip("no javac")).run(lines, lines, args.toArray(String[]::new));
    check(code == 0, "javac ends with " + code + ":\n" + out);
  }

  @Test
  static void accessorsOfTypes() throws Exception {
    Path folder = Samples.folder();
    Path classes = Files.createDirectories(folder.resolve("classes"));
    String path = System.getProperty("java.class.path");
    // The type exists in a library: the program writes its accessor.
    String written = Runner.runClass(Accessors.class, List.of(), "-d", folder.toString(), "-p", "shapes", "-l", Samples.library().toString(), "testing.Point");
    Path point = folder.resolve("shapes/Point.java");
    equal(written.strip(), point.toString());
    check(Files.readString(point).contains("public double x()"), Files.readString(point));
    ObjectType.define("java.view.Node", Nodes.fields(), null).addMethod("total", args -> args.length);
    List<Path> files = Accessors.write(folder, "shapes", List.of(ObjectType.of("java.view.Node")));
    Path use = Files.writeString(folder.resolve("Use.java"), PROGRAM);
    compile(classes, path, point, files.get(0));
    List<String> args = new ArrayList<>(List.of("--release", "17", "-cp", classes + ":" + path, "-d", classes.toString(), use.toString()));
    check(ToolProvider.findFirst("javac").orElseThrow().run(System.out, System.out, args.toArray(String[]::new)) == 0, "it compiles");
    List<String> command = new ArrayList<>(Runner.java());
    command.set(command.size() - 1, classes + ":" + path);
    command.addAll(List.of("Use", Samples.library().toString()));
    String output = Runner.output(new ProcessBuilder(command));
    equal(
        List.of(output.split("\n")),
        List.of(
            "3.0 4.0",
            "true",
            "42 0.25 false two note",
            "7 [1, 2] null null",
            "6 true true 3",
            "expected an object of type java.view.Node, got testing.Point"));
    LibrariesTest.delete(folder);
  }

  /** A program that uses accessors of types with names that generated code or Java uses. */
  private static final String ODD =
      """
      import java.util.Map;
      import odd.*;
      import org.anyfn.ObjectType;

      class Odd {
        public static void main(String[] args) {
          for (String key : new String[] {"java.odd.Long", "java.odd.LinkedHashMap"}) {
            ObjectType.define(key, org.anyfn.AccessorsTest.odd(), null);
          }
          Long_ one = Long_.of(1, 2, 3, 4, 5, 6, 7, 8, 9L, "ten", null, 12, 13);
          System.out.println(one.fields() + " " + one.values() + " " + one.value() + " " + one.class__() + " " + one.class_() + " " + one.a_b_() + " " + one.a_b());
          one.class_(50);
          LinkedHashMap_ two = LinkedHashMap_.of(1, 2, 3, 4, 5, 6, 7, 8, null, "ten", one, 12, 13);
          System.out.println(two.maybe() + " " + one.maybe() + " " + two.größe() + " " + two.found().class_() + " " + two.of_() + " " + two.TYPE_KEY() + " " + two.ObjectType_());
        }
      }
      """;

  /** Fields with such names. */
  public static Map<String, String> odd() {
    Map<String, String> fields = new java.util.LinkedHashMap<>();
    for (String name : List.of("fields", "values", "value", "class", "class_", "a-b", "a_b", "of")) {
      fields.put(name, "int");
    }
    fields.put("maybe", "{\"type\":\"Optional\",\"args\":[{\"type\":\"int\"}]}");
    fields.put("größe", "str");
    fields.put("found", "{\"type\":\"Optional\",\"args\":[{\"type\":\"java.odd.Long\"}]}");
    fields.put("TYPE_KEY", "int");
    fields.put("ObjectType", "int");
    return fields;
  }

  @Test
  static void oddNames() throws Exception {
    Path folder = Samples.folder();
    Path classes = Files.createDirectories(folder.resolve("classes"));
    String path = System.getProperty("java.class.path");
    List<ObjectType> types = new ArrayList<>();
    for (String key : List.of("java.odd.Long", "java.odd.LinkedHashMap")) {
      types.add(ObjectType.define(key, odd(), null));
    }
    List<Path> files = new ArrayList<>(Accessors.write(folder, "odd", types));
    files.add(Files.writeString(folder.resolve("Odd.java"), ODD));
    compile(classes, path, files.toArray());
    List<String> command = new ArrayList<>(Runner.java());
    command.set(command.size() - 1, classes + ":" + path);
    command.add("Odd");
    String output = Runner.output(new ProcessBuilder(command));
    equal(List.of(output.split("\n")), List.of("1 2 3 4 5 6 7", "null 9 ten 50 8 12 13"));
    LibrariesTest.delete(folder);
  }

  @Test
  static void wrongOptions() throws Exception {
    Path folder = Samples.folder();
    for (String[] args : new String[][] {{}, {"-p", "shapes"}, {"-p", "a.class", "ffi.Object"}, {"-x", "y"}, {"ffi.Object", "-p"}, {"-p", "../up", "ffi.Object"}}) {
      fails(IllegalArgumentException.class, () -> Accessors.main(args));
    }
    fails(AnyfnException.TypeError.class, () -> Accessors.main(new String[] {"-d", folder.toString(), "-p", "shapes", "no.such.Type"}));
    ObjectType first = ObjectType.define("java.one.Twin", Map.of(), null);
    ObjectType second = ObjectType.define("java.two.Twin", Map.of(), null);
    fails(IllegalArgumentException.class, () -> Accessors.write(folder, "shapes", List.of(first, second)));
    equal(Files.list(folder).count(), 0L);
    LibrariesTest.delete(folder);
  }
}
