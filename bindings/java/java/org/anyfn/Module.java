package org.anyfn;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** A module: functions by name, usually those of a loaded library. */
public final class Module extends ObjectRef {
  Module(long address) {
    super(address, Value.MODULE);
  }

  /**
   * Loads a library.
   *
   * @param path the path of the library
   * @return the module
   * @throws AnyfnException if the library cannot be loaded
   */
  public static Module load(Path path) {
    return (Module) Globals.call("ffi.ModuleLoadFromFile", path.toString());
  }

  /**
   * Loads a library.
   *
   * @param path the path of the library
   * @return the module
   * @throws AnyfnException if the library cannot be loaded
   */
  public static Module load(String path) {
    return load(Path.of(path));
  }

  /**
   * Makes a module of a kind of its own, whose operations are functions of Java.
   *
   * @param kind the kind
   * @param operations the operations by name. {@code get_function} is required: from a name to a function or null. Others are {@code
   *     functions}, {@code save_to_bytes}, {@code write_to_file}, {@code write_formats}, {@code inspect_source}, {@code get_function_doc}
   *     and {@code get_function_metadata}
   * @return the module
   */
  public static Module of(String kind, Map<String, PackedFunc> operations) {
    List<Object> args = new ArrayList<>();
    args.add(kind);
    operations.forEach(
        (name, operation) -> {
          args.add(name);
          args.add(operation);
        });
    return (Module) Globals.call("ffi.ModuleCreate", args.toArray());
  }

  /**
   * Makes a module of given functions.
   *
   * @param functions the functions by name
   * @return the module, of the kind {@code java}
   */
  public static Module of(Map<String, PackedFunc> functions) {
    Map<String, PackedFunc> kept = Map.copyOf(functions);
    PackedFunc find = args -> kept.get((String) args[0]);
    PackedFunc names = args -> List.copyOf(kept.keySet());
    return of("java", Map.of("get_function", find, "functions", names));
  }

  /**
   * Registers the loader of a kind of modules, for {@link #load} and for modules that are imported by saved ones.
   *
   * @param kind the kind
   * @param loader makes a module of the bytes that {@code save_to_bytes} of the kind has returned
   */
  public static void registerLoader(String kind, java.util.function.Function<byte[], Module> loader) {
    Function.replace("ffi.Module.load_from_bytes." + kind, args -> loader.apply((byte[]) args[0]));
  }

  /**
   * Returns a function of the module.
   *
   * @param name the name of the function
   * @return the function
   * @throws AnyfnException.AttributeError if there is none
   */
  public Function getFunction(String name) {
    return findFunction(name, false)
        .orElseThrow(
            () -> new AnyfnException.AttributeError("the module has no function '" + name + "'; it has " + String.join(", ", functionNames())));
  }

  /**
   * Returns a function of the module, if there is one.
   *
   * @param name the name of the function
   * @param imports true to search the imported modules, too
   * @return the function
   */
  public Optional<Function> findFunction(String name, boolean imports) {
    Object found = Globals.call("ffi.ModuleGetFunction", this, name, imports);
    // A module of Java may contain lambdas.
    return found == null ? Optional.empty() : Optional.of(Function.from(found));
  }

  /**
   * Returns the names of the functions of the module.
   *
   * @return the names
   */
  public List<String> functionNames() {
    List<String> names = new ArrayList<>();
    for (Object name : (List<?>) Globals.call("ffi.ModuleListFunctions", this, false)) {
      names.add((String) name);
    }
    return names;
  }

  /**
   * Imports another module: the functions of this one find those of the other.
   *
   * @param module the module
   */
  public void importModule(Module module) {
    Globals.call("ffi.ModuleImportModule", this, module);
  }

  /**
   * Returns the imported modules.
   *
   * @return the modules
   */
  public List<Module> imports() {
    List<Module> modules = new ArrayList<>();
    for (Object module : (List<?>) Globals.call("ffi.ModuleGetImports", this)) {
      modules.add((Module) module);
    }
    return modules;
  }

  /**
   * Returns the kind of the module, such as {@code library}.
   *
   * @return the kind
   */
  public String kind() {
    return (String) Globals.call("ffi.ModuleGetKind", this);
  }

  @Override
  public String toString() {
    return isClosed() ? "closed module" : "Module(" + kind() + ")";
  }
}
