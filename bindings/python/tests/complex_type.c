/*
 * A plugin in C that defines a type: a complex number with fields, a printer, methods, a constructor and a copy.
 * Objects of the type contain a string, so that the tests detect errors in moving and releasing them.
 */
#include <anyfn/anyfn.h>

typedef struct {
  TVMFFIObject header;
  double re, im;
  TVMFFIAny note; /* owned */
} Complex;

static int32_t type_index;
static int64_t alive;

static TVMFFIByteArray text(const char* data) {
  TVMFFIByteArray array = {data, strlen(data)};
  return array;
}

static void drop(void* self, int flags) {
  Complex* complex = (Complex*)self;
  if (flags & kTVMFFIObjectDeleterFlagBitMaskStrong) {
    if (complex->note.type_index >= kTVMFFIStaticObjectBegin) TVMFFIObjectDecRef(complex->note.v_obj);
  }
  if (flags & kTVMFFIObjectDeleterFlagBitMaskWeak) {
    __atomic_sub_fetch(&alive, 1, __ATOMIC_RELAXED);
    free(self);
  }
}

static int create(TVMFFIObjectHandle* out) {
  Complex* complex = (Complex*)calloc(1, sizeof(Complex));
  if (complex == NULL) return -1;
  __atomic_add_fetch(&alive, 1, __ATOMIC_RELAXED);
  complex->header.combined_ref_count = 0x100000001;
  complex->header.type_index = type_index;
  complex->header.deleter = drop;
  *out = complex;
  return 0;
}

static int get_double(void* field, TVMFFIAny* result) {
  memset(result, 0, sizeof(*result));
  result->type_index = kTVMFFIFloat;
  memcpy(&result->v_float64, field, sizeof(double));
  return 0;
}

static int set_double(void* field, const TVMFFIAny* value) {
  double number;
  if (value->type_index == kTVMFFIFloat) {
    number = value->v_float64;
  } else if (value->type_index == kTVMFFIInt) {
    number = (double)value->v_int64;
  } else {
    TVMFFIErrorSetRaisedFromCStr("TypeError", "a part of a complex number is a float");
    return -1;
  }
  memcpy(field, &number, sizeof(double));
  return 0;
}

static int get_any(void* field, TVMFFIAny* result) {
  *result = *(TVMFFIAny*)field;
  return result->type_index >= kTVMFFIStaticObjectBegin ? TVMFFIObjectIncRef(result->v_obj) : 0;
}

static int set_any(void* field, const TVMFFIAny* value) {
  TVMFFIAny owned, old = *(TVMFFIAny*)field;
  if (TVMFFIAnyViewToOwnedAny(value, &owned)) return -1;
  *(TVMFFIAny*)field = owned;
  return old.type_index >= kTVMFFIStaticObjectBegin ? TVMFFIObjectDecRef(old.v_obj) : 0;
}

static int return_text(const char* data, TVMFFIAny* result) {
  TVMFFIByteArray array = text(data);
  return TVMFFIStringFromByteArray(&array, result);
}

/* (object, show) -> str */
static int print(void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
  char buffer[64];
  const Complex* complex;
  (void)self;
  if (count < 1 || args[0].type_index < kTVMFFIStaticObjectBegin) return -1;
  complex = (const Complex*)args[0].v_obj;
  snprintf(buffer, sizeof(buffer), "%g%+gi", complex->re, complex->im);
  return return_text(buffer, result);
}

static int norm(void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
  const Complex* complex;
  (void)self;
  if (count != 1 || args[0].type_index < kTVMFFIStaticObjectBegin) {
    TVMFFIErrorSetRaisedFromCStr("TypeError", "norm takes an object");
    return -1;
  }
  complex = (const Complex*)args[0].v_obj;
  result->type_index = kTVMFFIFloat;
  result->v_float64 = complex->re * complex->re + complex->im * complex->im;
  return 0;
}

static int count_alive(void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
  (void)self, (void)args, (void)count;
  result->type_index = kTVMFFIInt;
  result->v_int64 = __atomic_load_n(&alive, __ATOMIC_RELAXED);
  return 0;
}

static int copy(void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
  const Complex* old;
  TVMFFIObjectHandle made;
  (void)self;
  if (count != 1 || create(&made)) return -1;
  old = (const Complex*)args[0].v_obj;
  ((Complex*)made)->re = old->re;
  ((Complex*)made)->im = old->im;
  if (set_any(&((Complex*)made)->note, &old->note)) return -1;
  result->type_index = type_index;
  result->v_obj = (TVMFFIObject*)made;
  return 0;
}

static int add_field(const char* name, const char* metadata, int64_t offset, int64_t size, int64_t flags,
                     TVMFFIFieldGetter get, TVMFFIFieldSetter set) {
  TVMFFIFieldInfo info;
  memset(&info, 0, sizeof(info));
  info.name = text(name);
  info.metadata = text(metadata);
  info.flags = kTVMFFIFieldFlagBitMaskWritable | flags;
  info.offset = offset;
  info.size = size;
  info.alignment = 8;
  info.getter = get;
  memcpy(&info.setter, &set, sizeof(set));
  info.field_static_type_index = kTVMFFIAny;
  return TVMFFITypeRegisterField(type_index, &info);
}

static int function_of(TVMFFISafeCallType call, TVMFFIAny* value) {
  memset(value, 0, sizeof(*value));
  value->type_index = kTVMFFIFunction;
  return TVMFFIFunctionCreate(NULL, call, NULL, (TVMFFIObjectHandle*)&value->v_obj);
}

static int add_method(const char* name, const char* doc, TVMFFISafeCallType call, int64_t flags) {
  TVMFFIMethodInfo info;
  memset(&info, 0, sizeof(info));
  info.name = text(name);
  info.doc = text(doc);
  info.flags = flags;
  return function_of(call, &info.method) || TVMFFITypeRegisterMethod(type_index, &info);
}

static int add_attribute(const char* name, TVMFFISafeCallType call) {
  TVMFFIByteArray key = text(name);
  TVMFFIAny value;
  return function_of(call, &value) || TVMFFITypeRegisterAttr(type_index, &key, &value);
}

ANYFN_EXPORT(setup) {
  TVMFFIByteArray key = text("plugin.Complex");
  TVMFFITypeMetadata metadata;
  type_index = TVMFFITypeGetOrAllocIndex(&key, -1, 1, 0, 1, kTVMFFIObject);
  if (type_index < 0) return -1;
  memset(&metadata, 0, sizeof(metadata));
  metadata.doc = text("A complex number.");
  metadata.creator = create;
  metadata.total_size = sizeof(Complex);
  metadata.structural_eq_hash_kind = 1;
  if (add_field("re", "{\"type_schema\":\"{\\\"type\\\":\\\"float\\\"}\"}", offsetof(Complex, re), 8, 0, get_double,
                set_double) ||
      add_field("im", "", offsetof(Complex, im), 8, 0, get_double, set_double) ||
      add_field("note", "", offsetof(Complex, note), 16, kTVMFFIFieldFlagBitMaskHasDefault, get_any, set_any) ||
      add_method("norm", "The square of its length.", norm, 0) ||
      add_method("alive", "Number of objects.", count_alive, kTVMFFIFieldFlagBitMaskIsStaticMethod) ||
      add_attribute("__ffi_repr__", print) || add_attribute("__ffi_shallow_copy__", copy))
    return -1;
  return TVMFFITypeRegisterMetadata(type_index, &metadata);
}
