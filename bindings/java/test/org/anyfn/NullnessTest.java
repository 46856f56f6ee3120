package org.anyfn;

import static org.anyfn.Runner.check;
import static org.anyfn.Runner.equal;
import static org.anyfn.Runner.fails;

import java.lang.annotation.Annotation;
import java.lang.reflect.AnnotatedArrayType;
import java.lang.reflect.AnnotatedType;
import java.lang.reflect.Constructor;
import java.lang.reflect.Executable;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Set;
import java.util.TreeSet;
import java.util.jar.JarFile;
import java.util.stream.Stream;

/**
 * The annotations from which Kotlin and checkers learn what may be null. At run time they are not there, so the test loads the classes of
 * the package again, together with them.
 */
final class NullnessTest {
  /** Public methods that return null in some cases. All others never do. */
  private static final Set<String> MAY_RETURN_NULL =
      Set.of(
          "PackedFunc.invoke", "Function.invoke", "Function.invokeNamed", "Function.convert", "Function.signature", "ObjectRef.field",
          "ObjectRef.call", "ObjectType.attribute", "ObjectType.parent", "Graph.fromJson", "ListRef.set", "ListRef.remove", "DictRef.put",
          "DictRef.remove");
  /** Public methods of which a parameter may be null. Of the constructors, the causes of exceptions may. */
  private static final Set<String> MAY_TAKE_NULL =
      Set.of(
          "Function.convert", "ObjectRef.setField", "ObjectRef.isSame", "ObjectRef.equals", "NativeObject.isSame", "ObjectType.define",
          "Graph.isEqual", "Graph.hash", "Graph.toJson", "ListRef.set", "ListRef.add", "DictRef.put", "DictRef.remove", "Shape.equals",
          "DType.equals", "Session.connect");

  private NullnessTest() {}

  private static boolean isNullable(AnnotatedType type) {
    for (Annotation annotation : type.getAnnotations()) {
      if (annotation.annotationType().getName().equals("org.jspecify.annotations.Nullable")) {
        return true;
      }
    }
    return false;
  }

  private static boolean isPublic(Executable member) {
    return Modifier.isPublic(member.getModifiers()) && !member.isSynthetic();
  }

  @Test
  static void annotations() throws Exception {
    Path annotations = Path.of(System.getenv("ANYFN_ANNOTATIONS"));
    Path classes = Path.of(Function.class.getProtectionDomain().getCodeSource().getLocation().toURI());
    URL[] path = {annotations.toUri().toURL(), classes.toUri().toURL()};
    Set<String> returned = new TreeSet<>();
    Set<String> taken = new TreeSet<>();
    Set<String> elements = new TreeSet<>();
    try (URLClassLoader loader = new URLClassLoader(path, null); Stream<Path> files = Files.list(classes.resolve("org/anyfn"))) {
      int causes = 0;
      boolean isMarked = false;
      for (Annotation annotation : Class.forName("org.anyfn.package-info", false, loader).getAnnotations()) {
        isMarked |= annotation.annotationType().getName().equals("org.jspecify.annotations.NullMarked");
      }
      check(isMarked, "the package is marked");
      for (Path file : files.filter(one -> one.toString().endsWith(".class")).toList()) {
        String name = file.getFileName().toString().replace(".class", "");
        Class<?> type = Class.forName("org.anyfn." + name, false, loader);
        if (!Modifier.isPublic(type.getModifiers()) || name.equals("package-info")) {
          continue;
        }
        for (Constructor<?> constructor : type.getDeclaredConstructors()) {
          for (int at = 0; isPublic(constructor) && at < constructor.getParameterCount(); at++) {
            boolean isCause = constructor.getParameterTypes()[at] == Throwable.class;
            equal(isNullable(constructor.getAnnotatedParameterTypes()[at]), isCause);
            causes += isCause ? 1 : 0;
          }
        }
        for (Method method : type.getDeclaredMethods()) {
          if (isPublic(method)) {
            String said = name + "." + method.getName();
            if (isNullable(method.getAnnotatedReturnType())) {
              returned.add(said);
            }
            for (AnnotatedType parameter : method.getAnnotatedParameterTypes()) {
              if (isNullable(parameter)) {
                taken.add(said);
              }
              if (parameter instanceof AnnotatedArrayType array && isNullable(array.getAnnotatedGenericComponentType())) {
                elements.add(said);
              }
            }
          }
        }
      }
      check(causes > 10, "the classes of exceptions have causes");
      check(isNullable(loader.loadClass("org.anyfn.Tensor").getMethod("strides").getAnnotatedReturnType()), "an array may be null");
    }
    returned.remove("Tensor.strides");
    equal(returned, new TreeSet<>(MAY_RETURN_NULL));
    equal(taken, new TreeSet<>(MAY_TAKE_NULL));
    equal(
        elements,
        new TreeSet<>(Set.of("PackedFunc.invoke", "Function.invoke", "Function.invokeNamed", "Function.invokeAsync", "ObjectRef.call", "ArrayRef.of", "ListRef.of")));
  }

  /** What the annotations say holds. */
  @Test
  static void nulls() {
    Function echo = Function.of(args -> args.length == 0 ? null : args[0]);
    equal(echo.invoke((Object) null), null);
    equal(echo.invoke(), null);
    equal(echo.signature(), null);
    equal(ListRef.of((Object) null).get(0), null);
    equal(Function.convert(null), null);
    equal(ObjectType.of("ffi.Object").parent(), null);
    equal(ObjectType.of("ffi.Function").attribute("no_such_attribute"), null);
    fails(NullPointerException.class, () -> Function.get(null));
    fails(NullPointerException.class, () -> Function.of(null));
    fails(NullPointerException.class, () -> ListRef.copyOf(null));
  }

  @Test
  static void annotationsAreNotInTheJar() throws Exception {
    try (JarFile jar = new JarFile(System.getenv("ANYFN_JAR"))) {
      check(jar.stream().noneMatch(entry -> entry.getName().startsWith("org/jspecify")), "programs may have another version of it");
    }
    fails(ClassNotFoundException.class, () -> Class.forName("org.jspecify.annotations.Nullable"));
  }
}
