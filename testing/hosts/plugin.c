/* The plugin in C, which every host loads. `plugin/src/lib.rs` and `plugin.cc` are its counterparts in Rust and C++. */
#include <anyfn/anyfn.h>

/* add(a, b): returns a + b. */
ANYFN_EXPORT(add) {
  int64_t a, b;
  if (anyfn_check_num_args(num_args, 2)) return -1;
  if (anyfn_arg_int(args, num_args, 0, &a) || anyfn_arg_int(args, num_args, 1, &b)) return -1;
  return anyfn_return_int(result, a + b);
}

/* fail(message): raises ValueError. */
ANYFN_EXPORT(fail) {
  TVMFFIByteArray text;
  if (anyfn_arg_str(args, num_args, 0, &text)) return -1;
  return anyfn_raise("ValueError", "%.*s", (int)text.size, text.data);
}

/* apply(f, x): returns f(x). */
ANYFN_EXPORT(apply) {
  TVMFFIObjectHandle f;
  if (anyfn_check_num_args(num_args, 2) || anyfn_arg_function(args, num_args, 0, &f)) return -1;
  return anyfn_call(f, &args[1], 1, result);
}

/* caught(f, x): returns the error that f(x) raises, as `kind: message`. */
ANYFN_EXPORT(caught) {
  TVMFFIObjectHandle f, error;
  TVMFFIByteArray kind, message;
  char text[256];
  if (anyfn_check_num_args(num_args, 2) || anyfn_arg_function(args, num_args, 0, &f)) return -1;
  if (anyfn_call(f, &args[1], 1, result) == 0) {
    anyfn_release(result);
    return anyfn_return_str(result, "nothing");
  }
  error = anyfn_take_error();
  kind = anyfn_error_kind(error);
  message = anyfn_error_message(error);
  (void)snprintf(text, sizeof(text), "%.*s: %.*s", (int)kind.size, kind.data, (int)message.size, message.data);
  anyfn_release_object(error);
  return anyfn_return_str(result, text);
}

/* reverse(items): returns the elements of an Array, at most 16, in reverse order. */
ANYFN_EXPORT(reverse) {
  TVMFFIAny size, items[16], at[2];
  int64_t i, taken = 0;
  int code;
  if (anyfn_check_num_args(num_args, 1) || anyfn_call_global("ffi.ArraySize", args, 1, &size)) return -1;
  if (size.v_int64 > 16) return anyfn_raise("ValueError", "expected at most 16 elements but got %d", (int)size.v_int64);
  at[0] = args[0];
  for (i = size.v_int64; i > 0; --i) {
    at[1] = anyfn_int(i - 1);
    if (anyfn_call_global("ffi.ArrayGetItem", at, 2, &items[taken])) break;
    taken++;
  }
  code = i > 0 ? -1 : anyfn_call_global("ffi.Array", items, (int32_t)taken, result);
  while (taken > 0) anyfn_release(&items[--taken]);
  return code;
}

static int add_to(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  int64_t x;
  if (anyfn_arg_int(args, num_args, 0, &x)) return -1;
  return anyfn_return_int(result, x + *(int64_t*)self);
}

/* This function, and not `free` itself, is the deleter, so that the last code that runs belongs to this library. */
static void free_number(void* self) { free(self); }

/* adder(n): returns a function that adds n. */
ANYFN_EXPORT(adder) {
  int64_t n;
  int64_t* number;
  TVMFFIObjectHandle f;
  if (anyfn_arg_int(args, num_args, 0, &n)) return -1;
  number = malloc(sizeof(*number));
  if (number == NULL) return anyfn_raise("MemoryError", "out of memory");
  *number = n;
  if (anyfn_make_function(add_to, number, free_number, &f)) {
    free(number);
    return -1;
  }
  return anyfn_return_object(result, f);
}

typedef struct {
  DLManagedTensor managed;
  float values[2];
  int64_t shape[1];
} numbers_t;

static void free_numbers(DLManagedTensor* managed) { free(managed); }

/* tensor(): returns a float32 tensor with the elements 1.5 and 2.5. */
ANYFN_EXPORT(tensor) {
  TVMFFIObjectHandle tensor;
  numbers_t* numbers;
  if (anyfn_check_num_args(num_args, 0)) return -1;
  numbers = calloc(1, sizeof(*numbers));
  if (numbers == NULL) return anyfn_raise("MemoryError", "out of memory");
  numbers->values[0] = 1.5f;
  numbers->values[1] = 2.5f;
  numbers->shape[0] = 2;
  numbers->managed.dl_tensor.data = numbers->values;
  numbers->managed.dl_tensor.shape = numbers->shape;
  numbers->managed.dl_tensor.ndim = 1;
  numbers->managed.dl_tensor.dtype.code = kDLFloat;
  numbers->managed.dl_tensor.dtype.bits = 32;
  numbers->managed.dl_tensor.dtype.lanes = 1;
  numbers->managed.dl_tensor.device.device_type = kDLCPU;
  numbers->managed.deleter = free_numbers;
  if (TVMFFITensorFromDLPack(&numbers->managed, 0, 0, &tensor)) {
    free(numbers);
    return -1;
  }
  return anyfn_return_object(result, tensor);
}

static int answer(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  (void)self;
  (void)args;
  (void)num_args;
  return anyfn_return_int(result, 42);
}

/* install(): registers the global function hosts.answer, which stays until it is removed. */
ANYFN_EXPORT(install) {
  if (anyfn_register("hosts.answer", answer, 0)) return -1;
  return anyfn_return_none(result);
}
