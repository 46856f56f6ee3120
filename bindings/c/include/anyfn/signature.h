/*
 * Signatures of exported functions, declared without JSON:
 *
 *     ANYFN_EXPORT(axpy) { ... }
 *     ANYFN_SIGNATURE(axpy, "y = a * x + y, in place.", "None",
 *                     ANYFN_ARG("a", "float"), ANYFN_ARG_CONST("x"), ANYFN_ARG("y", "Tensor"));
 *
 * A signature gives a function named arguments, documentation, type stubs and, for arguments that are declared const,
 * read-only arrays. It does not check the arguments; the function does so itself. docs/signature.md describes what
 * readers see.
 *
 * Types are written as in messages: "int", "float", "bool", "str", "bytes", "Tensor", "Shape", "Function", "Module",
 * "DataType", "Device", "void*", "None", "Any", "Array<T>", "List<T>", "Map<K, V>", "Dict<K, V>", "Optional<T>",
 * "Union<A, B>", or the key of an object type, which contains a dot, such as "my.Account".
 *
 * A mistake in a signature, such as an unknown type, raises ValueError when the metadata of the function is requested:
 * by `anyfn stubs module FILE` or `module.get_function_metadata("axpy")`. Calls then work as without a signature.
 */
#ifndef ANYFN_SIGNATURE_H_
#define ANYFN_SIGNATURE_H_

#include <anyfn/anyfn.h>

/** One argument in a signature. Use the macros ANYFN_ARG to ANYFN_ARG_NONE, which fill in all members. */
typedef struct {
  const char* name;
  const char* type;
  /** Not 0 if the function only reads the tensor. */
  int is_const;
  /** Type index of the default value, or -1 if the argument must be passed. */
  int32_t default_kind;
  int64_t default_int;
  double default_float;
  const char* default_text;
} AnyfnParameter;

/** Argument that must be passed. */
#define ANYFN_ARG(name, type) {name, type, 0, -1, 0, 0.0, NULL}
/** Tensor that the function only reads, so that callers can pass read-only arrays. */
#define ANYFN_ARG_CONST(name) {name, "Tensor", 1, -1, 0, 0.0, NULL}
/** Int argument with a default value. The function itself must accept calls without the argument. */
#define ANYFN_ARG_INT(name, value) {name, "int", 0, kTVMFFIInt, value, 0.0, NULL}
/** Float argument with a default value, which must be finite. */
#define ANYFN_ARG_FLOAT(name, value) {name, "float", 0, kTVMFFIFloat, 0, value, NULL}
/** Bool argument with a default value: 0 or 1. */
#define ANYFN_ARG_BOOL(name, value) {name, "bool", 0, kTVMFFIBool, value, 0.0, NULL}
/** String argument with a default value. */
#define ANYFN_ARG_STR(name, value) {name, "str", 0, kTVMFFIRawStr, 0, 0.0, value}
/** Argument whose default value is None; `type` is the type of other values. */
#define ANYFN_ARG_NONE(name, type) {name, "Optional<" type ">", 0, kTVMFFINone, 0, 0.0, NULL}

/**
 * Exports the signature of the exported function `name`: its documentation, the type of its result, and one or more
 * arguments. A semicolon must follow.
 */
#define ANYFN_SIGNATURE(name, doc, result_type, ...)                                                           \
  ANYFN_EXPORT(_doc_##name) { return anyfn_return_doc_(result, doc); }                                         \
  ANYFN_EXPORT(_metadata_##name) {                                                                             \
    static const AnyfnParameter parameters[] = {__VA_ARGS__};                                                  \
    return anyfn_return_signature(result, #name, doc, result_type, parameters,                                 \
                                  sizeof(parameters) / sizeof(parameters[0]));                                 \
  }                                                                                                            \
  ANYFN_EXTERN_C ANYFN_DLL_EXPORT int __tvm_ffi__metadata_##name(void*, const TVMFFIAny*, int32_t, TVMFFIAny*)

/** Exports the signature of an exported function without arguments. A semicolon must follow. */
#define ANYFN_SIGNATURE_0(name, doc, result_type)                                                              \
  ANYFN_EXPORT(_doc_##name) { return anyfn_return_doc_(result, doc); }                                         \
  ANYFN_EXPORT(_metadata_##name) { return anyfn_return_signature(result, #name, doc, result_type, NULL, 0); }  \
  ANYFN_EXTERN_C ANYFN_DLL_EXPORT int __tvm_ffi__metadata_##name(void*, const TVMFFIAny*, int32_t, TVMFFIAny*)

/* ---- Implementation ------------------------------------------------------------------------------------------ */

/* Sets the result to the documentation of a function, or to None if there is none. */
ANYFN_MUST_USE static inline int anyfn_return_doc_(TVMFFIAny* result, const char* doc) {
  return doc[0] != '\0' ? anyfn_return_str(result, doc) : anyfn_return_none(result);
}

/* Text that grows. When memory runs out, `data` becomes NULL and stays so. */
typedef struct {
  char* data;
  size_t size, capacity;
} AnyfnText_;

static inline void anyfn_append_n_(AnyfnText_* text, const char* bytes, size_t size) {
  if (text->data == NULL && text->capacity > 0) return;
  if (text->capacity - text->size < size) {
    size_t capacity = 2 * (text->size + size) + 64;
    char* data = (char*)realloc(text->data, capacity);
    if (data == NULL) free(text->data);
    text->data = data;
    text->capacity = capacity;
    if (data == NULL) return;
  }
  memcpy(text->data + text->size, bytes, size);
  text->size += size;
}

static inline void anyfn_append_(AnyfnText_* text, const char* bytes) { anyfn_append_n_(text, bytes, strlen(bytes)); }

/* Appends a JSON string. */
static inline void anyfn_append_json_(AnyfnText_* text, const char* bytes, size_t size) {
  char escape[8];
  size_t i;
  anyfn_append_n_(text, "\"", 1);
  for (i = 0; i < size; ++i) {
    unsigned char c = (unsigned char)bytes[i];
    if (c < 0x20) {
      (void)snprintf(escape, sizeof(escape), "\\u%04x", (unsigned)c);
      anyfn_append_(text, escape);
      continue;
    }
    if (c == '"' || c == '\\') anyfn_append_n_(text, "\\", 1);
    anyfn_append_n_(text, bytes + i, 1);
  }
  anyfn_append_n_(text, "\"", 1);
}

/* Returns the name of a type in the schema of the ABI, or NULL if there is no such type. A name with a dot is a key. */
static inline const char* anyfn_schema_name_(const char* name) {
  static const char* const names[][2] = {
      {"int", "int"},          {"float", "float"},       {"bool", "bool"},     {"str", "ffi.String"},
      {"bytes", "ffi.Bytes"},  {"Tensor", "DLTensor*"},  {"None", "None"},     {"Any", "Any"},
      {"Array", "ffi.Array"},  {"List", "ffi.List"},     {"Map", "ffi.Map"},   {"Dict", "ffi.Dict"},
      {"Shape", "ffi.Shape"},  {"Optional", "Optional"}, {"Union", "Union"},   {"Function", "ffi.Function"},
      {"Module", "ffi.Module"}, {"DataType", "DataType"}, {"Device", "Device"}, {"void*", "void*"},
  };
  size_t i;
  for (i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
    if (strcmp(names[i][0], name) == 0) return names[i][1];
  }
  return strchr(name, '.') != NULL ? name : NULL;
}

/* Appends the schema of the type that begins at `at`, and returns the text after it; NULL if it is not a type. */
static inline const char* anyfn_append_type_(AnyfnText_* text, const char* at, int depth) {
  char name[128];
  const char* known;
  size_t size = strcspn(at, "<>, ");
  if (size == 0 || size >= sizeof(name) || depth > 16) return NULL;
  memcpy(name, at, size);
  name[size] = '\0';
  known = anyfn_schema_name_(name);
  if (known == NULL) return NULL;
  anyfn_append_(text, "{\"type\":");
  anyfn_append_json_(text, known, strlen(known));
  at += size;
  if (*at == '<') {
    anyfn_append_(text, ",\"args\":[");
    for (;;) {
      at = anyfn_append_type_(text, at + 1, depth + 1);
      if (at == NULL) return NULL;
      if (*at == '>') break;
      if (*at != ',') return NULL;
      anyfn_append_(text, ",");
      if (at[1] == ' ') ++at;
    }
    anyfn_append_(text, "]");
    ++at;
  }
  anyfn_append_(text, "}");
  return at;
}

static inline int anyfn_append_whole_type_(AnyfnText_* text, const char* type, const char* function, const char* what) {
  const char* end = anyfn_append_type_(text, type, 0);
  if (end != NULL && *end == '\0') return 0;
  return anyfn_raise("ValueError",
                     "signature of `%s`: %s has the unknown type `%s`; expected `int`, `float`, `bool`, `str`, `bytes`, "
                     "`Tensor`, `Any`, `Array<int>` or the like, or the key of an object type, such as `my.Account`",
                     function, what, type);
}

static inline int anyfn_is_name_(const char* name) {
  size_t i;
  for (i = 0; name[i] != '\0'; ++i) {
    const char c = name[i];
    const int is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    if (!is_letter && (i == 0 || c < '0' || c > '9')) return 0;
  }
  return i > 0;
}

/* Appends the default value of a parameter as JSON. */
static inline int anyfn_append_default_(AnyfnText_* text, const AnyfnParameter* parameter, const char* function) {
  char number[40];
  char* comma;
  int digits = 15;
  const double x = parameter->default_float;
  switch (parameter->default_kind) {
    case kTVMFFINone:
      anyfn_append_(text, "null");
      return 0;
    case kTVMFFIBool:
      anyfn_append_(text, parameter->default_int != 0 ? "true" : "false");
      return 0;
    case kTVMFFIInt:
      (void)snprintf(number, sizeof(number), "%lld", (long long)parameter->default_int);
      anyfn_append_(text, number);
      return 0;
    case kTVMFFIFloat:
      /* Infinities and NaN have no form in JSON. */
      if (!(x - x == 0)) break;
      do {
        (void)snprintf(number, sizeof(number), "%.*g", digits, x);
      } while (strtod(number, NULL) != x && ++digits <= 17);
      /* The decimal point depends on the locale. */
      comma = strchr(number, ',');
      if (comma != NULL) *comma = '.';
      anyfn_append_(text, number);
      if (strpbrk(number, ".e") == NULL) anyfn_append_(text, ".0");
      return 0;
    default:
      anyfn_append_json_(text, parameter->default_text, strlen(parameter->default_text));
      return 0;
  }
  return anyfn_raise("ValueError", "signature of `%s`: expected a finite number as the default value of `%s`", function,
                     parameter->name);
}

static inline int anyfn_check_parameters_(const char* function, const AnyfnParameter* parameters, size_t count) {
  size_t i, j;
  for (i = 0; i < count; ++i) {
    const char* name = parameters[i].name;
    if (!anyfn_is_name_(name)) {
      return anyfn_raise("ValueError", "signature of `%s`: `%s` is not a valid name of an argument", function, name);
    }
    for (j = 0; j < i; ++j) {
      if (strcmp(parameters[j].name, name) == 0) {
        return anyfn_raise("ValueError", "signature of `%s`: two arguments have the name `%s`", function, name);
      }
    }
    if (i > 0 && parameters[i].default_kind < 0 && parameters[i - 1].default_kind >= 0) {
      return anyfn_raise("ValueError", "signature of `%s`: argument `%s` needs a default value, because `%s` has one",
                         function, name, parameters[i - 1].name);
    }
  }
  return 0;
}

/* Appends the schema of the types of a function. */
static inline int anyfn_append_schema_(AnyfnText_* text, const char* function, const char* result_type,
                                       const AnyfnParameter* parameters, size_t count) {
  size_t i;
  char what[160];
  anyfn_append_(text, "{\"type\":\"ffi.Function\",\"named_args\":{\"return\":[");
  if (anyfn_append_whole_type_(text, result_type, function, "the result")) return -1;
  anyfn_append_(text, "],\"params\":[");
  for (i = 0; i < count; ++i) {
    if (i > 0) anyfn_append_(text, ",");
    (void)snprintf(what, sizeof(what), "argument `%s`", parameters[i].name);
    if (anyfn_append_whole_type_(text, parameters[i].type, function, what)) return -1;
  }
  anyfn_append_(text, "]}}");
  return 0;
}

/* Appends the entries of a signature after the schema. */
static inline int anyfn_append_entries_(AnyfnText_* text, const char* function, const char* doc,
                                        const AnyfnParameter* parameters, size_t count) {
  size_t i, constants = 0, defaults = 0;
  anyfn_append_(text, ",\"name\":");
  anyfn_append_json_(text, function, strlen(function));
  anyfn_append_(text, ",\"arg_names\":[");
  for (i = 0; i < count; ++i) {
    if (i > 0) anyfn_append_(text, ",");
    anyfn_append_json_(text, parameters[i].name, strlen(parameters[i].name));
  }
  anyfn_append_(text, "]");
  for (i = 0; i < count; ++i) {
    if (!parameters[i].is_const) continue;
    anyfn_append_(text, constants++ > 0 ? "," : ",\"arg_const\":[");
    anyfn_append_json_(text, parameters[i].name, strlen(parameters[i].name));
  }
  if (constants > 0) anyfn_append_(text, "]");
  for (i = 0; i < count; ++i) {
    if (parameters[i].default_kind < 0) continue;
    anyfn_append_(text, defaults++ > 0 ? "," : ",\"arg_defaults\":{");
    anyfn_append_json_(text, parameters[i].name, strlen(parameters[i].name));
    anyfn_append_(text, ":");
    if (anyfn_append_default_(text, &parameters[i], function)) return -1;
  }
  if (defaults > 0) anyfn_append_(text, "}");
  if (doc[0] != '\0') {
    anyfn_append_(text, ",\"doc\":");
    anyfn_append_json_(text, doc, strlen(doc));
  }
  return 0;
}

/**
 * Sets the result to a signature in the form of docs/signature.md. ANYFN_SIGNATURE calls this function.
 *
 * Raises ValueError for an unknown type, an invalid or repeated name, an argument without a default value after one that
 * has one, and a default value that is not finite; MemoryError if memory runs out.
 */
ANYFN_MUST_USE static inline int anyfn_return_signature(TVMFFIAny* result, const char* function, const char* doc,
                                                        const char* result_type, const AnyfnParameter* parameters,
                                                        size_t count) {
  AnyfnText_ schema = {NULL, 0, 0}, text = {NULL, 0, 0};
  int code = anyfn_check_parameters_(function, parameters, count);
  if (code == 0) code = anyfn_append_schema_(&schema, function, result_type, parameters, count);
  if (code == 0) {
    anyfn_append_(&text, "{\"type_schema\":");
    anyfn_append_json_(&text, schema.data != NULL ? schema.data : "", schema.size);
    code = anyfn_append_entries_(&text, function, doc, parameters, count);
    anyfn_append_(&text, "}");
  }
  if (code == 0) {
    code = schema.data != NULL && text.data != NULL ? anyfn_return_str_n(result, text.data, text.size)
                                                    : anyfn_raise("MemoryError", "out of memory");
  }
  free(schema.data);
  free(text.data);
  return code;
}

#endif /* ANYFN_SIGNATURE_H_ */
