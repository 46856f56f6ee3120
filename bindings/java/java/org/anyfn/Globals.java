package org.anyfn;

/** Functions of the runtime that the package uses. They are looked up once and never released. */
final class Globals {
  static final Handle ARRAY = find("ffi.Array");
  static final Handle MAP = find("ffi.Map");
  static final Handle SHAPE = find("ffi.Shape");
  static final Handle LIST = find("ffi.List");
  static final Handle DICT = find("ffi.Dict");

  private Globals() {}

  static Handle find(String name) {
    return Handle.forEver(Native.getGlobal(Value.utf8(name)));
  }

  /** Calls a global function that is looked up each time. */
  static Object call(String name, Object... args) {
    try (Function function = Function.get(name)) {
      return function.invoke(args);
    }
  }
}
