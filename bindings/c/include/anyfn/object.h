/*
 * Object types that are defined in C. From their definitions, every language can make, read, print, compare, copy,
 * rewrite and save their objects.
 *
 *     typedef struct {
 *       TVMFFIObject header;
 *       TVMFFIAny name;
 *       int64_t size;
 *       TVMFFIObjectHandle next;
 *     } Node;
 *
 *     static const AnyfnType* node_type;
 *
 *     ANYFN_EXPORT(setup) {
 *       const AnyfnField fields[] = {
 *           ANYFN_FIELD(Node, name, ANYFN_STR, "What it is called."),
 *           ANYFN_FIELD_DEFAULT(Node, size, ANYFN_INT64, "Its size.", anyfn_int(1)),
 *           ANYFN_FIELD_DEFAULT(Node, next, ANYFN_OBJECT, "The next one.", anyfn_none()),
 *       };
 *       AnyfnTypeDef def = ANYFN_TYPE_DEF("my.Node", Node, "A node.", fields);
 *       def.structural = kTVMFFISEqHashKindTreeNode;
 *       return anyfn_define_type(&def, &node_type);
 *     }
 *
 * The first member of the struct is the header or, in a derived type, the struct of the parent. The fields follow, each
 * in one of the representations of AnyfnFieldKind. An object owns the values of its fields, which are released with it.
 *
 * Threads share objects, so a field is set while its object is constructed and does not change afterwards. A field with
 * the flag `kTVMFFIFieldFlagBitMaskWritable` can be set at any time. The users of such an object must then ensure that
 * no thread reads the field while another one writes it.
 */
#ifndef ANYFN_OBJECT_H_
#define ANYFN_OBJECT_H_

#include <anyfn/anyfn.h>

#include <stddef.h>

#ifdef __cplusplus
#define ANYFN_THREAD_LOCAL thread_local
#else
#define ANYFN_THREAD_LOCAL _Thread_local
#endif

/** Representation of a field in the struct. */
typedef enum {
  /** `bool`, one byte. */
  ANYFN_BOOL,
  /** `int32_t` */
  ANYFN_INT32,
  /** `int64_t` */
  ANYFN_INT64,
  /** `float` */
  ANYFN_FLOAT32,
  /** `double` */
  ANYFN_FLOAT64,
  /** `TVMFFIAny` that owns a string; None until it is set. */
  ANYFN_STR,
  /** `TVMFFIAny` that owns any value. */
  ANYFN_ANY,
  /** `TVMFFIObjectHandle` that owns an object; NULL represents None. AnyfnField::type_key is the type of the object. */
  ANYFN_OBJECT
} AnyfnFieldKind;

/** Definition of a field. Its strings are copied. */
typedef struct {
  /** Name of the field. */
  const char* name;
  /** Offset of the field in the struct, in bytes. */
  size_t offset;
  /** Representation of the field in the struct. */
  AnyfnFieldKind kind;
  /** Documentation of the field; may be NULL. */
  const char* doc;
  /**
   * Combination of `kTVMFFIFieldFlagBit*` flags. `kTVMFFIFieldFlagBitMaskHasDefault` means that the field has a
   * default.
   */
  int64_t flags;
  /** Default of the field, a view. */
  TVMFFIAny default_value;
  /** Key of the type that an object in the field must have or derive from; NULL for any type. */
  const char* type_key;
} AnyfnField;

/** Definition of a method. The object is its first argument, unless the flags declare a static method. */
typedef struct {
  /** Name of the method. */
  const char* name;
  /** Documentation of the method; may be NULL. */
  const char* doc;
  /** Function that implements the method. */
  TVMFFISafeCallType function;
  /** 0 or `kTVMFFIFieldFlagBitMaskIsStaticMethod`. */
  int64_t flags;
} AnyfnMethod;

/** A defined type, which exists for the lifetime of the process. */
typedef struct AnyfnType AnyfnType;

/** Definition of a type. */
typedef struct {
  /** Unique key of the type, such as `my.Node`. */
  const char* key;
  /** Size of the struct in bytes. */
  size_t size;
  /** Documentation of the type; may be NULL. */
  const char* doc;
  /** Fields that the type adds to those of its parent. */
  const AnyfnField* fields;
  /** Number of these fields. */
  size_t num_fields;
  /** Methods of the type, or NULL. */
  const AnyfnMethod* methods;
  /** Number of methods. */
  size_t num_methods;
  /** Parent type, which must be defined with this header, or NULL. */
  const AnyfnType* parent;
  /** Kind of the type for structural equality, one of `kTVMFFISEqHashKind*`. */
  int32_t structural;
} AnyfnTypeDef;

/** Defines a field of a struct without a default. */
#define ANYFN_FIELD(Struct, field, kind, doc) {#field, offsetof(Struct, field), kind, doc, 0, anyfn_none(), NULL}

/** Defines a field of a struct with a default. */
#define ANYFN_FIELD_DEFAULT(Struct, field, kind, doc, value) \
  {#field, offsetof(Struct, field), kind, doc, kTVMFFIFieldFlagBitMaskHasDefault, value, NULL}

/** Defines a type whose fields are given as an array. */
#define ANYFN_TYPE_DEF(key, Struct, doc, fields) \
  {key, sizeof(Struct), doc, fields, sizeof(fields) / sizeof((fields)[0]), NULL, 0, NULL, kTVMFFISEqHashKindUnsupported}

/* ---- Objects ------------------------------------------------------------------------------------------------- */

/** Offset and representation of a field, for the implementation. */
typedef struct {
  size_t offset;
  AnyfnFieldKind kind;
} AnyfnFieldPlace;

struct AnyfnType {
  /** Index of the type. */
  int32_t index;
  /** Size of the struct in bytes. */
  size_t size;
  /** Parent type, or NULL. */
  const AnyfnType* parent;
  /** Number of fields that the type itself adds. */
  size_t num_fields;
  /** Fields that the type itself adds. */
  AnyfnFieldPlace* fields;
};

/** Memory in front of the header of each object. */
typedef struct AnyfnObjectFront {
  const AnyfnType* type;
  /** Next object in the list of objects that wait for their release. */
  struct AnyfnObjectFront* next;
} AnyfnObjectFront;

/** Releases the values of an object's fields. */
static inline void anyfn_object_drop_fields_(const AnyfnType* type, void* object) {
  for (; type != NULL; type = type->parent) {
    size_t i;
    for (i = 0; i < type->num_fields; ++i) {
      void* field = (char*)object + type->fields[i].offset;
      if (type->fields[i].kind == ANYFN_STR || type->fields[i].kind == ANYFN_ANY) {
        anyfn_release((TVMFFIAny*)field);
      } else if (type->fields[i].kind == ANYFN_OBJECT) {
        TVMFFIObjectHandle held = *(TVMFFIObjectHandle*)field;
        *(TVMFFIObjectHandle*)field = NULL;
        if (held != NULL) anyfn_release_object(held);
      }
    }
  }
}

/**
 * Deleter of objects. Objects that are released meanwhile are put into a list until the outermost release ends, so that
 * chains of any length are released without recursion.
 */
static inline void anyfn_object_delete_(void* object, int flags) {
  static ANYFN_THREAD_LOCAL int releasing = 0;
  static ANYFN_THREAD_LOCAL AnyfnObjectFront* waiting = NULL;
  AnyfnObjectFront* front = (AnyfnObjectFront*)object - 1;
  const int both = kTVMFFIObjectDeleterFlagBitMaskStrong | kTVMFFIObjectDeleterFlagBitMaskWeak;
  if ((flags & both) == both && releasing) {
    front->next = waiting;
    waiting = front;
    return;
  }
  if (flags & kTVMFFIObjectDeleterFlagBitMaskStrong) {
    int outermost = !releasing;
    releasing = 1;
    anyfn_object_drop_fields_(front->type, object);
    while (outermost && waiting != NULL) {
      AnyfnObjectFront* next = waiting;
      waiting = next->next;
      anyfn_object_drop_fields_(next->type, next + 1);
      free(next);
    }
    if (outermost) releasing = 0;
  }
  if (flags & kTVMFFIObjectDeleterFlagBitMaskWeak) free(front);
}

/**
 * Makes an object with all fields zero: numbers are 0, strings and objects None. `*out` is owned. Raises `MemoryError`.
 */
ANYFN_MUST_USE static inline int anyfn_new(const AnyfnType* type, void** out) {
  AnyfnObjectFront* front = (AnyfnObjectFront*)calloc(1, sizeof(AnyfnObjectFront) + type->size);
  TVMFFIObject* header;
  if (front == NULL) return (anyfn_raise("MemoryError", "out of memory"), -1);
  front->type = type;
  header = (TVMFFIObject*)(front + 1);
  header->combined_ref_count = (UINT64_C(1) << 32) | 1;
  header->type_index = type->index;
  header->deleter = anyfn_object_delete_;
  *out = header;
  return 0;
}

/** Returns 1 if the type of an object is the given type or derives from it, otherwise 0. */
static inline int anyfn_is_instance(TVMFFIObjectHandle object, int32_t type_index) {
  int32_t own = ((const TVMFFIObject*)object)->type_index;
  const TVMFFITypeInfo *info, *base;
  if (own == type_index) return 1;
  info = TVMFFIGetTypeInfo(own);
  base = TVMFFIGetTypeInfo(type_index);
  return info != NULL && base != NULL && info->type_depth > base->type_depth &&
         info->type_ancestors[base->type_depth]->type_index == type_index;
}

/**
 * Reads argument `i` as a pointer to the struct of an object of `type`, borrowed for the call. Raises `TypeError` for
 * other types.
 */
ANYFN_MUST_USE static inline int anyfn_arg_instance(const TVMFFIAny* args, int32_t num_args, int32_t i,
                                                    const AnyfnType* type, void** out) {
  if (anyfn_check_arg(num_args, i)) return -1;
  if (args[i].type_index < kTVMFFIStaticObjectBegin || !anyfn_is_instance(args[i].v_obj, type->index)) {
    TVMFFIByteArray key = TVMFFIGetTypeInfo(type->index)->type_key;
    char name[128];
    (void)snprintf(name, sizeof(name), "%.*s", (int)key.size, key.data);
    return (anyfn_raise_arg(args, i, name), -1);
  }
  *out = args[i].v_obj;
  return 0;
}

/* ---- Fields by name, of objects of all languages ------------------------------------------------------------- */

/** Returns the field of a type or its ancestors with the given name, valid for the lifetime of the process, or NULL. */
static inline const TVMFFIFieldInfo* anyfn_find_field(int32_t type_index, const char* name) {
  const TVMFFITypeInfo* info = TVMFFIGetTypeInfo(type_index);
  size_t size = strlen(name);
  int32_t depth = info == NULL ? -1 : info->type_depth;
  for (; depth >= 0; --depth) {
    const TVMFFITypeInfo* at = depth == info->type_depth ? info : info->type_ancestors[depth];
    int32_t i;
    for (i = 0; i < at->num_fields; ++i) {
      const TVMFFIByteArray* known = &at->fields[i].name;
      if (known->size == size && memcmp(known->data, name, size) == 0) return &at->fields[i];
    }
  }
  return NULL;
}

/** Reads a field into `*out`, which is then owned. The previous content of `*out` is not released. */
ANYFN_MUST_USE static inline int anyfn_read_field(TVMFFIObjectHandle object, const TVMFFIFieldInfo* field,
                                                  TVMFFIAny* out) {
  TVMFFIAny value = anyfn_none();
  if (field->getter == NULL) {
    return (anyfn_raise("AttributeError", "field `%.*s` cannot be read", (int)field->name.size, field->name.data), -1);
  }
  if (field->getter((char*)object + field->offset, &value)) return -1;
  *out = value;
  return 0;
}

/** Raises `AttributeError` for a missing field. Always returns -1. */
static inline int anyfn_no_field_(TVMFFIObjectHandle object, const char* name) {
  TVMFFIAny value = anyfn_object(object);
  TVMFFIByteArray key = anyfn_type_name(&value);
  (void)anyfn_raise("AttributeError", "an object of type %.*s has no field `%s`", (int)key.size, key.data, name);
  return -1;
}

/** Reads a field by name; `*out` is owned. Raises `AttributeError` if the field does not exist. */
ANYFN_MUST_USE static inline int anyfn_get_field(TVMFFIObjectHandle object, const char* name, TVMFFIAny* out) {
  const TVMFFIFieldInfo* field = anyfn_find_field(((const TVMFFIObject*)object)->type_index, name);
  return field != NULL ? anyfn_read_field(object, field, out) : anyfn_no_field_(object, name);
}

/**
 * Sets a field to the value of a view. Raises `AttributeError` if the field is read-only, and otherwise the error of the
 * field's setter.
 */
ANYFN_MUST_USE static inline int anyfn_write_field(TVMFFIObjectHandle object, const TVMFFIFieldInfo* field,
                                                   const TVMFFIAny* value) {
  void* place = (char*)object + field->offset;
  if (!(field->flags & kTVMFFIFieldFlagBitMaskWritable) || field->setter == NULL) {
    return (anyfn_raise("AttributeError", "field `%.*s` is read-only", (int)field->name.size, field->name.data), -1);
  }
  if (field->flags & kTVMFFIFieldFlagBitSetterIsFunctionObj) {
    TVMFFIAny args[2], result;
    args[0] = anyfn_ptr(place);
    args[1] = *value;
    if (anyfn_call(field->setter, args, 2, &result)) return -1;
    anyfn_release(&result);
    return 0;
  } else {
    TVMFFIFieldSetter setter;
    memcpy(&setter, &field->setter, sizeof(setter));
    return setter(place, value);
  }
}

/**
 * Sets a field by name to the value of a view. Raises `AttributeError` if the field does not exist or is read-only, and
 * otherwise the error of the field's setter.
 */
ANYFN_MUST_USE static inline int anyfn_set_field(TVMFFIObjectHandle object, const char* name, const TVMFFIAny* value) {
  const TVMFFIFieldInfo* field = anyfn_find_field(((const TVMFFIObject*)object)->type_index, name);
  return field != NULL ? anyfn_write_field(object, field, value) : anyfn_no_field_(object, name);
}

/**
 * Calls `visit` with each field of an object and a view of its value, until a call does not return 0. The fields of the
 * parent come first.
 *
 * Returns the last result of `visit`, or -1 with an error raised if a field cannot be read.
 */
ANYFN_MUST_USE static inline int anyfn_visit_fields(TVMFFIObjectHandle object,
                                                    int (*visit)(void* context, const TVMFFIFieldInfo* field,
                                                                 const TVMFFIAny* value),
                                                    void* context) {
  const TVMFFITypeInfo* info = TVMFFIGetTypeInfo(((const TVMFFIObject*)object)->type_index);
  int32_t depth, i;
  if (info == NULL) return -1;
  for (depth = 0; depth <= info->type_depth; ++depth) {
    const TVMFFITypeInfo* at = depth == info->type_depth ? info : info->type_ancestors[depth];
    for (i = 0; i < at->num_fields; ++i) {
      TVMFFIAny value;
      int code = anyfn_read_field(object, &at->fields[i], &value);
      if (code == 0) {
        code = visit(context, &at->fields[i], &value);
        anyfn_release(&value);
      }
      if (code != 0) return code;
    }
  }
  return 0;
}

/**
 * Calls a method by name, like anyfn_call(). Raises `AttributeError` if the method does not exist.
 *
 * `args[0]` is the object, of a type of any language. A static method receives only the arguments after the object.
 */
ANYFN_MUST_USE static inline int anyfn_call_method(const char* name, const TVMFFIAny* args, int32_t num_args,
                                                   TVMFFIAny* result) {
  const TVMFFITypeInfo* info;
  size_t size = strlen(name);
  int32_t depth, i;
  *result = anyfn_none();
  if (num_args < 1 || args[0].type_index < kTVMFFIStaticObjectBegin) {
    return anyfn_raise("TypeError", "method `%s` needs an object as its first argument", name);
  }
  info = TVMFFIGetTypeInfo(args[0].type_index);
  if (info == NULL) return -1;
  for (depth = info->type_depth; depth >= 0; --depth) {
    const TVMFFITypeInfo* at = depth == info->type_depth ? info : info->type_ancestors[depth];
    /* A method that was registered later takes precedence. */
    for (i = at->num_methods - 1; i >= 0; --i) {
      const TVMFFIMethodInfo* method = &at->methods[i];
      int skipped = (method->flags & kTVMFFIFieldFlagBitMaskIsStaticMethod) != 0;
      if (method->name.size != size || memcmp(method->name.data, name, size) != 0) continue;
      return anyfn_call(method->method.v_obj, args + skipped, num_args - skipped, result);
    }
  }
  return anyfn_raise("AttributeError", "an object of type %.*s has no method `%s`", (int)info->type_key.size,
                     info->type_key.data, name);
}

/* ---- What a type tells the runtime --------------------------------------------------------------------------- */

static inline int anyfn_get_bool_(void* field, TVMFFIAny* out) {
  return anyfn_return_bool(out, *(const unsigned char*)field);
}
static inline int anyfn_get_int32_(void* field, TVMFFIAny* out) { return anyfn_return_int(out, *(const int32_t*)field); }
static inline int anyfn_get_int64_(void* field, TVMFFIAny* out) { return anyfn_return_int(out, *(const int64_t*)field); }
static inline int anyfn_get_float32_(void* field, TVMFFIAny* out) {
  return anyfn_return_float(out, (double)*(const float*)field);
}
static inline int anyfn_get_float64_(void* field, TVMFFIAny* out) {
  return anyfn_return_float(out, *(const double*)field);
}
static inline int anyfn_get_any_(void* field, TVMFFIAny* out) { return anyfn_copy((const TVMFFIAny*)field, out); }
static inline int anyfn_get_object_(void* field, TVMFFIAny* out) {
  TVMFFIObjectHandle object = *(const TVMFFIObjectHandle*)field;
  if (object != NULL) anyfn_retain_object(object);
  return anyfn_return_object(out, object);
}

/** Raises `TypeError` for a value that a field does not accept. Always returns -1. */
static inline int anyfn_raise_field_(const TVMFFIAny* value, const char* expected) {
  TVMFFIByteArray got = anyfn_type_name(value);
  (void)anyfn_raise("TypeError", "expected %s but got %.*s", expected, (int)got.size, got.data);
  return -1;
}

static inline int anyfn_set_bool_(void* field, const TVMFFIAny* value) {
  if (value->type_index != kTVMFFIBool && value->type_index != kTVMFFIInt) return anyfn_raise_field_(value, "bool");
  *(unsigned char*)field = value->v_int64 != 0;
  return 0;
}
static inline int anyfn_set_int64_(void* field, const TVMFFIAny* value) {
  if (value->type_index != kTVMFFIInt && value->type_index != kTVMFFIBool) return anyfn_raise_field_(value, "int");
  *(int64_t*)field = value->v_int64;
  return 0;
}
static inline int anyfn_set_int32_(void* field, const TVMFFIAny* value) {
  int64_t wide;
  if (anyfn_set_int64_(&wide, value)) return -1;
  if (wide < INT32_MIN || wide > INT32_MAX) {
    return (anyfn_raise("OverflowError", "%lld does not fit into 32 bits", (long long)wide), -1);
  }
  *(int32_t*)field = (int32_t)wide;
  return 0;
}
static inline int anyfn_set_float64_(void* field, const TVMFFIAny* value) {
  if (value->type_index == kTVMFFIFloat) {
    *(double*)field = value->v_float64;
    return 0;
  }
  if (value->type_index != kTVMFFIInt && value->type_index != kTVMFFIBool) return anyfn_raise_field_(value, "float");
  *(double*)field = (double)value->v_int64;
  return 0;
}
static inline int anyfn_set_float32_(void* field, const TVMFFIAny* value) {
  double wide;
  if (anyfn_set_float64_(&wide, value)) return -1;
  *(float*)field = (float)wide;
  return 0;
}
static inline int anyfn_set_any_(void* field, const TVMFFIAny* value) {
  TVMFFIAny fresh, old = *(TVMFFIAny*)field;
  if (anyfn_copy(value, &fresh)) return -1;
  *(TVMFFIAny*)field = fresh;
  anyfn_release(&old);
  return 0;
}
static inline int anyfn_set_str_(void* field, const TVMFFIAny* value) {
  TVMFFIByteArray text;
  if (!anyfn_get_str(value, &text)) return anyfn_raise_field_(value, "str");
  return anyfn_set_any_(field, value);
}
static inline int anyfn_set_object_(void* field, const TVMFFIAny* value) {
  TVMFFIAny fresh;
  TVMFFIObjectHandle old = *(TVMFFIObjectHandle*)field;
  if (anyfn_copy(value, &fresh)) return -1;
  if (fresh.type_index != kTVMFFINone && fresh.type_index < kTVMFFIStaticObjectBegin) {
    return anyfn_raise_field_(value, "object or None");
  }
  *(TVMFFIObjectHandle*)field = fresh.type_index == kTVMFFINone ? NULL : fresh.v_obj;
  if (old != NULL) anyfn_release_object(old);
  return 0;
}

/**
 * Setter of fields that accept objects of one type. Its arguments are the field's address and the value; `self` is the
 * index of the type.
 */
static inline int anyfn_set_instance_(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  int32_t type_index = (int32_t)(intptr_t)self;
  void* place;
  (void)result;
  if (anyfn_arg_ptr(args, num_args, 0, &place) || anyfn_check_arg(num_args, 1)) return -1;
  if (args[1].type_index >= kTVMFFIStaticObjectBegin && !anyfn_is_instance(args[1].v_obj, type_index)) {
    TVMFFIByteArray key = TVMFFIGetTypeInfo(type_index)->type_key;
    char name[128];
    (void)snprintf(name, sizeof(name), "%.*s", (int)key.size, key.data);
    return anyfn_raise_field_(&args[1], name);
  }
  return anyfn_set_object_(place, &args[1]);
}

/** Properties of a representation of fields, with the functions that read and set such a field. */
typedef struct {
  int32_t size;
  int32_t static_type_index;
  const char* schema;
  TVMFFIFieldGetter get;
  TVMFFIFieldSetter set;
} AnyfnFieldWay;

static inline AnyfnFieldWay anyfn_field_way_(AnyfnFieldKind kind) {
  static const AnyfnFieldWay ways[] = {
      {1, kTVMFFIBool, "bool", anyfn_get_bool_, anyfn_set_bool_},
      {4, kTVMFFIInt, "int", anyfn_get_int32_, anyfn_set_int32_},
      {8, kTVMFFIInt, "int", anyfn_get_int64_, anyfn_set_int64_},
      {4, kTVMFFIFloat, "float", anyfn_get_float32_, anyfn_set_float32_},
      {8, kTVMFFIFloat, "float", anyfn_get_float64_, anyfn_set_float64_},
      {16, kTVMFFIStr, "ffi.String", anyfn_get_any_, anyfn_set_str_},
      {16, kTVMFFIAny, "Any", anyfn_get_any_, anyfn_set_any_},
      {sizeof(void*), kTVMFFIAny, "ffi.Object", anyfn_get_object_, anyfn_set_object_},
  };
  return ways[kind];
}

/** Makes a function object whose calls receive `self`, a constant of the library, as the first argument. */
static inline int anyfn_function_of_(TVMFFISafeCallType function, const void* self, TVMFFIAny* out) {
  TVMFFIObjectHandle made;
  if (anyfn_make_function(function, (void*)self, NULL, &made)) return -1;
  *out = anyfn_object(made);
  return 0;
}

static inline int anyfn_register_field_(int32_t type_index, const AnyfnField* field) {
  const AnyfnFieldWay way = anyfn_field_way_(field->kind);
  const char* schema = field->type_key != NULL ? field->type_key : way.schema;
  TVMFFIAny setter = anyfn_none();
  TVMFFIFieldInfo info;
  char metadata[512];
  int code;
  memset(&info, 0, sizeof(info));
  if (field->kind == ANYFN_OBJECT) {
    (void)snprintf(metadata, sizeof(metadata),
                   "{\"type_schema\":\"{\\\"type\\\":\\\"Optional\\\",\\\"args\\\":[{\\\"type\\\":\\\"%s\\\"}]}\"}", schema);
  } else {
    (void)snprintf(metadata, sizeof(metadata), "{\"type_schema\":\"{\\\"type\\\":\\\"%s\\\"}\"}", schema);
  }
  info.name = anyfn_byte_array(field->name);
  info.doc = anyfn_byte_array(field->doc != NULL ? field->doc : "");
  info.metadata = anyfn_byte_array(metadata);
  info.flags = field->flags;
  info.size = way.size;
  info.alignment = way.size < 8 ? way.size : 8;
  info.offset = (int64_t)field->offset;
  info.getter = way.get;
  memcpy(&info.setter, &way.set, sizeof(way.set));
  info.default_value_or_factory = field->default_value;
  info.field_static_type_index = way.static_type_index;
  if (field->kind == ANYFN_OBJECT && field->type_key != NULL) {
    TVMFFIByteArray key = anyfn_byte_array(field->type_key);
    int32_t index;
    if (TVMFFITypeKeyToIndex(&key, &index)) return -1;
    if (anyfn_function_of_(anyfn_set_instance_, (const void*)(intptr_t)index, &setter)) return -1;
    info.setter = setter.v_obj;
    info.flags |= kTVMFFIFieldFlagBitSetterIsFunctionObj;
  }
  code = TVMFFITypeRegisterField(type_index, &info);
  anyfn_release(&setter);
  return code;
}

/**
 * Sets an attribute of a type, such as `__ffi_repr__` or `__s_equal__`, to a function; docs/operations.md lists the
 * names.
 */
ANYFN_MUST_USE static inline int anyfn_set_type_function(const AnyfnType* type, const char* attribute,
                                                         TVMFFISafeCallType function) {
  TVMFFIByteArray name = anyfn_byte_array(attribute);
  TVMFFIAny value;
  int code;
  if (anyfn_function_of_(function, NULL, &value)) return -1;
  code = TVMFFITypeRegisterAttr(type->index, &name, &value);
  anyfn_release(&value);
  return code;
}

/** Implements `__ffi_new__`: () -> an object without content. */
static inline int anyfn_type_new_(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  void* object;
  (void)args, (void)num_args;
  if (anyfn_new((const AnyfnType*)self, &object)) return -1;
  return anyfn_return_object(result, object);
}

/** Implements `__ffi_shallow_copy__`: (object) -> a new object with the same content. */
static inline int anyfn_type_copy_(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  const AnyfnType *type = (const AnyfnType*)self, *at;
  void *from, *to;
  if (anyfn_arg_instance(args, num_args, 0, type, &from) || anyfn_new(type, &to)) return -1;
  for (at = type; at != NULL; at = at->parent) {
    size_t i;
    for (i = 0; i < at->num_fields; ++i) {
      const AnyfnFieldWay way = anyfn_field_way_(at->fields[i].kind);
      const size_t offset = at->fields[i].offset;
      TVMFFIAny value = anyfn_none();
      if (at->fields[i].kind < ANYFN_STR) {
        memcpy((char*)to + offset, (char*)from + offset, (size_t)way.size);
      } else if (way.get((char*)from + offset, &value) == 0) {
        if (at->fields[i].kind == ANYFN_OBJECT) {
          *(TVMFFIObjectHandle*)((char*)to + offset) = value.type_index == kTVMFFINone ? NULL : value.v_obj;
        } else {
          *(TVMFFIAny*)((char*)to + offset) = value;
        }
      } else {
        anyfn_release_object(to);
        return -1;
      }
    }
  }
  return anyfn_return_object(result, to);
}

/**
 * Returns 1 if an older build of the library has already defined a type with the same fields, and 0 if the type is not
 * defined. Returns -1 with an error raised if the type is defined with other fields.
 */
static inline int anyfn_is_defined_(const AnyfnType* type, const AnyfnTypeDef* def) {
  const TVMFFITypeInfo* info = TVMFFIGetTypeInfo(type->index);
  size_t i;
  int same;
  if (info == NULL || info->metadata == NULL) return 0;
  same = info->metadata->total_size == (int32_t)def->size && (size_t)info->num_fields == def->num_fields &&
         info->metadata->structural_eq_hash_kind == def->structural;
  for (i = 0; same && i < def->num_fields; ++i) {
    const TVMFFIFieldInfo* known = &info->fields[i];
    const AnyfnFieldWay way = anyfn_field_way_(def->fields[i].kind);
    same = known->name.size == strlen(def->fields[i].name) &&
           memcmp(known->name.data, def->fields[i].name, known->name.size) == 0 &&
           known->offset == (int64_t)def->fields[i].offset && known->size == way.size &&
           known->field_static_type_index == way.static_type_index;
  }
  if (same) return 1;
  (void)anyfn_raise("RuntimeError",
                    "the type %s is defined already, with another layout; give it another key, or start the process "
                    "again",
                    def->key);
  return -1;
}

/** Registers the fields, methods and attributes of a type with the runtime. */
static inline int anyfn_register_type_(const AnyfnType* type, const AnyfnTypeDef* def) {
  TVMFFITypeMetadata metadata;
  TVMFFIAny value;
  TVMFFIByteArray name;
  TVMFFIObjectHandle init;
  size_t i;
  int code;
  for (i = 0; i < def->num_fields; ++i) {
    if (anyfn_register_field_(type->index, &def->fields[i])) return -1;
  }
  for (i = 0; i < def->num_methods; ++i) {
    TVMFFIMethodInfo info;
    memset(&info, 0, sizeof(info));
    info.name = anyfn_byte_array(def->methods[i].name);
    info.doc = anyfn_byte_array(def->methods[i].doc != NULL ? def->methods[i].doc : "");
    info.flags = def->methods[i].flags;
    if (anyfn_function_of_(def->methods[i].function, NULL, &info.method)) return -1;
    code = TVMFFITypeRegisterMethod(type->index, &info);
    anyfn_release(&info.method);
    if (code) return -1;
  }
  for (i = 0; i < 2; ++i) {
    name = anyfn_byte_array(i == 0 ? "__ffi_new__" : "__ffi_shallow_copy__");
    if (anyfn_function_of_(i == 0 ? anyfn_type_new_ : anyfn_type_copy_, type, &value)) return -1;
    code = TVMFFITypeRegisterAttr(type->index, &name, &value);
    anyfn_release(&value);
    if (code) return -1;
  }
  memset(&metadata, 0, sizeof(metadata));
  metadata.doc = anyfn_byte_array(def->doc != NULL ? def->doc : "");
  metadata.total_size = (int32_t)def->size;
  metadata.structural_eq_hash_kind = def->structural;
  if (TVMFFITypeRegisterMetadata(type->index, &metadata)) return -1;
  if (anyfn_find_global("ffi._RegisterFFIInit", &init)) return -1;
  if (init == NULL) return 0; /* A runtime without this function: only C makes the objects. */
  {
    TVMFFIAny index = anyfn_int(type->index);
    code = anyfn_call(init, &index, 1, &value);
  }
  anyfn_release_object(init);
  return code;
}

/**
 * Defines a type; `*out` is valid for the lifetime of the process.
 *
 * The type gets a constructor that takes its fields, and its objects can be printed, compared, copied, rewritten and
 * saved. A library that was rebuilt defines its types again: if the fields are the same, the types are those of the
 * older build.
 *
 * Raises `RuntimeError` if a type with this key but other fields exists, and `ValueError` for an invalid definition.
 * The library must stay mapped afterwards, which the runtime ensures.
 */
ANYFN_MUST_USE static inline int anyfn_define_type(const AnyfnTypeDef* def, const AnyfnType** out) {
  TVMFFIByteArray key = anyfn_byte_array(def->key);
  AnyfnType* type;
  size_t i, begin = def->parent != NULL ? def->parent->size : sizeof(TVMFFIObject);
  int32_t parent = def->parent != NULL ? def->parent->index : kTVMFFIObject;
  const TVMFFITypeInfo* parent_info = TVMFFIGetTypeInfo(parent);
  int defined;
  if (parent_info == NULL) return -1;
  for (i = 0; i < def->num_fields; ++i) {
    const AnyfnField* field = &def->fields[i];
    if (field->offset < begin || field->offset + (size_t)anyfn_field_way_(field->kind).size > def->size ||
        (field->type_key != NULL && (field->kind != ANYFN_OBJECT || strlen(field->type_key) > 256))) {
      (void)anyfn_raise("ValueError", "field `%s` of %s does not lie in the struct, or has a type that does not fit",
                        field->name, def->key);
      return -1;
    }
  }
  type = (AnyfnType*)calloc(1, sizeof(AnyfnType) + def->num_fields * sizeof(AnyfnFieldPlace));
  if (type == NULL) return (anyfn_raise("MemoryError", "out of memory"), -1);
  type->size = def->size;
  type->parent = def->parent;
  type->num_fields = def->num_fields;
  type->fields = (AnyfnFieldPlace*)(type + 1);
  for (i = 0; i < def->num_fields; ++i) {
    type->fields[i].offset = def->fields[i].offset;
    type->fields[i].kind = def->fields[i].kind;
  }
  type->index = TVMFFITypeGetOrAllocIndex(&key, -1, parent_info->type_depth + 1, 0, 1, parent);
  if (type->index < 0) {
    free(type);
    return -1;
  }
  defined = anyfn_is_defined_(type, def);
  if (defined < 0) {
    free(type);
    return -1;
  }
  /* A registered type is never removed, so the memory that it refers to is never freed. */
  if (defined == 0 && anyfn_register_type_(type, def)) return -1;
  *out = type;
  return 0;
}

#endif /* ANYFN_OBJECT_H_ */
