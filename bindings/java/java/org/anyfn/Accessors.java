package org.anyfn;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Writes Java records for types of native objects: an accessor has a method for each field of the type and for each of its methods, so that
 * the Java compiler checks names and types. As a program:
 *
 * <pre>java -cp anyfn.jar org.anyfn.Accessors -d src/main/java -p com.example.shapes -l libshapes.so shapes.Point shapes.Circle</pre>
 *
 * <p>{@code -d} is the folder of the sources, {@code -p} the package, {@code -l} a library that defines types; it may be repeated.
 */
public final class Accessors {
  /** Names that the methods of an accessor cannot have, because records and objects have them. */
  private static final Set<String> TAKEN =
      Set.of("object", "check", "clone", "equals", "finalize", "getClass", "hashCode", "notify", "notifyAll", "of", "toString", "wait");

  /** Names of classes that accessors use. An accessor of the same package with such a name would hide the class. */
  private static final Set<String> USED =
      Set.of("Boolean", "Double", "LinkedHashMap", "List", "Long", "Map", "Object", "ObjectRef", "ObjectType", "ObjectView", "String");

  private static final Set<String> KEYWORDS =
      Set.of(
          ("_ abstract assert boolean break byte case catch char class const continue default do double else enum extends false final finally float for"
                  + " goto if implements import instanceof int interface long native new null package private protected public return short static"
                  + " strictfp super switch synchronized this throw throws transient true try void volatile while")
              .split(" "));

  private final String packageName;
  /** Simple names of the accessors that are written together, by type key. */
  private final Map<String, String> classes;

  private Accessors(String packageName, Map<String, String> classes) {
    this.packageName = packageName;
    this.classes = classes;
  }

  /**
   * Writes the accessors of types. Fields of these types are returned as accessors, too.
   *
   * @param folder the folder of the sources, in which the folders of the package are made
   * @param packageName the name of the package
   * @param types the types
   * @return the files that were written
   * @throws IOException if a file cannot be written
   * @throws IllegalArgumentException if the name of the package is invalid, or two types would have one class
   */
  public static List<Path> write(Path folder, String packageName, List<ObjectType> types) throws IOException {
    if (!packageName.matches("[A-Za-z_]\\w*(\\.[A-Za-z_]\\w*)*") || KEYWORDS.stream().anyMatch(List.of(packageName.split("\\."))::contains)) {
      throw new IllegalArgumentException("`" + packageName + "` is not the name of a package");
    }
    Map<String, String> classes = new LinkedHashMap<>();
    for (ObjectType type : types) {
      String name = className(type.key());
      if (classes.containsValue(name) && !name.equals(classes.get(type.key()))) {
        throw new IllegalArgumentException("the accessors of two types would have the name " + name + "; write them to two packages");
      }
      classes.put(type.key(), name);
    }
    Accessors accessors = new Accessors(packageName, classes);
    Path target = Files.createDirectories(folder.resolve(packageName.replace('.', '/')));
    List<Path> written = new ArrayList<>();
    for (String key : classes.keySet()) {
      written.add(Files.writeString(target.resolve(classes.get(key) + ".java"), accessors.source(ObjectType.of(key))));
    }
    return written;
  }

  /**
   * Writes accessors; see the description of this class.
   *
   * @param args the options and the type keys
   * @throws IOException if a file cannot be written
   */
  public static void main(String[] args) throws IOException {
    Path folder = Path.of(".");
    String packageName = null;
    List<Module> libraries = new ArrayList<>();
    List<String> keys = new ArrayList<>();
    for (int at = 0; at < args.length; at++) {
      String option = args[at];
      if (!option.startsWith("-")) {
        keys.add(option);
        continue;
      }
      if (++at == args.length) {
        throw usage(option + " has no value");
      }
      switch (option) {
        case "-d" -> folder = Path.of(args[at]);
        case "-p" -> packageName = args[at];
        case "-l" -> libraries.add(Module.load(args[at]));
        default -> throw usage("unknown option " + option);
      }
    }
    if (packageName == null || keys.isEmpty()) {
      throw usage("a package (-p) and type keys are needed");
    }
    for (Path file : write(folder, packageName, keys.stream().map(ObjectType::of).toList())) {
      System.out.println(file);
    }
    libraries.forEach(Module::close);
  }

  private static IllegalArgumentException usage(String reason) {
    return new IllegalArgumentException(reason + "; usage: org.anyfn.Accessors [-d FOLDER] -p PACKAGE [-l LIBRARY].. TYPE_KEY..");
  }

  private static String className(String key) {
    String last = key.substring(key.lastIndexOf('.') + 1);
    String name = identifier(last.substring(0, 1).toUpperCase(java.util.Locale.ROOT) + last.substring(1));
    return USED.contains(name) ? name + "_" : name;
  }

  /** Returns a name with which Java can say another one. */
  private static String identifier(String name) {
    StringBuilder text = new StringBuilder();
    name.codePoints().forEach(c -> text.appendCodePoint(Character.isJavaIdentifierPart(c) && !Character.isIdentifierIgnorable(c) ? c : '_'));
    if (!Character.isJavaIdentifierStart(text.codePointAt(0))) {
      text.insert(0, '_');
    }
    return KEYWORDS.contains(text.toString()) || TAKEN.contains(text.toString()) ? text.append('_').toString() : text.toString();
  }

  /** A type of Java: its name, and the expressions that convert a value of class {@code Object} to it. */
  private record Shown(String name, String boxed, String read) {
    static Shown of(String name) {
      return new Shown(name, name, "(" + name + ") %s");
    }

    boolean isPrimitive() {
      return !name.equals(boxed);
    }
  }

  /** Returns the Java type of a schema. */
  private Shown shown(Object schema) {
    Map<?, ?> told = schema instanceof Map<?, ?> map ? map : Map.of();
    String type = told.get("type") instanceof String name ? name : "Any";
    List<?> args = told.get("args") instanceof List<?> list ? list : List.of();
    return switch (type) {
      case "int" -> new Shown("long", "Long", "(Long) %s");
      case "float" -> new Shown("double", "Double", "(Double) %s");
      case "bool" -> new Shown("boolean", "Boolean", "(Boolean) %s");
      case "str", "ffi.String" -> Shown.of("String");
      case "bytes", "ffi.Bytes" -> Shown.of("byte[]");
      case "Device" -> Shown.of("org.anyfn.Device");
      case "DataType" -> Shown.of("org.anyfn.DType");
      case "Callable", "ffi.Function" -> Shown.of("org.anyfn.PackedFunc");
      case "ffi.Tensor" -> Shown.of("org.anyfn.Tensor");
      case "ffi.Shape" -> Shown.of("org.anyfn.Shape");
      case "ffi.Module" -> Shown.of("org.anyfn.Module");
      case "list", "ffi.Array", "ffi.List" -> Shown.of("List<?>");
      case "dict", "ffi.Map", "ffi.Dict" -> Shown.of("Map<?, ?>");
      case "Optional" -> args.isEmpty() ? Shown.of("Object") : optional(shown(args.get(0)));
      default -> ofObject(type);
    };
  }

  private static Shown optional(Shown inner) {
    if (inner.read.startsWith("new ")) {
      // A null stays one.
      return new Shown(inner.name, inner.name, "%s instanceof ObjectRef found ? " + inner.read.replace("(ObjectRef) %s", "found") + " : null");
    }
    return new Shown(inner.boxed, inner.boxed, inner.read);
  }

  private Shown ofObject(String key) {
    String known = classes.get(key);
    if (known != null) {
      return new Shown(known, known, "new " + known + "((ObjectRef) %s)");
    }
    int index = Native.typeIndex(Value.utf8(key));
    boolean isPlain = index > Value.BIG_INT && Native.typePart(index, 0) >= 0;
    return isPlain ? Shown.of("ObjectRef") : Shown.of("Object");
  }

  /** Returns a text as it stands in a comment. */
  private static String doc(String text) {
    return text.strip().replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "&#64;").replace("*/", "*&#47;").replace("\\", "&#92;")
        .replaceAll("\\s+", " ");
  }

  private static String quoted(String name) {
    return '"' + name.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
  }

  private static void comment(StringBuilder out, String... lines) {
    out.append("  /**\n");
    for (String line : lines) {
      out.append("   *").append(line.isEmpty() ? "" : " ").append(line).append('\n');
    }
    out.append("   */\n");
  }

  private String source(ObjectType type) {
    String name = classes.get(type.key());
    StringBuilder members = new StringBuilder();
    List<ObjectType.Field> fields = List.copyOf(type.fields());
    Map<ObjectType.Field, String> said = names(fields);
    if (type.canMake()) {
      make(members, type.key(), fields, said);
    }
    for (ObjectType.Field field : fields) {
      accessor(members, field, said.get(field));
    }
    Set<String> used = new java.util.HashSet<>(said.values());
    for (ObjectType.MethodName method : type.methodNames()) {
      // Those that begin with underscores are called by the runtime.
      String methodName = identifier(method.name());
      if (!method.name().startsWith("_") && used.add(methodName)) {
        method(members, method, methodName);
      }
    }
    StringBuilder out = new StringBuilder();
    out.append("// Written by org.anyfn.Accessors. Changes are lost.\n\npackage ").append(packageName).append(";\n\n");
    for (String imported : new String[] {"java.util.LinkedHashMap", "java.util.List", "java.util.Map"}) {
      if (members.toString().matches("(?s).*\\b" + imported.substring(10) + "\\b.*")) {
        out.append("import ").append(imported).append(";\n");
      }
    }
    out.append("import org.anyfn.ObjectRef;\n").append(type.canMake() ? "import org.anyfn.ObjectType;\n" : "").append("import org.anyfn.ObjectView;\n\n");
    out.append("/**\n * Accessor of an object of the type {@code ").append(type.key()).append("}.\n");
    if (!type.doc().isBlank()) {
      out.append(" *\n * <p>").append(doc(type.doc())).append('\n');
    }
    out.append(" *\n * @param object the native object\n */\n");
    out.append("public record ").append(name).append("(ObjectRef object) implements ObjectView {\n");
    out.append("  /** The key of the type. */\n  public static final String TYPE_KEY = ").append(quoted(type.key())).append(";\n\n");
    comment(out, "Makes an accessor.", "", "@param object the native object", "@throws org.anyfn.AnyfnException.TypeError if it is of another type");
    out.append("  public ").append(name).append(" {\n    ObjectView.check(object, TYPE_KEY);\n  }\n");
    return out.append(members).append("}\n").toString();
  }

  /** Returns a name of Java for each field. Fields whose names differ only in what Java does not permit get further underscores. */
  private static Map<ObjectType.Field, String> names(List<ObjectType.Field> fields) {
    Map<ObjectType.Field, String> names = new LinkedHashMap<>();
    // Those that keep their names come first.
    for (boolean isKept : new boolean[] {true, false}) {
      for (ObjectType.Field field : fields) {
        String said = identifier(field.name());
        if (said.equals(field.name()) == isKept) {
          while (names.containsValue(said) || USED.contains(said)) {
            said += "_";
          }
          names.put(field, said);
        }
      }
    }
    return names;
  }

  private static String docOf(ObjectType.Field field) {
    return field.doc().isBlank() ? "the field {@code " + field.name() + "}" : doc(field.doc());
  }

  private void make(StringBuilder out, String key, List<ObjectType.Field> fields, Map<ObjectType.Field, String> names) {
    String name = classes.get(key);
    String values = "values";
    while (names.containsValue(values)) {
      values += "_";
    }
    List<String> comment = new ArrayList<>(List.of("Makes an object.", ""));
    List<String> parameters = new ArrayList<>();
    StringBuilder puts = new StringBuilder();
    for (ObjectType.Field field : fields) {
      String said = names.get(field);
      comment.add("@param " + said + " " + docOf(field));
      parameters.add(shown(Json.parse(field.schema())).name + " " + said);
      puts.append("    ").append(values).append(".put(").append(quoted(field.name())).append(", ").append(said).append(");\n");
    }
    comment.add("@return the accessor of a new object");
    out.append('\n');
    comment(out, comment.toArray(String[]::new));
    out.append("  public static ").append(name).append(" of(").append(String.join(", ", parameters)).append(") {\n");
    out.append("    Map<String, Object> ").append(values).append(" = new LinkedHashMap<>();\n").append(puts);
    out.append("    return new ").append(name).append("(ObjectType.of(").append(quoted(key)).append(").newInstance(").append(values).append("));\n  }\n");
  }

  private void accessor(StringBuilder out, ObjectType.Field field, String said) {
    Shown shown = shown(Json.parse(field.schema()));
    String value = "object.field(" + quoted(field.name()) + ")";
    out.append('\n');
    String orNull = shown.isPrimitive() || !field.schema().contains("Optional") ? "" : ", or null";
    comment(out, "Returns the field {@code " + field.name() + "}.", "", "@return " + docOf(field) + orNull);
    out.append("  public ").append(shown.name).append(' ').append(said).append("() {\n    return ").append(shown.name.equals("Object") ? value : String.format(shown.read, value)).append(";\n  }\n");
    if (field.isWritable()) {
      out.append('\n');
      comment(out, "Sets the field {@code " + field.name() + "}.", "", "@param value " + docOf(field) + orNull);
      out.append("  public void ").append(said).append('(').append(shown.name).append(" value) {\n    object.setField(").append(quoted(field.name())).append(", value);\n  }\n");
    }
  }

  private void method(StringBuilder out, ObjectType.MethodName method, String said) {
    out.append('\n');
    comment(out, "Calls the method {@code " + method.name() + "}.", "", "@param args the arguments" + (method.isStatic() ? "" : " after the object"), "@return the result");
    out.append("  public Object ").append(said).append("(Object... args) {\n    return object.call(").append(quoted(method.name())).append(", args);\n  }\n");
  }
}
