/* The functions of the matrix of frontends, defined in C. */
#include <anyfn/anyfn.h>

static int echo(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  (void)self;
  if (anyfn_check_num_args(num_args, 1)) return -1;
  return anyfn_return_view(result, &args[0]);
}

static int apply(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  TVMFFIObjectHandle function;
  (void)self;
  if (anyfn_arg_function(args, num_args, 0, &function)) return -1;
  return anyfn_call(function, args + 1, num_args - 1, result);
}

static int raise_error(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  TVMFFIByteArray kind, message;
  char name[64];
  (void)self, (void)result;
  if (anyfn_arg_str(args, num_args, 0, &kind) || anyfn_arg_str(args, num_args, 1, &message)) return -1;
  (void)snprintf(name, sizeof(name), "%.*s", (int)kind.size, kind.data);
  return anyfn_raise(name, "%.*s", (int)message.size, message.data);
}

ANYFN_EXPORT(define) {
  if (anyfn_register("matrix.c.echo", echo, 1) || anyfn_register("matrix.c.apply", apply, 1)) return -1;
  return anyfn_register("matrix.c.raise_error", raise_error, 1);
}
