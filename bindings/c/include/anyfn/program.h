/*
 * C helper functions for programs that embed the runtime: calls with a list of arguments, functions with a context,
 * containers, modules, and calls of Python functions in a separate process.
 *
 *     static int count(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
 *       (void)args, (void)num_args;
 *       return anyfn_return_int(result, ++*(int64_t*)self);
 *     }
 *
 *     int run(void) {
 *       static int64_t calls;
 *       TVMFFIAny array, size, result;
 *       if (anyfn_register_with("my.count", count, &calls, NULL, 0)) return anyfn_print_error(stderr);
 *       if (anyfn_call_global("my.count", NULL, 0, &result)) return anyfn_print_error(stderr);
 *       if (anyfn_make_array(ANYFN_ARGS(anyfn_int(1), anyfn_str("two")), &array)) return anyfn_print_error(stderr);
 *       if (anyfn_call_global("ffi.ArraySize", ANYFN_ARGS(array), &size)) return anyfn_print_error(stderr);
 *       anyfn_release(&array);
 *       return 0;
 *     }
 *
 * The conventions are those of <anyfn/anyfn.h>; the caller owns each value and handle that a function stores in `*out`.
 * `examples/embed` is a complete program.
 */
#ifndef ANYFN_PROGRAM_H_
#define ANYFN_PROGRAM_H_

#include <anyfn/object.h>

#ifndef __cplusplus
/**
 * Expands a list of at least one value to two function arguments, an array of the values and its length:
 * `anyfn_call(f, ANYFN_ARGS(anyfn_int(1), anyfn_str("x")), &result)`. The array exists until the end of the enclosing block.
 */
#define ANYFN_ARGS(...) \
  (const TVMFFIAny[]){__VA_ARGS__}, (int32_t)(sizeof((const TVMFFIAny[]){__VA_ARGS__}) / sizeof(TVMFFIAny))
#endif

/* ---- Functions ----------------------------------------------------------------------------------------------- */

/**
 * Registers a C function with a context under a global name.
 *
 * `function` receives `self` as its first argument. `deleter(self)` is called when nothing refers to the function any more,
 * or before this function returns -1; `deleter` may be NULL. If both `self` and `deleter` are NULL, `function` receives the
 * function object itself as `self`. Raises `RuntimeError` if the name is taken and `allow_override` is 0.
 */
ANYFN_MUST_USE static inline int anyfn_register_with(const char* name, TVMFFISafeCallType function, void* self,
                                                     void (*deleter)(void* self), int allow_override) {
  int code;
  TVMFFIObjectHandle object;
  TVMFFIByteArray bytes = anyfn_byte_array(name);
  if (anyfn_make_function(function, self, deleter, &object)) {
    if (deleter != NULL) deleter(self);
    return -1;
  }
  code = TVMFFIFunctionSetGlobal(&bytes, object, allow_override);
  anyfn_release_object(object);
  return code;
}

/* ---- Containers ---------------------------------------------------------------------------------------------- */

/** Makes an Array of copies of `count` values. The caller owns `*out`. */
ANYFN_MUST_USE static inline int anyfn_make_array(const TVMFFIAny* items, int32_t count, TVMFFIAny* out) {
  return anyfn_call_global("ffi.Array", items, count, out);
}

/** Makes a Map of copies of `count` values: keys and values, alternately. `*out` is owned. Raises `RuntimeError` for odd counts. */
ANYFN_MUST_USE static inline int anyfn_make_map(const TVMFFIAny* items, int32_t count, TVMFFIAny* out) {
  return anyfn_call_global("ffi.Map", items, count, out);
}

/** Raises `TypeError` for a value that is not a container of the expected kind. Always returns -1. */
static inline int anyfn_raise_container_(const TVMFFIAny* value, const char* expected) {
  TVMFFIByteArray got = anyfn_type_name(value);
  (void)anyfn_raise("TypeError", "expected %s but got %.*s", expected, (int)got.size, got.data);
  return -1;
}

/** Gets the number of elements of an Array or List, or of pairs of a Map or Dict. Raises `TypeError` for other types. */
ANYFN_MUST_USE static inline int anyfn_get_size(const TVMFFIAny* container, int64_t* out) {
  TVMFFIAny size;
  const char* function = container->type_index == kTVMFFIArray  ? "ffi.ArraySize"
                         : container->type_index == kTVMFFIList ? "ffi.ListSize"
                         : container->type_index == kTVMFFIMap  ? "ffi.MapSize"
                         : container->type_index == kTVMFFIDict ? "ffi.DictSize"
                                                                : NULL;
  if (function == NULL) return anyfn_raise_container_(container, "Array, List, Map or Dict");
  if (anyfn_call_global(function, container, 1, &size)) return -1;
  *out = size.v_int64;
  return 0;
}

/**
 * Gets the element at an index of an Array or List. `*out` is owned. Raises `IndexError` if it does not exist, and
 * `TypeError` for values of other types.
 */
ANYFN_MUST_USE static inline int anyfn_get_item(const TVMFFIAny* container, int64_t index, TVMFFIAny* out) {
  TVMFFIAny args[2];
  const int is_array = container->type_index == kTVMFFIArray;
  if (!is_array && container->type_index != kTVMFFIList) return anyfn_raise_container_(container, "Array or List");
  args[0] = *container;
  args[1] = anyfn_int(index);
  return anyfn_call_global(is_array ? "ffi.ArrayGetItem" : "ffi.ListGetItem", args, 2, out);
}

/**
 * Gets the value of a key of a Map or Dict. `*out` is owned. Raises `KeyError` if the key does not exist, and `TypeError`
 * for values of other types.
 */
ANYFN_MUST_USE static inline int anyfn_get_value(const TVMFFIAny* container, TVMFFIAny key, TVMFFIAny* out) {
  TVMFFIAny args[2];
  const int is_map = container->type_index == kTVMFFIMap;
  if (!is_map && container->type_index != kTVMFFIDict) return anyfn_raise_container_(container, "Map or Dict");
  args[0] = *container;
  args[1] = key;
  return anyfn_call_global(is_map ? "ffi.MapGetItem" : "ffi.DictGetItem", args, 2, out);
}

/** Prints a value of any type and a line break. A Map is printed as `{"a": 1, "b": [2, 3]}`, for example. */
ANYFN_MUST_USE static inline int anyfn_print(FILE* file, const TVMFFIAny* value) {
  TVMFFIAny text;
  TVMFFIByteArray bytes;
  if (anyfn_call_global("ffi.ReprPrint", value, 1, &text)) return -1;
  if (anyfn_get_str(&text, &bytes)) fprintf(file, "%.*s\n", (int)bytes.size, bytes.data);
  anyfn_release(&text);
  return 0;
}

/* ---- Modules ------------------------------------------------------------------------------------------------- */

/** Loads a library, or another file for whose extension a loader is registered. Raises `RuntimeError` if that fails. */
ANYFN_MUST_USE static inline int anyfn_load_module(const char* path, TVMFFIObjectHandle* out) {
  TVMFFIAny argument = anyfn_str(path), module;
  if (anyfn_call_global("ffi.ModuleLoadFromFile", &argument, 1, &module)) return -1;
  *out = module.v_obj;
  return 0;
}

/**
 * Looks up a function of a module. `*out` is owned, and keeps the module loaded. Raises `AttributeError` if the module
 * has no such function.
 */
ANYFN_MUST_USE static inline int anyfn_module_function(TVMFFIObjectHandle module, const char* name,
                                                       TVMFFIObjectHandle* out) {
  TVMFFIAny args[3], function;
  args[0] = anyfn_object(module);
  args[1] = anyfn_str(name);
  args[2] = anyfn_bool(0);
  if (anyfn_call_global("ffi.ModuleGetFunction", args, 3, &function)) return -1;
  if (function.type_index != kTVMFFIFunction) {
    return (anyfn_raise("AttributeError", "the module has no function `%s`", name), -1);
  }
  *out = function.v_obj;
  return 0;
}

/* ---- Python -------------------------------------------------------------------------------------------------- */

/**
 * Starts Python in a separate process, imports a Python module there, and opens a session with the process. The caller owns
 * the session `*out`; the process ends when the session is released.
 *
 * `python` is the path or name of an interpreter with the package anyfn. `module` is the name of a Python module in the
 * current folder or on `PYTHONPATH`; anyfn_session_function() finds the functions that this module registers. Raises
 * `OSError` if the process cannot be started, and `ConnectionError`, with the last lines of the output of the process, if
 * the process ends before the session is open.
 */
ANYFN_MUST_USE static inline int anyfn_spawn_python(const char* python, const char* module, TVMFFIObjectHandle* out) {
  static const char program[] =
      "import importlib, sys\n"
      "import anyfn\n"
      "importlib.import_module(sys.argv[1])\n"
      "anyfn.get_global_func('rpc.serve_spawned')()\n";
  TVMFFIAny words[4], command, session;
  int code;
  words[0] = anyfn_str(python);
  words[1] = anyfn_str("-c");
  words[2] = anyfn_str(program);
  words[3] = anyfn_str(module);
  if (anyfn_make_array(words, 4, &command)) return -1;
  code = anyfn_call_global("rpc.spawn", &command, 1, &session);
  anyfn_release(&command);
  if (code != 0) return -1;
  *out = session.v_obj;
  return 0;
}

/**
 * Looks up a function at the remote end of a session. The caller owns `*out` and calls it like any function; functions of
 * this process may be arguments. Raises `ValueError` if the function does not exist.
 */
ANYFN_MUST_USE static inline int anyfn_session_function(TVMFFIObjectHandle session, const char* name,
                                                        TVMFFIObjectHandle* out) {
  TVMFFIAny args[2], function;
  args[0] = anyfn_object(session);
  args[1] = anyfn_str(name);
  if (anyfn_call_method("get_function", args, 2, &function)) return -1;
  *out = function.v_obj;
  return 0;
}

#endif /* ANYFN_PROGRAM_H_ */
