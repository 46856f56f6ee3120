/*
 * Support code for the generated conformance program: values of the corpus, a comparison, and the three ways to run a
 * case.
 */
#ifndef ANYFN_CONFORMANCE_SUPPORT_H_
#define ANYFN_CONFORMANCE_SUPPORT_H_

#include <anyfn/program.h>

#include <dlfcn.h>
#include <inttypes.h>

static int conformance_passed, conformance_failed;

/* Stops the program because the corpus itself cannot be built. */
static void conformance_die(const char* what) {
  fprintf(stderr, "conformance: %s\n", what);
  (void)anyfn_print_error(stderr);
  exit(2);
}

static TVMFFIObjectHandle global_function(const char* name) {
  TVMFFIObjectHandle f = NULL;
  if (anyfn_get_global(name, &f) != 0 || f == NULL) conformance_die(name);
  return f;
}

/* Calls a global function that must succeed. */
static TVMFFIAny call_global(const char* name, TVMFFIAny* args, int32_t count) {
  TVMFFIObjectHandle f = global_function(name);
  TVMFFIAny result = anyfn_none();
  if (anyfn_call(f, args, count, &result) != 0) conformance_die(name);
  anyfn_release_object(f);
  return result;
}

static void conformance_release(TVMFFIAny* value) { anyfn_release(value); }

/* ---- Values: each function gives an owned value ---------------------------------------------------------------- */

static inline TVMFFIAny make_none(void) { return anyfn_none(); }
static inline TVMFFIAny make_bool(int b) { return anyfn_bool(b); }
static inline TVMFFIAny make_int(int64_t n) { return anyfn_int(n); }

static inline TVMFFIAny make_bigint(size_t count, const int64_t* words) {
  TVMFFIByteArray bytes = {(const char*)words, count * sizeof(*words)};
  TVMFFIAny out = anyfn_none();
  if (TVMFFIBigIntFromByteArray(&bytes, &out) != 0) conformance_die("make_bigint");
  return out;
}

static inline TVMFFIAny make_float_bits(uint64_t bits) {
  double x;
  memcpy(&x, &bits, sizeof(x));
  return anyfn_float(x);
}

static inline TVMFFIAny make_str(const char* data, size_t size) {
  TVMFFIByteArray bytes = {data, size};
  TVMFFIAny out = anyfn_none();
  if (TVMFFIStringFromByteArray(&bytes, &out) != 0) conformance_die("make_str");
  return out;
}

static inline TVMFFIAny make_bytes(const char* data, size_t size) {
  TVMFFIByteArray bytes = {data, size};
  TVMFFIAny out = anyfn_none();
  if (TVMFFIBytesFromByteArray(&bytes, &out) != 0) conformance_die("make_bytes");
  return out;
}

static inline TVMFFIAny make_dtype(const char* name) {
  TVMFFIByteArray text = {name, strlen(name)};
  DLDataType dtype;
  if (TVMFFIDataTypeFromString(&text, &dtype) != 0) conformance_die(name);
  return anyfn_dtype(dtype);
}

static inline TVMFFIAny make_device(int32_t kind, int32_t number) {
  DLDevice device = {kind, number};
  TVMFFIAny out = anyfn_none();
  out.type_index = kTVMFFIDevice;
  out.v_device = device;
  return out;
}

static inline TVMFFIAny make_opaque(uint64_t address) { return anyfn_ptr((void*)(uintptr_t)address); }

static inline TVMFFIAny make_object(TVMFFIObjectHandle object, int32_t type_index) {
  TVMFFIAny out = anyfn_none();
  out.type_index = type_index;
  out.v_ptr = object;
  return out;
}

static inline TVMFFIAny make_global(const char* name) { return make_object(global_function(name), kTVMFFIFunction); }

static inline TVMFFIAny make_through(const char* function, int32_t count, TVMFFIAny* items) {
  TVMFFIAny out = call_global(function, items, count);
  for (int32_t i = 0; i < count; ++i) anyfn_release(&items[i]);
  return out;
}

static inline TVMFFIAny make_array(int32_t count, TVMFFIAny* items) { return make_through("ffi.Array", count, items); }
static inline TVMFFIAny make_map(int32_t count, TVMFFIAny* items) { return make_through("ffi.Map", count, items); }
static inline TVMFFIAny make_shape(int32_t count, TVMFFIAny* items) { return make_through("ffi.Shape", count, items); }

static inline TVMFFIAny make_copy(TVMFFIAny value) {
  TVMFFIAny out = anyfn_none();
  if (anyfn_copy(&value, &out) != 0) conformance_die("make_copy");
  return out;
}

/* A field, read by its name. */
static inline TVMFFIAny make_field(TVMFFIAny object, const char* name) {
  TVMFFIAny out = anyfn_none();
  if (object.type_index < kTVMFFIStaticObjectBegin || anyfn_get_field(object.v_obj, name, &out) != 0) {
    conformance_die(name);
  }
  anyfn_release(&object);
  return out;
}

/* Sets a field by its name. */
static inline TVMFFIAny make_set(TVMFFIAny object, const char* name, TVMFFIAny value) {
  if (object.type_index < kTVMFFIStaticObjectBegin || anyfn_set_field(object.v_obj, name, &value) != 0) {
    conformance_die(name);
  }
  anyfn_release(&object);
  anyfn_release(&value);
  return anyfn_none();
}

/* Returns the value that a type has registered as an attribute. */
static inline TVMFFIAny make_attribute(const char* type_key, const char* name) {
  TVMFFIByteArray key = anyfn_byte_array(type_key), attribute = anyfn_byte_array(name);
  const TVMFFITypeAttrColumn* column = TVMFFIGetTypeAttrColumn(&attribute);
  int32_t index = -1;
  if (TVMFFITypeKeyToIndex(&key, &index) != 0 || column == NULL || index - column->begin_index >= column->size) {
    conformance_die(name);
  }
  return make_copy(column->data[index - column->begin_index]);
}

static void delete_tensor(DLManagedTensorVersioned* tensor) {
  free(tensor->dl_tensor.shape);
  free(tensor->dl_tensor.data);
  free(tensor);
}

static inline TVMFFIAny make_tensor(uint8_t code, uint8_t bits, int32_t ndim, const int64_t* shape, const char* data,
                                    size_t size) {
  DLManagedTensorVersioned* tensor = (DLManagedTensorVersioned*)calloc(1, sizeof(*tensor));
  TVMFFIObjectHandle out = NULL;
  tensor->version.major = DLPACK_MAJOR_VERSION;
  tensor->version.minor = DLPACK_MINOR_VERSION;
  tensor->deleter = delete_tensor;
  tensor->dl_tensor.data = malloc(size + 1);
  memcpy(tensor->dl_tensor.data, data, size);
  tensor->dl_tensor.device.device_type = kDLCPU;
  tensor->dl_tensor.ndim = ndim;
  tensor->dl_tensor.dtype.code = code;
  tensor->dl_tensor.dtype.bits = bits;
  tensor->dl_tensor.dtype.lanes = 1;
  tensor->dl_tensor.shape = (int64_t*)malloc(sizeof(int64_t) * (size_t)(ndim + 1));
  if (ndim > 0) memcpy(tensor->dl_tensor.shape, shape, sizeof(int64_t) * (size_t)ndim);
  if (TVMFFITensorFromDLPackVersioned(tensor, 0, 0, &out) != 0) conformance_die("make_tensor");
  return make_object(out, kTVMFFITensor);
}

/* ---- Callbacks of this frontend -------------------------------------------------------------------------------- */

static int callback_echo(void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
  (void)self;
  if (count != 1) return anyfn_raise("TypeError", "echo takes 1 argument, got %d", count);
  return TVMFFIAnyViewToOwnedAny(&args[0], result);
}

static int callback_count(void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
  (void)self;
  (void)args;
  *result = anyfn_int(count);
  return 0;
}

static int callback_fail(void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
  (void)self;
  (void)args;
  (void)count;
  (void)result;
  return anyfn_raise("ValueError", "callback failed");
}

static inline TVMFFIAny make_callback(const char* name) {
  TVMFFISafeCallType code = strcmp(name, "echo") == 0    ? callback_echo
                            : strcmp(name, "count") == 0 ? callback_count
                            : strcmp(name, "fail") == 0  ? callback_fail
                                                         : NULL;
  TVMFFIObjectHandle out = NULL;
  if (code == NULL || TVMFFIFunctionCreate(NULL, code, NULL, &out) != 0) conformance_die(name);
  return make_object(out, kTVMFFIFunction);
}

/* ---- Comparison ------------------------------------------------------------------------------------------------ */

static int is_str(const TVMFFIAny* v) { return v->type_index == kTVMFFISmallStr || v->type_index == kTVMFFIStr; }
static int is_bytes(const TVMFFIAny* v) { return v->type_index == kTVMFFISmallBytes || v->type_index == kTVMFFIBytes; }

static TVMFFIByteArray content(const TVMFFIAny* v) {
  if (v->type_index == kTVMFFISmallStr || v->type_index == kTVMFFISmallBytes) {
    TVMFFIByteArray bytes = {v->v_bytes, v->small_str_len};
    return bytes;
  }
  return *(const TVMFFIByteArray*)(const void*)(v->v_obj + 1);
}

static int64_t size_of(const char* function, const TVMFFIAny* v) {
  TVMFFIAny arg = *v;
  return call_global(function, &arg, 1).v_int64;
}

static int same(const TVMFFIAny* a, const TVMFFIAny* b);

static int same_array(const TVMFFIAny* a, const TVMFFIAny* b) {
  int64_t n = size_of("ffi.ArraySize", a);
  int equal = n == size_of("ffi.ArraySize", b);
  for (int64_t i = 0; equal && i < n; ++i) {
    TVMFFIAny left[2] = {*a, anyfn_int(i)}, right[2] = {*b, anyfn_int(i)};
    TVMFFIAny x = call_global("ffi.ArrayGetItem", left, 2), y = call_global("ffi.ArrayGetItem", right, 2);
    equal = same(&x, &y);
    anyfn_release(&x);
    anyfn_release(&y);
  }
  return equal;
}

/* Returns 1 if two mappings have the same pairs in the same order. */
static int same_map(const TVMFFIAny* a, const TVMFFIAny* b) {
  TVMFFIAny left = *a, right = *b, commands[3];
  int64_t n = size_of("ffi.MapSize", a);
  int equal = n == size_of("ffi.MapSize", b);
  if (!equal || n == 0) return equal;
  left = call_global("ffi.MapForwardIterFunctor", &left, 1);
  right = call_global("ffi.MapForwardIterFunctor", &right, 1);
  for (int i = 0; i < 3; ++i) commands[i] = anyfn_int(i);
  for (int more = 1; equal && more;) {
    for (int i = 0; equal && i < 2; ++i) { /* key, value */
      TVMFFIAny x = anyfn_none(), y = anyfn_none();
      if (anyfn_call(left.v_obj, &commands[i], 1, &x) != 0) conformance_die("map iterator");
      if (anyfn_call(right.v_obj, &commands[i], 1, &y) != 0) conformance_die("map iterator");
      equal = same(&x, &y);
      anyfn_release(&x);
      anyfn_release(&y);
    }
    TVMFFIAny next = anyfn_none();
    if (anyfn_call(left.v_obj, &commands[2], 1, &next) != 0) conformance_die("map iterator");
    more = next.v_int64 != 0;
    next = anyfn_none();
    if (anyfn_call(right.v_obj, &commands[2], 1, &next) != 0) conformance_die("map iterator");
    equal = equal && more == (next.v_int64 != 0);
  }
  anyfn_release(&left);
  anyfn_release(&right);
  return equal;
}

static int same_tensor(const DLTensor* a, const DLTensor* b) {
  size_t bytes = a->dtype.bits / 8;
  if (memcmp(&a->dtype, &b->dtype, sizeof(a->dtype)) != 0 || a->ndim != b->ndim) return 0;
  for (int i = 0; i < a->ndim; ++i) {
    if (a->shape[i] != b->shape[i]) return 0;
    bytes *= (size_t)a->shape[i];
  }
  return memcmp((char*)a->data + a->byte_offset, (char*)b->data + b->byte_offset, bytes) == 0;
}

static int same(const TVMFFIAny* a, const TVMFFIAny* b) {
  if ((is_str(a) && is_str(b)) || (is_bytes(a) && is_bytes(b))) {
    TVMFFIByteArray x = content(a), y = content(b);
    return x.size == y.size && memcmp(x.data, y.data, x.size) == 0;
  }
  if (a->type_index != b->type_index) return 0;
  switch (a->type_index) {
    case kTVMFFIArray:
      return same_array(a, b);
    case kTVMFFIMap:
      return same_map(a, b);
    case kTVMFFITensor:
      return same_tensor((const DLTensor*)(const void*)(a->v_obj + 1), (const DLTensor*)(const void*)(b->v_obj + 1));
    case kTVMFFIBigInt: {
      TVMFFIByteArray x = TVMFFIBigIntGetContentByteArray(a), y = TVMFFIBigIntGetContentByteArray(b);
      return x.size == y.size && memcmp(x.data, y.data, x.size) == 0;
    }
    case kTVMFFIShape: {
      const TVMFFIShapeCell *x = (const TVMFFIShapeCell*)(const void*)(a->v_obj + 1),
                            *y = (const TVMFFIShapeCell*)(const void*)(b->v_obj + 1);
      return x->size == y->size && (x->size == 0 || memcmp(x->data, y->data, x->size * sizeof(int64_t)) == 0);
    }
    default:
      return a->v_uint64 == b->v_uint64;
  }
}

/* ---- Running cases --------------------------------------------------------------------------------------------- */

static void conformance_count(int ok, const char* way, const char* name) {
  if (ok) {
    ++conformance_passed;
    return;
  }
  ++conformance_failed;
  printf("FAILED %s %s\n", way, name);
  (void)anyfn_print_error(stdout);
}

static inline void conformance_begin(void) {
  TVMFFIAny path = anyfn_str(getenv("ANYFN_TESTING_LIB")), module;
  if (path.type_index == kTVMFFINone) conformance_die("set ANYFN_TESTING_LIB to the path of the testing library");
  module = call_global("ffi.ModuleLoadFromFile", &path, 1);
  path = module; /* the module stays loaded for the whole run */
  (void)path;
}

/* Checks a List and a Dict that C++ code has made and changed, which C changes again and releases. */
static inline void conformance_peer_containers(void) {
  TVMFFIAny items[3] = {anyfn_int(1), anyfn_int(2), anyfn_int(3)}, array, list, dict, append[2], set[3];
  array = call_global("ffi.Array", items, 3);
  list = call_global("testing.schema_id_list_int", &array, 1); /* converts, so C++ makes the List */
  for (int64_t i = 0; i < 1000; ++i) {
    append[0] = list;
    append[1] = anyfn_int(i);
    (void)call_global("ffi.ListAppend", append, 2);
  }
  conformance_count(size_of("ffi.ListSize", &list) == 1003, "peer", "list of C++ grown by us");
  TVMFFIAny again = call_global("testing.schema_id_list_int", &list, 1); /* C++ reads what we have written */
  conformance_count(again.v_obj == list.v_obj, "peer", "list of ours read by C++");
  anyfn_release(&again);
  anyfn_release(&list);
  anyfn_release(&array);
  dict = call_global("ffi.Dict", NULL, 0);
  for (int64_t i = 0; i < 1000; ++i) {
    char key[32];
    set[0] = dict;
    set[1] = make_str(key, (size_t)snprintf(key, sizeof(key), "key number %d", (int)i));
    set[2] = anyfn_int(i);
    (void)call_global("ffi.DictSetItem", set, 3);
    anyfn_release(&set[1]);
  }
  again = call_global("testing.schema_id_dict_str_int", &dict, 1);
  conformance_count(again.v_obj == dict.v_obj, "peer", "dict of ours read by C++");
  anyfn_release(&again);
  anyfn_release(&dict);
}

/* Loads the peer's testing library, which is C++ compiled against the peer's headers and calls our functions. */
static inline void conformance_begin_peer(void) {
  const char* path = getenv("ANYFN_PEER_LIB");
  if (path == NULL) conformance_die("set ANYFN_PEER_LIB to the path of libtvm_ffi_testing.so");
  if (dlopen(path, RTLD_NOW | RTLD_GLOBAL) == NULL) conformance_die(dlerror());
  conformance_peer_containers();
}

/* Checks that a call returns `expected`. */
static void conformance_call(const char* name, const char* function, TVMFFIAny* args, int32_t count,
                             TVMFFIAny expected) {
  TVMFFIObjectHandle f = global_function(function);
  TVMFFIAny result = anyfn_none();
  int ok = anyfn_call(f, args, count, &result) == 0 && same(&result, &expected);
  conformance_count(ok, "call", name);
  anyfn_release(&result);
  anyfn_release_object(f);
}

/* First part of the names of the functions under test, and the cases to run: an Array of names, or None for all. */
static char conformance_prefix[64] = "testing";
static TVMFFIAny conformance_names;

/* Returns the global name of a function under test, such as `testing.echo`, until the next call. */
static inline const char* conformance_function(const char* name) {
  static char full[128];
  (void)snprintf(full, sizeof(full), "%s.%s", conformance_prefix, name);
  return full;
}

/* Begins a run by another program, which passes the prefix and the names of cases. */
static inline int conformance_plugin(const TVMFFIAny* args, int32_t num_args) {
  TVMFFIByteArray prefix;
  if (anyfn_check_num_args(num_args, 2) || anyfn_arg_str(args, num_args, 0, &prefix)) return -1;
  (void)snprintf(conformance_prefix, sizeof(conformance_prefix), "%.*s", (int)prefix.size, prefix.data);
  conformance_names = args[1];
  conformance_passed = conformance_failed = 0;
  return 0;
}

/* Returns 1 if a case is to be run. */
static inline int conformance_selected(const char* name) {
  TVMFFIAny item;
  TVMFFIByteArray text;
  int64_t i, size;
  if (conformance_names.type_index == kTVMFFINone) return 1;
  if (anyfn_get_size(&conformance_names, &size)) conformance_die(name);
  for (i = 0; i < size; ++i) {
    int found;
    if (anyfn_get_item(&conformance_names, i, &item)) conformance_die(name);
    found = anyfn_get_str(&item, &text) && text.size == strlen(name) && memcmp(text.data, name, text.size) == 0;
    anyfn_release(&item);
    if (found) return 1;
  }
  return 0;
}

/* Passes a value to a function of another language, which returns it. */
static inline void conformance_out(const char* name, TVMFFIAny value) {
  conformance_call(name, conformance_function("echo"), &value, 1, value);
}

/* Passes a value to a callback of this language, which returns it. */
static inline void conformance_in(const char* name, TVMFFIAny value) {
  TVMFFIAny args[2];
  args[0] = make_callback("echo");
  args[1] = value;
  conformance_call(name, conformance_function("apply"), args, 2, value);
  anyfn_release(&args[0]);
}

/* Checks that a call, or the lookup of its function, fails with `kind` and `message`. */
static inline void conformance_error(const char* name, const char* function, TVMFFIAny* args, int32_t count,
                                     const char* kind, const char* message) {
  TVMFFIObjectHandle error = NULL;
  TVMFFIAny result = anyfn_none();
  int ok = anyfn_call_global(function, args, count, &result) != 0;
  if (ok) {
    const TVMFFIErrorCell* cell;
    TVMFFIErrorMoveFromRaised(&error);
    if (error == NULL) conformance_die(name);
    cell = (const TVMFFIErrorCell*)(const void*)((TVMFFIObject*)error + 1);
    ok = cell->kind.size == strlen(kind) && memcmp(cell->kind.data, kind, cell->kind.size) == 0 &&
         cell->message.size == strlen(message) && memcmp(cell->message.data, message, cell->message.size) == 0;
    if (!ok) {
      printf("  expected %s: %s\n  got      %.*s: %.*s\n", kind, message, (int)cell->kind.size, cell->kind.data,
             (int)cell->message.size, cell->message.data);
    }
    anyfn_release_object(error);
  }
  conformance_count(ok, "error", name);
  anyfn_release(&result);
}

/* Like conformance_error(), and checks that the process continues. */
static inline void conformance_fail(const char* name, const char* function, TVMFFIAny* args, int32_t count,
                                    const char* kind, const char* message) {
  conformance_error(name, function, args, count, kind, message);
  conformance_call(name, conformance_function("echo"), (TVMFFIAny[]){anyfn_int(1)}, 1, anyfn_int(1));
}

/* Lets the function under test raise an error, and lets an error of this language pass through it. */
static inline void conformance_errors(void) {
  TVMFFIAny callback = make_callback("fail");
  conformance_error("raised", conformance_function("raise_error"),
                    (TVMFFIAny[]){anyfn_str("ValueError"), anyfn_str("told so")}, 2, "ValueError", "told so");
  conformance_error("passed through", conformance_function("apply"), &callback, 1, "ValueError", "callback failed");
  anyfn_release(&callback);
}

/* Returns the numbers of checks that passed and failed as an Array. */
static inline int conformance_counts(TVMFFIAny* result) {
  return anyfn_make_array(ANYFN_ARGS(anyfn_int(conformance_passed), anyfn_int(conformance_failed)), result);
}

static inline int conformance_end(void) {
  printf("%d passed, %d failed\n", conformance_passed, conformance_failed);
  return conformance_failed != 0;
}

#endif
