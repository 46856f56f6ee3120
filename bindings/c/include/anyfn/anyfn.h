/*
 * C helper functions on top of the ABI, for kernels that other languages call and for programs that embed the runtime.
 *
 * A kernel:
 *
 *     #include <anyfn/anyfn.h>
 *
 *     ANYFN_EXPORT(add_one) {
 *       int64_t x;
 *       if (anyfn_check_num_args(num_args, 1) || anyfn_arg_int(args, num_args, 0, &x)) return -1;
 *       return anyfn_return_int(result, x + 1);
 *     }
 *
 * A caller:
 *
 *     TVMFFIObjectHandle f;
 *     TVMFFIAny args[1], result;
 *     if (anyfn_get_global("add_one", &f)) return anyfn_print_error(stderr);
 *     args[0] = anyfn_int(41);
 *     if (anyfn_call(f, args, 1, &result)) return anyfn_print_error(stderr);
 *     printf("%lld\n", (long long)result.v_int64);
 *     anyfn_release(&result);
 *     anyfn_release_object(f);
 *
 * Conventions, besides those of <anyfn/c_api.h>:
 *
 * - Functions that return `int` return 0 on success. If they return -1, an error is raised on this thread, and outputs
 *   are unchanged unless the documentation states otherwise. A kernel propagates the error by returning -1 itself.
 * - A *view* is a value that owns nothing and is valid as long as the data from which it was made. An *owned* value
 *   must be released once, with anyfn_release().
 * - All functions of this header are `static inline`, so the header adds no symbol to a library. The functions of the
 *   runtime that they call are resolved by the process that loads the library.
 */
#ifndef ANYFN_ANYFN_H_
#define ANYFN_ANYFN_H_

#include <anyfn/c_api.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GNUC__) || defined(__clang__)
#define ANYFN_PRINTF_LIKE(text, first) __attribute__((__format__(__printf__, text, first)))
#define ANYFN_MUST_USE __attribute__((__warn_unused_result__))
#define ANYFN_UNUSED __attribute__((__unused__))
#else
#define ANYFN_PRINTF_LIKE(text, first)
#define ANYFN_MUST_USE
#define ANYFN_UNUSED
#endif

#ifdef __cplusplus
#define ANYFN_EXTERN_C extern "C"
#else
#define ANYFN_EXTERN_C extern
#endif

/**
 * Begins the definition of a function that a library exports as `name`. The body follows in braces.
 *
 * The parameters of the body are `self` (unused), `args` (views that are borrowed for the call), `num_args` and
 * `result` (None on entry, where the body stores an owned value). The body returns 0, or -1 after it has raised an
 * error. C++ exceptions must not propagate out of the body.
 */
#define ANYFN_EXPORT(name)                                                                                     \
  ANYFN_EXTERN_C ANYFN_DLL_EXPORT int __tvm_ffi_##name(void* self, const TVMFFIAny* args, int32_t num_args,    \
                                                       TVMFFIAny* result);                                     \
  ANYFN_EXTERN_C ANYFN_DLL_EXPORT int __tvm_ffi_##name(                                                        \
      void* self ANYFN_UNUSED, const TVMFFIAny* args ANYFN_UNUSED, int32_t num_args ANYFN_UNUSED,              \
      TVMFFIAny* result ANYFN_UNUSED)

/** Type in the signature of a function, such as `ANYFN_TYPE("int")`; docs/signature.md lists the names of types. */
#define ANYFN_TYPE(name) "{\\\"type\\\":\\\"" name "\\\"}"

/**
 * Exports the signature of an exported function as JSON. A semicolon must follow. ANYFN_SIGNATURE of <anyfn/signature.h>
 * needs no JSON.
 *
 * `result_type` is an ANYFN_TYPE, and `param_types` is a sequence of them, separated by `","`. `more` is JSON that
 * contains names, defaults and the other entries that docs/signature.md lists. The function itself must accept calls
 * that omit trailing arguments with defaults.
 *
 *     ANYFN_EXPORT_SIGNATURE(scale, ANYFN_TYPE("float"), ANYFN_TYPE("float") "," ANYFN_TYPE("float"),
 *                            "\"arg_names\":[\"x\",\"factor\"],\"arg_defaults\":{\"factor\":2.0}");
 */
#define ANYFN_EXPORT_SIGNATURE(name, result_type, param_types, more)                                           \
  ANYFN_EXPORT(_metadata_##name) {                                                                             \
    return anyfn_return_str(result,                                                                            \
                            "{\"type_schema\":\"{\\\"type\\\":\\\"ffi.Function\\\",\\\"named_args\\\":"        \
                            "{\\\"return\\\":[" result_type "],\\\"params\\\":[" param_types "]}}\","          \
                            "\"name\":\"" #name "\"," more "}");                                               \
  }                                                                                                            \
  ANYFN_EXTERN_C ANYFN_DLL_EXPORT int __tvm_ffi__metadata_##name(void*, const TVMFFIAny*, int32_t, TVMFFIAny*)

/* ---- Making values ------------------------------------------------------------------------------------------- */

/** Returns the value None. */
static inline TVMFFIAny anyfn_none(void) {
  /* Member by member, because compilers keep a struct in memory if memset() has its address. */
  TVMFFIAny value;
  value.type_index = kTVMFFINone;
  value.zero_padding = 0;
  value.v_int64 = 0;
  return value;
}

/** Returns an int value. */
static inline TVMFFIAny anyfn_int(int64_t x) {
  TVMFFIAny value = anyfn_none();
  value.type_index = kTVMFFIInt;
  value.v_int64 = x;
  return value;
}

/** Returns a bool value: false for 0, true for any other number. */
static inline TVMFFIAny anyfn_bool(int x) {
  TVMFFIAny value = anyfn_none();
  value.type_index = kTVMFFIBool;
  value.v_int64 = x != 0;
  return value;
}

/** Returns a float value. */
static inline TVMFFIAny anyfn_float(double x) {
  TVMFFIAny value = anyfn_none();
  value.type_index = kTVMFFIFloat;
  value.v_float64 = x;
  return value;
}

/** Returns an opaque pointer as a value; NULL becomes None. */
static inline TVMFFIAny anyfn_ptr(void* p) {
  TVMFFIAny value = anyfn_none();
  if (p != NULL) {
    value.type_index = kTVMFFIOpaquePtr;
    value.v_ptr = p;
  }
  return value;
}

/** Returns a view of a NUL-terminated string, for arguments only. It is valid as long as `text`; NULL becomes None. */
static inline TVMFFIAny anyfn_str(const char* text) {
  TVMFFIAny value = anyfn_none();
  if (text != NULL) {
    value.type_index = kTVMFFIRawStr;
    value.v_c_str = text;
  }
  return value;
}

/** Returns a view of bytes, for arguments only. It is valid as long as `bytes` and the memory that it points to. */
static inline TVMFFIAny anyfn_bytes(TVMFFIByteArray* bytes) {
  TVMFFIAny value = anyfn_none();
  value.type_index = kTVMFFIByteArrayPtr;
  value.v_ptr = bytes;
  return value;
}

/** Returns a view of a tensor. It is valid as long as `tensor` and the memory that it points to; NULL becomes None. */
static inline TVMFFIAny anyfn_tensor(DLTensor* tensor) {
  TVMFFIAny value = anyfn_none();
  if (tensor != NULL) {
    value.type_index = kTVMFFIDLTensorPtr;
    value.v_ptr = tensor;
  }
  return value;
}

/** Returns a data type as a value. */
static inline TVMFFIAny anyfn_dtype(DLDataType dtype) {
  TVMFFIAny value = anyfn_none();
  value.type_index = kTVMFFIDataType;
  value.v_dtype = dtype;
  return value;
}

/** Returns a device as a value. */
static inline TVMFFIAny anyfn_device(DLDevice device) {
  TVMFFIAny value = anyfn_none();
  value.type_index = kTVMFFIDevice;
  value.v_device = device;
  return value;
}

/**
 * Returns a value that refers to an object of any type; NULL becomes None.
 *
 * No reference is added. The value is a view, unless the caller transfers its own reference to it.
 */
static inline TVMFFIAny anyfn_object(TVMFFIObjectHandle object) {
  TVMFFIAny value = anyfn_none();
  if (object != NULL) {
    value.type_index = ((const TVMFFIObject*)object)->type_index;
    value.v_obj = (TVMFFIObject*)object;
  }
  return value;
}

/* ---- Ownership ----------------------------------------------------------------------------------------------- */

/** Releases an owned value and sets it to None. */
static inline void anyfn_release(TVMFFIAny* value) {
  if (value->type_index >= kTVMFFIStaticObjectBegin) {
    (void)TVMFFIObjectDecRef(value->v_obj);
  }
  *value = anyfn_none();
}

/** Releases a reference to an object; NULL is ignored. */
static inline void anyfn_release_object(TVMFFIObjectHandle object) { (void)TVMFFIObjectDecRef(object); }

/** Adds a reference to an object; NULL is ignored. The caller releases it with anyfn_release_object(). */
static inline void anyfn_retain_object(TVMFFIObjectHandle object) { (void)TVMFFIObjectIncRef(object); }

/** Writes an owned copy of a view to `*out`, whose previous content is not released. Borrowed strings are copied. */
ANYFN_MUST_USE static inline int anyfn_copy(const TVMFFIAny* view, TVMFFIAny* out) {
  return TVMFFIAnyViewToOwnedAny(view, out);
}

/* ---- Raising errors ------------------------------------------------------------------------------------------ */

/**
 * Raises an error whose message is formatted as by vprintf. Always returns -1.
 *
 * `kind` is the name of the class of the error in other languages, such as `ValueError`.
 */
ANYFN_PRINTF_LIKE(2, 0) static inline int anyfn_raise_v(const char* kind, const char* format, va_list arguments) {
  char buffer[512];
  char* message = buffer;
  int length;
  va_list again;
  va_copy(again, arguments);
  length = vsnprintf(buffer, sizeof(buffer), format, arguments);
  if (length < 0) {
    buffer[0] = '\0';
  } else if ((size_t)length >= sizeof(buffer)) {
    /* If memory for the whole message is not available, the message stays truncated. */
    char* whole = (char*)malloc((size_t)length + 1);
    if (whole != NULL) {
      (void)vsnprintf(whole, (size_t)length + 1, format, again);
      message = whole;
    }
  }
  va_end(again);
  TVMFFIErrorSetRaisedFromCStr(kind, message);
  if (message != buffer) {
    free(message);
  }
  return -1;
}

/**
 * Raises an error whose message is formatted as by printf. Always returns -1: `return anyfn_raise("ValueError", ...);`.
 */
ANYFN_PRINTF_LIKE(2, 3) static inline int anyfn_raise(const char* kind, const char* format, ...) {
  int code;
  va_list arguments;
  va_start(arguments, format);
  code = anyfn_raise_v(kind, format, arguments);
  va_end(arguments);
  return code;
}

/** Returns the name of a built-in type in error messages, such as `str` or `Array`, or NULL for other types. */
static inline const char* anyfn_type_word(int32_t type_index) {
  switch (type_index) {
    case kTVMFFIRawStr:
    case kTVMFFISmallStr:
    case kTVMFFIStr:
      return "str";
    case kTVMFFIByteArrayPtr:
    case kTVMFFISmallBytes:
    case kTVMFFIBytes:
      return "bytes";
    case kTVMFFIBigInt:
      return "int of more than 64 bits";
    case kTVMFFIArray:
      return "Array";
    case kTVMFFIList:
      return "List";
    case kTVMFFIMap:
      return "Map";
    case kTVMFFIDict:
      return "Dict";
    case kTVMFFIShape:
      return "Shape";
    case kTVMFFITensor:
      return "Tensor";
    case kTVMFFIFunction:
      return "Function";
    case kTVMFFIModule:
      return "Module";
    case kTVMFFIError:
      return "Error";
    case kTVMFFIOpaquePyObject:
      return "Python object";
    default:
      return NULL;
  }
}

/** Returns the name of a value's type as shown in error messages. It is valid for the lifetime of the process. */
static inline TVMFFIByteArray anyfn_type_name(const TVMFFIAny* value) {
  const char* word = anyfn_type_word(value->type_index);
  if (value->type_index == kTVMFFIRawStr && value->v_c_str == NULL) word = "str that is NULL";
  if (value->type_index == kTVMFFIByteArrayPtr && value->v_ptr == NULL) word = "bytes that is NULL";
  static const char unknown[] = "unknown type";
  TVMFFIByteArray name;
  const TVMFFITypeInfo* info;
  if (word != NULL) {
    name.data = word;
    name.size = strlen(word);
    return name;
  }
  info = TVMFFIGetTypeInfo(value->type_index);
  if (info != NULL) {
    return info->type_key;
  }
  {
    /*
     * The lookup of an unknown index has raised an error, which differs from the one that the caller is about to
     * report.
     */
    TVMFFIObjectHandle error;
    TVMFFIErrorMoveFromRaised(&error);
    anyfn_release_object(error);
  }
  name.data = unknown;
  name.size = sizeof(unknown) - 1;
  return name;
}

/*
 * After raising an error, the helpers below return a constant instead of the result of anyfn_raise(), so that the
 * compiler knows that an output is set whenever a helper returns 0.
 */

/** Raises `TypeError` for argument `i`. Always returns -1. */
static inline int anyfn_raise_arg(const TVMFFIAny* args, int32_t i, const char* expected) {
  TVMFFIByteArray got = anyfn_type_name(&args[i]);
  (void)anyfn_raise("TypeError", "Mismatched type on argument #%d. Expected `%s` but got `%.*s`", (int)i, expected,
                     (int)got.size, got.data);
  return -1;
}

/* ---- Reading arguments --------------------------------------------------------------------------------------- */

/** Checks the number of arguments. Raises `TypeError` if it is not `expected`. */
ANYFN_MUST_USE static inline int anyfn_check_num_args(int32_t num_args, int32_t expected) {
  if (num_args == expected) {
    return 0;
  }
  (void)anyfn_raise("TypeError", "Mismatched number of arguments. Expected %d but got %d arguments", (int)expected,
                     (int)num_args);
  return -1;
}

/** Checks that argument `i` exists. Raises `TypeError` if there are fewer arguments. */
ANYFN_MUST_USE static inline int anyfn_check_arg(int32_t num_args, int32_t i) {
  if (i >= 0 && i < num_args) {
    return 0;
  }
  (void)anyfn_raise("TypeError", "Missing argument #%d. Got %d argument%s", (int)i, (int)num_args,
                     num_args == 1 ? "" : "s");
  return -1;
}

/** Reads argument `i` as an int; a bool becomes 0 or 1. Raises `TypeError` for other types. */
ANYFN_MUST_USE static inline int anyfn_arg_int(const TVMFFIAny* args, int32_t num_args, int32_t i, int64_t* out) {
  if (anyfn_check_arg(num_args, i)) return -1;
  if (args[i].type_index != kTVMFFIInt && args[i].type_index != kTVMFFIBool) {
    return (anyfn_raise_arg(args, i, "int"), -1);
  }
  *out = args[i].v_int64;
  return 0;
}

/** Reads argument `i` as a bool, 0 or 1; an int becomes 1 unless it is zero. Raises `TypeError` for other types. */
ANYFN_MUST_USE static inline int anyfn_arg_bool(const TVMFFIAny* args, int32_t num_args, int32_t i, int* out) {
  if (anyfn_check_arg(num_args, i)) return -1;
  if (args[i].type_index != kTVMFFIBool && args[i].type_index != kTVMFFIInt) {
    return (anyfn_raise_arg(args, i, "bool"), -1);
  }
  *out = args[i].v_int64 != 0;
  return 0;
}

/** Reads argument `i` as a float; an int or bool is converted. Raises `TypeError` for other types. */
ANYFN_MUST_USE static inline int anyfn_arg_float(const TVMFFIAny* args, int32_t num_args, int32_t i, double* out) {
  if (anyfn_check_arg(num_args, i)) return -1;
  if (args[i].type_index == kTVMFFIFloat) {
    *out = args[i].v_float64;
  } else if (args[i].type_index == kTVMFFIInt || args[i].type_index == kTVMFFIBool) {
    *out = (double)args[i].v_int64;
  } else {
    return (anyfn_raise_arg(args, i, "float"), -1);
  }
  return 0;
}

/** Reads argument `i` as an opaque pointer; None becomes NULL. Raises `TypeError` for other types. */
ANYFN_MUST_USE static inline int anyfn_arg_ptr(const TVMFFIAny* args, int32_t num_args, int32_t i, void** out) {
  if (anyfn_check_arg(num_args, i)) return -1;
  if (args[i].type_index == kTVMFFIOpaquePtr) {
    *out = args[i].v_ptr;
  } else if (args[i].type_index == kTVMFFINone) {
    *out = NULL;
  } else {
    return (anyfn_raise_arg(args, i, "void*"), -1);
  }
  return 0;
}

/** Returns the content of an object of a built-in type, which follows the header. */
static inline void* anyfn_object_cell(TVMFFIObjectHandle object) { return (char*)object + sizeof(TVMFFIObject); }

/**
 * Gets the bytes of a string in any of its representations. Returns 1, or 0 without an error if `value` is not a
 * string.
 *
 * The bytes are borrowed from `value`. Those of a short string are in the struct itself, which must not move meanwhile.
 * The bytes are NUL-terminated unless a foreign runtime made the string.
 */
static inline int anyfn_get_str(const TVMFFIAny* value, TVMFFIByteArray* out) {
  switch (value->type_index) {
    case kTVMFFIRawStr:
      if (value->v_c_str == NULL) return 0; /* violates the ABI */
      out->data = value->v_c_str;
      out->size = strlen(value->v_c_str);
      return 1;
    case kTVMFFISmallStr:
      out->data = value->v_bytes;
      out->size = value->small_str_len;
      return 1;
    case kTVMFFIStr:
      *out = *(const TVMFFIByteArray*)anyfn_object_cell(value->v_obj);
      return 1;
    default:
      return 0;
  }
}

/** Gets the content of a bytes value, like anyfn_get_str() for strings. */
static inline int anyfn_get_bytes(const TVMFFIAny* value, TVMFFIByteArray* out) {
  switch (value->type_index) {
    case kTVMFFIByteArrayPtr:
      if (value->v_ptr == NULL) return 0; /* violates the ABI */
      *out = *(const TVMFFIByteArray*)value->v_ptr;
      return 1;
    case kTVMFFISmallBytes:
      out->data = value->v_bytes;
      out->size = value->small_str_len;
      return 1;
    case kTVMFFIBytes:
      *out = *(const TVMFFIByteArray*)anyfn_object_cell(value->v_obj);
      return 1;
    default:
      return 0;
  }
}

/** Returns the tensor that a value owns or refers to, borrowed from the value, or NULL if the value is not a tensor. */
static inline DLTensor* anyfn_get_tensor(const TVMFFIAny* value) {
  switch (value->type_index) {
    case kTVMFFIDLTensorPtr:
      return (DLTensor*)value->v_ptr;
    case kTVMFFITensor:
      return (DLTensor*)anyfn_object_cell(value->v_obj);
    default:
      return NULL;
  }
}

/** Reads argument `i` as a string, borrowed for the call. Raises `TypeError` for other types. */
ANYFN_MUST_USE static inline int anyfn_arg_str(const TVMFFIAny* args, int32_t num_args, int32_t i,
                                               TVMFFIByteArray* out) {
  if (anyfn_check_arg(num_args, i)) return -1;
  return anyfn_get_str(&args[i], out) ? 0 : (anyfn_raise_arg(args, i, "str"), -1);
}

/** Reads argument `i` as bytes, borrowed for the call. Raises `TypeError` for other types. */
ANYFN_MUST_USE static inline int anyfn_arg_bytes(const TVMFFIAny* args, int32_t num_args, int32_t i,
                                                 TVMFFIByteArray* out) {
  if (anyfn_check_arg(num_args, i)) return -1;
  return anyfn_get_bytes(&args[i], out) ? 0 : (anyfn_raise_arg(args, i, "bytes"), -1);
}

/**
 * Reads argument `i` as a tensor, borrowed for the call. Raises `TypeError` for other types.
 *
 * The data type, shape, strides and device are not checked; see anyfn_check_tensor().
 */
ANYFN_MUST_USE static inline int anyfn_arg_tensor(const TVMFFIAny* args, int32_t num_args, int32_t i, DLTensor** out) {
  DLTensor* tensor;
  if (anyfn_check_arg(num_args, i)) return -1;
  tensor = anyfn_get_tensor(&args[i]);
  if (tensor == NULL) return (anyfn_raise_arg(args, i, "ffi.Tensor"), -1);
  *out = tensor;
  return 0;
}

/** Reads argument `i` as a function, borrowed for the call. Raises `TypeError` for other types. */
ANYFN_MUST_USE static inline int anyfn_arg_function(const TVMFFIAny* args, int32_t num_args, int32_t i,
                                                    TVMFFIObjectHandle* out) {
  if (anyfn_check_arg(num_args, i)) return -1;
  if (args[i].type_index != kTVMFFIFunction) return (anyfn_raise_arg(args, i, "ffi.Function"), -1);
  *out = args[i].v_obj;
  return 0;
}

/** Reads argument `i` as an object of any type, borrowed for the call. Raises `TypeError` if it is not an object. */
ANYFN_MUST_USE static inline int anyfn_arg_object(const TVMFFIAny* args, int32_t num_args, int32_t i,
                                                  TVMFFIObjectHandle* out) {
  if (anyfn_check_arg(num_args, i)) return -1;
  if (args[i].type_index < kTVMFFIStaticObjectBegin) return (anyfn_raise_arg(args, i, "ffi.Object"), -1);
  *out = args[i].v_obj;
  return 0;
}

/* ---- Tensors ------------------------------------------------------------------------------------------------- */

/** Returns the address of the first element. */
static inline void* anyfn_tensor_data(const DLTensor* tensor) { return (char*)tensor->data + tensor->byte_offset; }

/** Returns the number of elements. The shape must have no negative extents, and their product must fit into 64 bits. */
static inline int64_t anyfn_tensor_size(const DLTensor* tensor) {
  int64_t size = 1;
  int32_t i;
  for (i = 0; i < tensor->ndim; ++i) {
    size *= tensor->shape[i];
  }
  return size;
}

/** Returns 1 if the elements are stored in row-major order without gaps, otherwise 0. */
static inline int anyfn_tensor_is_contiguous(const DLTensor* tensor) {
  int64_t expected = 1;
  int32_t i;
  if (tensor->strides == NULL) return 1;
  for (i = 0; i < tensor->ndim; ++i) {
    if (tensor->shape[i] == 0) return 1;
  }
  for (i = tensor->ndim - 1; i >= 0; --i) {
    if (tensor->shape[i] != 1 && tensor->strides[i] != expected) return 0;
    expected *= tensor->shape[i];
  }
  return 1;
}

/** Writes the name of a data type, such as `float32` or `int8x4`, to `buffer` and returns `buffer`. */
static inline const char* anyfn_dtype_name(DLDataType dtype, char buffer[32]) {
  static const char* const names[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
  int length;
  if (dtype.code >= sizeof(names) / sizeof(names[0])) {
    length = snprintf(buffer, 32, "type code %u, bits %u", (unsigned)dtype.code, (unsigned)dtype.bits);
  } else if (dtype.code == kDLOpaqueHandle || (dtype.code == kDLBool && dtype.bits == 8)) {
    length = snprintf(buffer, 32, "%s", names[dtype.code]);
  } else {
    length = snprintf(buffer, 32, "%s%u", names[dtype.code], (unsigned)dtype.bits);
  }
  if (dtype.lanes != 1 && length > 0 && length < 32) {
    (void)snprintf(buffer + length, 32 - (size_t)length, "x%u", (unsigned)dtype.lanes);
  }
  return buffer;
}

/**
 * Checks that a tensor is contiguous, in host memory, and has scalar elements of a type such as `kDLFloat`, 32.
 *
 * `name` is the name of the tensor in messages. Raises `TypeError` for another data type, and `ValueError` otherwise.
 */
ANYFN_MUST_USE static inline int anyfn_check_tensor(const DLTensor* tensor, uint8_t code, uint8_t bits,
                                                    const char* name) {
  if (tensor->dtype.code != code || tensor->dtype.bits != bits || tensor->dtype.lanes != 1) {
    char expected_name[32], got_name[32];
    DLDataType expected;
    expected.code = code;
    expected.bits = bits;
    expected.lanes = 1;
    (void)anyfn_raise("TypeError", "%s: expected elements of type `%s` but got `%s`", name,
                      anyfn_dtype_name(expected, expected_name), anyfn_dtype_name(tensor->dtype, got_name));
    return -1;
  }
  if (tensor->device.device_type != kDLCPU) {
    (void)anyfn_raise("ValueError", "%s: expected a tensor in main memory, but its device type is %d", name,
                       (int)tensor->device.device_type);
    return -1;
  }
  if (!anyfn_tensor_is_contiguous(tensor)) {
    (void)anyfn_raise("ValueError", "%s: expected a contiguous tensor", name);
    return -1;
  }
  return 0;
}

/* ---- Returning values ---------------------------------------------------------------------------------------- */

/** Sets the result to None. Always returns 0. */
static inline int anyfn_return_none(TVMFFIAny* result) {
  *result = anyfn_none();
  return 0;
}

/** Sets the result to an int. Always returns 0. */
static inline int anyfn_return_int(TVMFFIAny* result, int64_t x) {
  *result = anyfn_int(x);
  return 0;
}

/** Sets the result to a bool. Always returns 0. */
static inline int anyfn_return_bool(TVMFFIAny* result, int x) {
  *result = anyfn_bool(x);
  return 0;
}

/** Sets the result to a float. Always returns 0. */
static inline int anyfn_return_float(TVMFFIAny* result, double x) {
  *result = anyfn_float(x);
  return 0;
}

/** Sets the result to an opaque pointer. Always returns 0. */
static inline int anyfn_return_ptr(TVMFFIAny* result, void* p) {
  *result = anyfn_ptr(p);
  return 0;
}

/** Sets the result to an owned string with a copy of `size` bytes of UTF-8. */
ANYFN_MUST_USE static inline int anyfn_return_str_n(TVMFFIAny* result, const char* text, size_t size) {
  TVMFFIByteArray bytes;
  bytes.data = text;
  bytes.size = size;
  return TVMFFIStringFromByteArray(&bytes, result);
}

/** Sets the result to an owned string with a copy of a NUL-terminated string. */
ANYFN_MUST_USE static inline int anyfn_return_str(TVMFFIAny* result, const char* text) {
  return anyfn_return_str_n(result, text, strlen(text));
}

/** Sets the result to owned bytes with a copy of the data. */
ANYFN_MUST_USE static inline int anyfn_return_bytes(TVMFFIAny* result, const void* data, size_t size) {
  TVMFFIByteArray bytes;
  bytes.data = (const char*)data;
  bytes.size = size;
  return TVMFFIBytesFromByteArray(&bytes, result);
}

/** Sets the result to an object, and transfers the caller's reference to it. Always returns 0. */
static inline int anyfn_return_object(TVMFFIAny* result, TVMFFIObjectHandle object) {
  *result = anyfn_object(object);
  return 0;
}

/** Sets the result to an owned copy of a view, such as an argument. */
ANYFN_MUST_USE static inline int anyfn_return_view(TVMFFIAny* result, const TVMFFIAny* view) {
  return TVMFFIAnyViewToOwnedAny(view, result);
}

/* ---- Functions ----------------------------------------------------------------------------------------------- */

/** Returns a NUL-terminated string as a byte array that borrows it. */
static inline TVMFFIByteArray anyfn_byte_array(const char* text) {
  TVMFFIByteArray bytes;
  bytes.data = text;
  bytes.size = strlen(text);
  return bytes;
}

/**
 * Calls a function with views as arguments.
 *
 * `*result` is overwritten; its previous content is not released. It is an owned value on success and None on failure.
 */
ANYFN_MUST_USE static inline int anyfn_call(TVMFFIObjectHandle function, const TVMFFIAny* args, int32_t num_args,
                                            TVMFFIAny* result) {
  int code;
  *result = anyfn_none();
  /* The ABI takes a pointer to mutable arguments but never writes through it. */
  code = TVMFFIFunctionCall(function, (TVMFFIAny*)args, num_args, result);
  if (code != 0) {
    *result = anyfn_none();
  }
  return code;
}

/** Looks up a global function. `*out` is owned by the caller; it is NULL if the function does not exist. */
ANYFN_MUST_USE static inline int anyfn_find_global(const char* name, TVMFFIObjectHandle* out) {
  TVMFFIByteArray bytes = anyfn_byte_array(name);
  return TVMFFIFunctionGetGlobal(&bytes, out);
}

/** Raises `ValueError` for a global function that does not exist. Always returns -1. */
static inline int anyfn_raise_missing(const char* name) {
  TVMFFIObjectHandle describe = NULL;
  TVMFFIAny argument = anyfn_str(name), message = anyfn_none();
  TVMFFIByteArray text;
  if (anyfn_find_global("anyfn.missing_function", &describe)) return -1;
  if (describe != NULL && anyfn_call(describe, &argument, 1, &message) == 0 && anyfn_get_str(&message, &text)) {
    (void)anyfn_raise("ValueError", "%.*s", (int)text.size, text.data);
  } else {
    (void)anyfn_raise("ValueError", "Cannot find global function %s", name);
  }
  anyfn_release(&message);
  if (describe != NULL) anyfn_release_object(describe);
  return -1;
}

/** Looks up a global function. `*out` is owned by the caller. Raises `ValueError` if the function does not exist. */
ANYFN_MUST_USE static inline int anyfn_get_global(const char* name, TVMFFIObjectHandle* out) {
  TVMFFIObjectHandle function = NULL;
  if (anyfn_find_global(name, &function)) return -1;
  if (function == NULL) {
    (void)anyfn_raise_missing(name);
    return -1;
  }
  *out = function;
  return 0;
}

/** Calls a global function by name, like anyfn_call(). Raises `ValueError` if the function does not exist. */
ANYFN_MUST_USE static inline int anyfn_call_global(const char* name, const TVMFFIAny* args, int32_t num_args,
                                                   TVMFFIAny* result) {
  int code;
  TVMFFIObjectHandle function;
  if (anyfn_get_global(name, &function)) return -1;
  code = anyfn_call(function, args, num_args, result);
  anyfn_release_object(function);
  return code;
}

/**
 * Makes a function object that calls a C function. `*out` is owned by the caller.
 *
 * `self` is the first argument of each call of `function`. `deleter(self)`, unless it is NULL, is called when the
 * function object is destroyed. If both are NULL, `function` receives the function object itself as `self`.
 */
ANYFN_MUST_USE static inline int anyfn_make_function(TVMFFISafeCallType function, void* self,
                                                     void (*deleter)(void* self), TVMFFIObjectHandle* out) {
  return TVMFFIFunctionCreate(self, function, deleter, out);
}

/** Registers a C function under a global name. Raises `RuntimeError` if the name is taken and `allow_override` is 0. */
ANYFN_MUST_USE static inline int anyfn_register(const char* name, TVMFFISafeCallType function, int allow_override) {
  int code;
  TVMFFIObjectHandle object;
  TVMFFIByteArray bytes = anyfn_byte_array(name);
  if (TVMFFIFunctionCreate(NULL, function, NULL, &object)) return -1;
  code = TVMFFIFunctionSetGlobal(&bytes, object, allow_override);
  anyfn_release_object(object);
  return code;
}

/* ---- Handling errors ----------------------------------------------------------------------------------------- */

/** Takes the error that is raised on this thread; the caller owns it. Returns NULL if no error is raised. */
static inline TVMFFIObjectHandle anyfn_take_error(void) {
  TVMFFIObjectHandle error = NULL;
  TVMFFIErrorMoveFromRaised(&error);
  return error;
}

/** Raises an error object, for example again. The caller keeps its reference. Always returns -1. */
static inline int anyfn_raise_object(TVMFFIObjectHandle error) {
  TVMFFIErrorSetRaised(error);
  return -1;
}

/** Returns the content of an error, borrowed from the error. */
static inline const TVMFFIErrorCell* anyfn_error_cell(TVMFFIObjectHandle error) {
  return (const TVMFFIErrorCell*)anyfn_object_cell(error);
}

/** Returns the kind of an error, such as `ValueError`, borrowed from the error. */
static inline TVMFFIByteArray anyfn_error_kind(TVMFFIObjectHandle error) { return anyfn_error_cell(error)->kind; }

/** Returns the message of an error, borrowed from the error. */
static inline TVMFFIByteArray anyfn_error_message(TVMFFIObjectHandle error) {
  return anyfn_error_cell(error)->message;
}

/** Returns the backtrace of an error, most recent call first, borrowed from the error. */
static inline TVMFFIByteArray anyfn_error_backtrace(TVMFFIObjectHandle error) {
  return anyfn_error_cell(error)->backtrace;
}

/** Takes the error that is raised on this thread and prints `kind: message` and its backtrace. Always returns -1. */
static inline int anyfn_print_error(FILE* file) {
  TVMFFIObjectHandle error = anyfn_take_error();
  if (error == NULL) {
    fprintf(file, "no error is raised on this thread\n");
    return -1;
  }
  {
    const TVMFFIErrorCell* cell = anyfn_error_cell(error);
    fprintf(file, "%.*s: %.*s\n%.*s", (int)cell->kind.size, cell->kind.data, (int)cell->message.size,
            cell->message.data, (int)cell->backtrace.size, cell->backtrace.size > 0 ? cell->backtrace.data : "");
  }
  anyfn_release_object(error);
  return -1;
}

#endif /* ANYFN_ANYFN_H_ */
