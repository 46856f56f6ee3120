package org.anyfn;

import static org.anyfn.Runner.check;
import static org.anyfn.Runner.equal;
import static org.anyfn.Runner.fails;

import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import java.util.List;
import java.util.Map;

/** Objects, their fields and types; types that records define; modules of functions. */
final class ObjectsTest {
  record Point(long x, double y, String name) {}

  record Line(Point from, Point to, List<Object> tags) {}

  record Named(long x, double y, String name, boolean isVisible) {}

  private ObjectsTest() {}

  @Test
  static void objectsOfRust() {
    ObjectRef point = (ObjectRef) Samples.get("make_point").invoke(1, 2);
    equal(point.typeKey(), "testing.Point");
    equal(((Number) point.field("x")).doubleValue(), 1.0);
    check(point.type().fieldNames().containsAll(List.of("x", "y")), "fields " + point.type().fieldNames());
    AnyfnException missing = fails(AnyfnException.AttributeError.class, () -> point.field("z"));
    check(missing.getMessage().contains("has no field 'z'"), missing.getMessage());
    ObjectRef same = (ObjectRef) Samples.get("echo").invoke(point);
    check(same != point && same.equals(point) && same.hashCode() == point.hashCode(), "the same native object");
    check(point.toString().startsWith("testing.Point("), point.toString());
  }

  @Test
  static void typesOfRecords() {
    ObjectType type = ObjectType.define("java.test.Point", Point.class);
    equal(type.fieldNames(), List.of("x", "y", "name"));
    ObjectRef object = (ObjectRef) Samples.get("echo").invoke(new Point(1, 2.5, "p"));
    equal(object.typeKey(), "java.test.Point");
    equal(object.toRecord(Point.class), new Point(1, 2.5, "p"));
    object.setField("x", 7);
    equal(object.field("x"), 7L);
    fails(AnyfnException.TypeError.class, () -> object.setField("x", "text"));
    fails(AnyfnException.TypeError.class, () -> object.setField("name", 5));
    String none = fails(AnyfnException.TypeError.class, () -> Samples.get("echo").invoke(new Point(1, 2.5, null))).getMessage();
    check(none.contains("field 'name'") && none.contains("expected str but got None"), none);
    ObjectType.define("java.test.Line", Line.class);
    Line line = new Line(new Point(1, 1, "a"), new Point(2, 2, "b"), List.of("t", 3L));
    ObjectRef made = (ObjectRef) Samples.get("echo").invoke(line);
    equal(((ObjectRef) made.field("to")).field("name"), "b");
    equal(made.toRecord(Line.class), line);
    // Defining the same type again is allowed, another one is not.
    ObjectType.define("java.test.Point", Point.class);
    fails(AnyfnException.class, () -> ObjectType.define("java.test.Point", Line.class));
    ObjectType derived = ObjectType.define("java.test.Named", Named.class, type);
    check(type.isAssignableFrom(derived) && !derived.isAssignableFrom(type), "it derives");
    ObjectRef named = (ObjectRef) Samples.get("echo").invoke(new Named(1, 2, "n", true));
    equal(named.toRecord(Named.class), new Named(1, 2, "n", true));
    equal(derived.parent(), type);
  }

  @Test
  static void typesOfFields() {
    ObjectType type = ObjectType.define("java.test.Sum", Map.of("left", "Any", "right", "Any"), null);
    ObjectRef sum = type.newInstance(Map.of("left", 1, "right", List.of(2)));
    equal(sum.field("right"), List.of(2L));
    fails(AnyfnException.class, () -> type.newInstance(Map.of("left", 1)));
    type.addMethod("total", args -> (Long) ((ObjectRef) args[0]).field("left") + args.length);
    equal(sum.call("total"), 2L);
    equal(sum.call("total", 0, 0), 4L);
    fails(AnyfnException.AttributeError.class, () -> sum.call("unknown"));
  }

  @Test
  static void graphs() {
    ObjectType type = ObjectType.define("java.test.Node", Map.of("value", "Any"), null);
    ObjectRef a = type.newInstance(Map.of("value", List.of(1, "x")));
    ObjectRef b = type.newInstance(Map.of("value", List.of(1, "x")));
    check(!a.equals(b) && Graph.isEqual(a, b), "equal, but not the same");
    equal(Graph.hash(a), Graph.hash(b));
    ObjectRef copy = (ObjectRef) Graph.fromJson(Graph.toJson(a));
    check(Graph.isEqual(a, copy), "equal after saving");
    fails(AnyfnException.class, () -> Graph.fromJson("{"));
  }

  @Test
  static void modulesOfJava() {
    Module module = Module.of(Map.of("twice", args -> 2 * (Long) args[0]));
    equal(module.getFunction("twice").invoke(21), 42L);
    equal(module.functionNames(), List.of("twice"));
    equal(module.kind(), "java");
    AnyfnException error = fails(AnyfnException.AttributeError.class, () -> module.getFunction("thrice"));
    check(error.getMessage().contains("it has twice"), error.getMessage());
    Module importing = Module.of(Map.of("none", args -> null));
    importing.importModule(module);
    equal(importing.imports().size(), 1);
    equal(importing.findFunction("twice", true).orElseThrow().invoke(1), 2L);
    check(importing.findFunction("twice", false).isEmpty(), "it is not its own");
  }

  @Test
  static void modulesThatAreSaved() throws Exception {
    Module.registerLoader("java_scaler", ObjectsTest::scaler);
    Module module = scaler(new byte[] {3});
    equal(module.getFunction("scale").invoke(7), 21L);
    byte[] saved = (byte[]) Globals.call("ffi.ModuleSaveToBytes", module);
    check(saved.length >= 1, "it has content");
    Module loaded = (Module) Function.get("ffi.Module.load_from_bytes.java_scaler").invoke((Object) saved);
    equal(loaded.getFunction("scale").invoke(7), 21L);
  }

  private static Module scaler(byte[] content) {
    PackedFunc scale = args -> content[content.length - 1] * (Long) args[0];
    return Module.of("java_scaler", Map.of("get_function", args -> args[0].equals("scale") ? scale : null, "save_to_bytes", args -> content));
  }

  @Test
  static void librariesThatCannotBeLoaded() {
    AnyfnException error = fails(AnyfnException.class, () -> Module.load("no/such/library.so"));
    check(error.getMessage().contains("no/such/library.so"), error.getMessage());
  }

  record Cycle(List<Object> content) {}

  record Path(List<Spot> spots, Map<String, Spot> named) {}

  record Spot(long x, @Nullable String label) {}

  /** An annotation of any package with this name counts. */
  @Retention(RetentionPolicy.RUNTIME)
  @Target(ElementType.TYPE_USE)
  @interface Nullable {}

  @Test
  static void recordsThatContainThemselves() {
    ObjectType.define("java.test.Cycle", Cycle.class);
    List<Object> content = new java.util.ArrayList<>();
    content.add(new Cycle(content));
    String message = fails(IllegalArgumentException.class, () -> Samples.get("echo").invoke(content.get(0))).getMessage();
    check(message.contains("contains itself"), message);
  }

  @Test
  static void recordsInContainers() {
    ObjectType.define("java.test.Spot", Spot.class);
    ObjectType.define("java.test.Path", Path.class);
    Path path = new Path(List.of(new Spot(1, "a"), new Spot(2, null)), Map.of("b", new Spot(3, "b")));
    ObjectRef object = (ObjectRef) Samples.get("echo").invoke(path);
    Path back = object.toRecord(Path.class);
    equal(back.spots().get(0).x(), 1L);
    equal(back, path);
    ObjectRef spot = (ObjectRef) ((List<?>) object.field("spots")).get(0);
    fails(AnyfnException.TypeError.class, () -> spot.setField("label", 5));
    spot.setField("label", null);
    equal(spot.toRecord(Spot.class), new Spot(1, null));
    object.setField("spots", List.of("no spot"));
    fails(AnyfnException.TypeError.class, () -> object.toRecord(Path.class));
  }

  @Test
  static void methodsThatAreReplaced() {
    ObjectType base = ObjectType.define("java.test.Base", Map.of("v", "int"), null);
    ObjectType derived = ObjectType.define("java.test.Derived", Map.of("w", "int"), base);
    base.addMethod("name", args -> "first");
    ObjectRef object = derived.newInstance(Map.of("v", 1, "w", 2));
    equal(object.call("name"), "first");
    base.addMethod("name", args -> "second");
    equal(object.call("name"), "second");
    // As another language does.
    Function third = Function.of(args -> args.length);
    Native.addMethod(derived.newInstance(Map.of("v", 1, "w", 2)).typeIndex, Value.utf8("name"), third.enter(), true);
    third.handle.leave();
    equal(object.call("name", 1, 2), 2L);
  }
}
