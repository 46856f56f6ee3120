/*
 * A C program that embeds anyfn: it registers a function, loads a library, and calls Python.
 *
 *     cc -I include examples/embed/embed.c -o embed -L lib -lanyfn
 *     cc -I include -shared -fPIC examples/embed/scale.c -o scale.so
 *     cd examples/embed && ../../embed ../../scale.so python3
 */
#include <anyfn/program.h>

/* A function with a context: adds two numbers and counts its calls. */
static int add(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  int64_t a, b;
  if (anyfn_check_num_args(num_args, 2) || anyfn_arg_int(args, num_args, 0, &a)) return -1;
  if (anyfn_arg_int(args, num_args, 1, &b)) return -1;
  ++*(int64_t*)self;
  return anyfn_return_int(result, a + b);
}

/* Loads a library and calls its function. */
static int call_library(const char* path) {
  TVMFFIObjectHandle module, scale;
  TVMFFIAny result;
  int code;
  if (anyfn_load_module(path, &module)) return -1;
  code = anyfn_module_function(module, "scale", &scale);
  anyfn_release_object(module);
  if (code) return -1;
  code = anyfn_call(scale, ANYFN_ARGS(anyfn_float(1.5), anyfn_int(4)), &result);
  anyfn_release_object(scale);
  if (code) return -1;
  printf("scale(1.5, 4) = %g\n", result.v_float64);
  return 0;
}

/* Calls fold(numbers, add, names) in Python, which calls `add` back, and reads the result. */
static int call_python(TVMFFIObjectHandle fold, const TVMFFIAny* numbers, TVMFFIObjectHandle add_numbers) {
  TVMFFIAny names, sums, sum;
  int64_t size;
  int code;
  if (anyfn_make_map(ANYFN_ARGS(anyfn_str("result"), anyfn_str("sum")), &names)) return -1;
  code = anyfn_call(fold, ANYFN_ARGS(*numbers, anyfn_object(add_numbers), names), &sums);
  anyfn_release(&names);
  if (code) return -1;
  if (anyfn_get_size(&sums, &size) || anyfn_get_value(&sums, anyfn_str("sum"), &sum) || anyfn_print(stdout, &sums)) {
    code = -1;
  } else {
    printf("sum = %lld, one of %lld values\n", (long long)sum.v_int64, (long long)size);
  }
  anyfn_release(&sums);
  return code;
}

int main(int argc, char** argv) {
  int64_t calls = 0;
  TVMFFIObjectHandle add_numbers, session, fold;
  TVMFFIAny numbers, result;
  if (argc != 3) return fprintf(stderr, "usage: embed LIBRARY PYTHON\n"), 2;
  if (anyfn_register_with("embed.add", add, &calls, NULL, 0)) return anyfn_print_error(stderr), 1;
  if (anyfn_get_global("embed.add", &add_numbers)) return anyfn_print_error(stderr), 1;
  if (call_library(argv[1])) return anyfn_print_error(stderr), 1;
  if (anyfn_make_array(ANYFN_ARGS(anyfn_int(1), anyfn_int(2), anyfn_int(39)), &numbers)) return anyfn_print_error(stderr), 1;
  if (anyfn_spawn_python(argv[2], "fold", &session)) return anyfn_print_error(stderr), 1;
  if (anyfn_session_function(session, "fold.fold", &fold)) return anyfn_print_error(stderr), 1;
  if (call_python(fold, &numbers, add_numbers)) return anyfn_print_error(stderr), 1;
  printf("add was called %lld times\n", (long long)calls);
  /* An error of any language is printed with one call. Here Python has no number to begin with. */
  if (anyfn_call(fold, ANYFN_ARGS(anyfn_none(), anyfn_none(), anyfn_none()), &result)) (void)anyfn_print_error(stderr);
  anyfn_release(&numbers);
  anyfn_release_object(fold);
  anyfn_release_object(session);
  anyfn_release_object(add_numbers);
  return 0;
}
