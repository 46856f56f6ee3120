package org.anyfn;

import java.lang.annotation.Annotation;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.RecordComponent;
import java.lang.reflect.Type;
import java.lang.reflect.TypeVariable;
import java.lang.reflect.WildcardType;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.jspecify.annotations.Nullable;

/** A type of native objects: its key, its fields and its methods. Types of all languages exist for the lifetime of the process. */
public final class ObjectType {
  private static final Map<Integer, ObjectType> TYPES = new ConcurrentHashMap<>();
  private static final ClassValue<RecordType[]> RECORDS =
      new ClassValue<>() {
        @Override
        protected RecordType[] computeValue(Class<?> type) {
          return new RecordType[1];
        }
      };

  /** A record class that defines a type. */
  private record RecordType(ObjectType type, RecordComponent[] components) {}

  /** The place of a field: the type that defines it, and its position there. */
  record Field(String name, String doc, int typeIndex, int position, boolean isWritable) {
    /** Returns the type of the field as JSON. */
    String schema() {
      return Value.text(Native.fieldText(typeIndex, position, 2));
    }
  }

  /** The name of a method, and whether it is called without an object. */
  record MethodName(String name, boolean isStatic) {}

  /** A method, which is valid as long as the type and those above have this number of methods. */
  private record Method(Function function, boolean isStatic, int count) {}

  private final int index;
  private final String key;
  private final ObjectType parent;
  private final Map<String, Field> fields;
  private final Map<String, Method> methods = new ConcurrentHashMap<>();

  private ObjectType(int index) {
    this.index = index;
    key = Value.text(Native.typeKey(index));
    int above = Native.typePart(index, 0);
    parent = above < 0 ? null : ofIndex(above);
    fields = new LinkedHashMap<>(parent == null ? Map.of() : parent.fields);
    for (int position = 0; position < Native.typePart(index, 1); position++) {
      String name = Value.text(Native.fieldText(index, position, 0));
      String doc = Value.text(Native.fieldText(index, position, 1));
      fields.put(name, new Field(name, doc, index, position, Native.isWritable(index, position)));
    }
  }

  /** Returns the type with an index. */
  static ObjectType ofIndex(int index) {
    ObjectType type = TYPES.get(index);
    if (type == null) {
      type = new ObjectType(index);
      TYPES.put(index, type);
    }
    return type;
  }

  /**
   * Returns the type with a key.
   *
   * @param key the type key
   * @return the type
   * @throws AnyfnException.TypeError if there is none
   */
  public static ObjectType of(String key) {
    int index = Native.typeIndex(Value.utf8(key));
    if (index < 0) {
      throw new AnyfnException.TypeError("unknown type '" + key + "'");
    }
    return ofIndex(index);
  }

  /**
   * Defines a type whose fields are the components of a record. Records of the class are then passed as objects of the type, and {@link
   * ObjectRef#toRecord} converts an object to a record.
   *
   * @param key the type key, by which all languages know the type
   * @param record the class of the record. {@code long} and {@code int} become int, {@code double} and {@code float} float,
   *     {@code boolean} bool and {@code String} str. A {@code String} with an annotation named {@code Nullable}, such as that of JSpecify, may
   *     be null. Fields of records of defined types have that type. Fields of other classes take any value, and may be null; {@link
   *     ObjectRef#toRecord} checks the class
   * @return the type
   * @throws AnyfnException.TypeError if another type has the key
   */
  public static ObjectType define(String key, Class<? extends Record> record) {
    return define(key, record, null);
  }

  /**
   * Defines a type that derives from another one.
   *
   * @param key the type key
   * @param record the class of the record, whose first components are the fields of the parent
   * @param parent the parent, or null
   * @return the type
   * @throws AnyfnException.TypeError if another type has the key, or the components do not begin with the fields of the parent
   */
  public static ObjectType define(String key, Class<? extends Record> record, @Nullable ObjectType parent) {
    RecordComponent[] components = record.getRecordComponents();
    int inherited = parent == null ? 0 : parent.fields.size();
    List<String> above = parent == null ? List.of() : List.copyOf(parent.fields.keySet());
    Map<String, String> own = new LinkedHashMap<>();
    for (int at = 0; at < Math.max(components.length, inherited); at++) {
      if (at < inherited) {
        if (at >= components.length || !components[at].getName().equals(above.get(at))) {
          throw new AnyfnException.TypeError("the record must begin with the fields of " + parent.key + ": " + String.join(", ", above));
        }
      } else {
        own.put(components[at].getName(), schemaOf(key, record, components[at]));
      }
    }
    ObjectType type = define(key, own, parent);
    RECORDS.get(record)[0] = new RecordType(type, components);
    return type;
  }

  private static String schemaOf(String key, Class<?> record, RecordComponent component) {
    Class<?> type = component.getType();
    if (type == String.class) {
      return isNullable(component) ? "{\"type\":\"Optional\",\"args\":[{\"type\":\"str\"}]}" : "str";
    }
    if (type == long.class || type == int.class || type == short.class || type == byte.class) {
      return "int";
    }
    if (type == double.class || type == float.class) {
      return "float";
    }
    if (type == boolean.class) {
      return "bool";
    }
    if (type == record) {
      return "Any";
    }
    RecordType known = type.isRecord() ? RECORDS.get(type)[0] : null;
    return known != null ? known.type.key : "Any";
  }

  /** Returns true if a component has an annotation named {@code Nullable}, of any package, that the VM keeps. */
  private static boolean isNullable(RecordComponent component) {
    return hasNullable(component.getAnnotations()) || hasNullable(component.getAnnotatedType().getAnnotations());
  }

  private static boolean hasNullable(Annotation[] annotations) {
    for (Annotation annotation : annotations) {
      if (annotation.annotationType().getSimpleName().equals("Nullable")) {
        return true;
      }
    }
    return false;
  }

  /**
   * Defines a type by its fields.
   *
   * @param key the type key
   * @param fields the fields and their types: {@code int}, {@code float}, {@code bool}, {@code str}, {@code Any} or a type key
   * @param parent the type from which it derives, or null
   * @return the type
   * @throws AnyfnException.TypeError if another type has the key
   */
  public static ObjectType define(String key, Map<String, String> fields, @Nullable ObjectType parent) {
    List<Object> told = new ArrayList<>();
    fields.forEach((name, type) -> told.add(Map.of("name", name, "type", type, "flags", 1)));
    // Structural equality compares the fields.
    Object index = Globals.call("ffi.TypeDefine", key, parent == null ? null : parent.index, told, Map.of("structural", 1));
    return ofIndex(Math.toIntExact((Long) index));
  }

  /** Converts a record to an object, and returns a reference of it. */
  static long construct(Record record, int depth) {
    Frame.checkDepth(depth);
    RecordType known = RECORDS.get(record.getClass())[0];
    if (known == null) {
      throw new IllegalArgumentException(
          "a record of class " + record.getClass().getName() + " cannot be converted to a native value: define its type with `ObjectType.define`");
    }
    Object[] args = new Object[1 + 2 * known.components.length];
    args[0] = known.type.key;
    int index = 1;
    for (RecordComponent component : known.components) {
      args[index++] = component.getName();
      args[index++] = read(record, component);
    }
    return Frame.callNested("ffi.MakeObjectFromPackedArgs", args, depth + 1);
  }

  private static Object read(Record record, RecordComponent component) {
    try {
      component.getAccessor().setAccessible(true);
      return component.getAccessor().invoke(record);
    } catch (InvocationTargetException error) {
      throw Errors.<RuntimeException>sneaky(error.getCause());
    } catch (ReflectiveOperationException | RuntimeException error) {
      throw new IllegalArgumentException(
          "cannot read the record " + record.getClass().getName() + "; its module must open its package to org.anyfn", error);
    }
  }

  /** Converts an object to a record. */
  static <R extends Record> R toRecord(ObjectRef object, Class<R> record) {
    RecordComponent[] components = record.getRecordComponents();
    Class<?>[] types = new Class<?>[components.length];
    Object[] values = new Object[components.length];
    for (int at = 0; at < components.length; at++) {
      types[at] = components[at].getType();
      values[at] = toComponent(object.field(components[at].getName()), components[at].getGenericType(), components[at].getName());
    }
    try {
      Constructor<R> constructor = record.getDeclaredConstructor(types);
      constructor.setAccessible(true);
      return constructor.newInstance(values);
    } catch (InvocationTargetException error) {
      throw Errors.<RuntimeException>sneaky(error.getCause());
    } catch (ReflectiveOperationException | RuntimeException error) {
      throw new IllegalArgumentException("cannot make the record " + record.getName() + "; its module must open its package to org.anyfn", error);
    }
  }

  /** Converts the value of a field, or an element of it, to the type of a component. */
  private static Object toComponent(Object value, Type generic, String name) {
    if (!(generic instanceof Class<?> type)) {
      return toGeneric(value, generic, name);
    }
    if (type.isRecord() && value instanceof ObjectRef inner) {
      @SuppressWarnings("unchecked")
      Class<? extends Record> innerType = (Class<? extends Record>) type;
      return inner.toRecord(innerType);
    }
    if (value instanceof Long number && (type == short.class || type == byte.class)) {
      long narrow = type == short.class ? number.shortValue() : number.byteValue();
      if (narrow != number) {
        throw new ArithmeticException("the field '" + name + "' is " + number + ", which does not fit in " + type);
      }
      return type == short.class ? (Object) number.shortValue() : (Object) number.byteValue();
    }
    try {
      return TypedView.cast(value, type);
    } catch (AnyfnException.TypeError error) {
      throw new AnyfnException.TypeError("the field '" + name + "' cannot be converted to " + type.getName());
    }
  }

  private static Object toGeneric(Object value, Type generic, String name) {
    if (generic instanceof WildcardType wildcard) {
      return toComponent(value, wildcard.getUpperBounds()[0], name);
    }
    if (!(generic instanceof ParameterizedType parameterized)) {
      // A type variable: the class of the record does not say what it is.
      return value;
    }
    Type[] types = parameterized.getActualTypeArguments();
    Class<?> type = (Class<?>) parameterized.getRawType();
    if (value instanceof List<?> list && types.length == 1 && type.isAssignableFrom(List.class) && isConverted(types[0])) {
      List<Object> elements = new ArrayList<>(list.size());
      for (Object element : list) {
        elements.add(toComponent(element, types[0], name));
      }
      return Collections.unmodifiableList(elements);
    }
    if (value instanceof Map<?, ?> map && types.length == 2 && type.isAssignableFrom(Map.class) && (isConverted(types[0]) || isConverted(types[1]))) {
      Map<Object, Object> entries = new LinkedHashMap<>();
      map.forEach((key, element) -> entries.put(toComponent(key, types[0], name), toComponent(element, types[1], name)));
      return Collections.unmodifiableMap(entries);
    }
    return toComponent(value, type, name);
  }

  /** Returns false if elements of all classes are elements of a type, so that a container can be used as it is. */
  private static boolean isConverted(Type type) {
    return !(type == Object.class || type instanceof TypeVariable<?> || type instanceof WildcardType wildcard && wildcard.getUpperBounds()[0] == Object.class);
  }

  /**
   * Makes an object.
   *
   * @param values the values of the fields by name; fields with defaults may be left out
   * @return the object
   * @throws AnyfnException if a field is missing or has the wrong type
   */
  public ObjectRef newInstance(Map<String, ? extends @Nullable Object> values) {
    List<Object> args = new ArrayList<>();
    args.add(key);
    values.forEach(
        (name, value) -> {
          args.add(name);
          args.add(value);
        });
    return (ObjectRef) Globals.call("ffi.MakeObjectFromPackedArgs", args.toArray());
  }

  /**
   * Adds a method to the type, for all languages.
   *
   * @param name the name
   * @param function the function; its first argument is the object
   */
  public void addMethod(String name, PackedFunc function) {
    Function made = Function.of(function);
    long object = made.enter();
    try {
      Native.addMethod(index, Value.utf8(name), object, false);
    } finally {
      made.handle.leave();
    }
  }

  /**
   * Returns a method of the type or of one from which it derives.
   *
   * @param name the name
   * @return the function, whose first argument is the object unless the method is static
   * @throws AnyfnException.AttributeError if there is none
   */
  public Function method(String name) {
    return lookUp(name).function;
  }

  /** Calls a method of an object of this type. */
  Object call(ObjectRef object, String name, Object[] args) {
    Method method = lookUp(name);
    if (method.isStatic) {
      return method.function.invoke(args);
    }
    Object[] all = new Object[args.length + 1];
    all[0] = object;
    System.arraycopy(args, 0, all, 1, args.length);
    return method.function.invoke(all);
  }

  private Method lookUp(String name) {
    // Methods are never removed: a method that is replaced is followed by another one of the same name.
    int count = 0;
    for (ObjectType type = this; type != null; type = type.parent) {
      count += Native.typePart(type.index, 2);
    }
    Method known = methods.get(name);
    if (known == null || known.count != count || known.function.isClosed()) {
      known = findMethod(name, count);
      methods.put(name, known);
    }
    return known;
  }

  private Method findMethod(String name, int count) {
    for (ObjectType type = this; type != null; type = type.parent) {
      for (int position = Native.typePart(type.index, 2) - 1; position >= 0; position--) {
        if (Value.text(Native.methodName(type.index, position)).equals(name)) {
          return new Method(new Function(Native.methodFunction(type.index, position)), Native.isStatic(type.index, position), count);
        }
      }
    }
    throw new AnyfnException.AttributeError("the type " + key + " has no method '" + name + "'");
  }

  /** Returns the fields, those of the parent first. */
  java.util.Collection<Field> fields() {
    return fields.values();
  }

  /** Returns the methods by which the type and those above are called, without those of the type of all objects. */
  java.util.Collection<MethodName> methodNames() {
    Map<String, MethodName> found = new LinkedHashMap<>();
    for (ObjectType type = this; type != null && type.parent != null; type = type.parent) {
      for (int position = 0; position < Native.typePart(type.index, 2); position++) {
        String name = Value.text(Native.methodName(type.index, position));
        found.putIfAbsent(name, new MethodName(name, Native.isStatic(type.index, position)));
      }
    }
    return found.values();
  }

  /** Returns the documentation of the type. */
  String doc() {
    return Value.text(Native.typeDoc(index));
  }

  /** Returns true if {@link #newInstance} can make objects. */
  boolean canMake() {
    return Native.typePart(index, 3) != 0;
  }

  Field find(String name) {
    Field field = fields.get(name);
    if (field == null) {
      throw new AnyfnException.AttributeError("an object of type " + key + " has no field '" + name + "'; it has " + String.join(", ", fields.keySet()));
    }
    return field;
  }

  /**
   * Returns an attribute of the type.
   *
   * @param name the name of the attribute
   * @return its value, or null
   */
  public @Nullable Object attribute(String name) {
    return Frame.read((frame, room) -> Native.typeAttribute(index, Value.utf8(name), frame, room));
  }

  /**
   * Returns the type key.
   *
   * @return the key
   */
  public String key() {
    return key;
  }

  /**
   * Returns the type from which the type derives.
   *
   * @return the parent, or null
   */
  public @Nullable ObjectType parent() {
    return parent;
  }

  /**
   * Returns the names of the fields, those of the parent first.
   *
   * @return the names
   */
  public List<String> fieldNames() {
    return List.copyOf(fields.keySet());
  }

  /**
   * Returns true if objects of another type are objects of this type.
   *
   * @param other another type
   * @return true if it is this type or derives from it
   */
  public boolean isAssignableFrom(ObjectType other) {
    return Native.isInstance(other.index, index);
  }

  @Override
  public String toString() {
    return key;
  }
}
