/* A plain addon, as a user writes one with Node-API for one purpose: no types at run time, no other language. Node-API is declared here, so
 * that no headers of Node.js are needed. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct napi_env__* napi_env;
typedef struct napi_value__* napi_value;
typedef struct napi_callback_info__* napi_callback_info;
typedef napi_value (*napi_callback)(napi_env, napi_callback_info);

int napi_create_function(napi_env, const char*, size_t, napi_callback, void*, napi_value*);
int napi_set_named_property(napi_env, napi_value, const char*, napi_value);
int napi_get_cb_info(napi_env, napi_callback_info, size_t*, napi_value*, napi_value*, void**);
int napi_get_value_double(napi_env, napi_value, double*);
int napi_create_double(napi_env, double, napi_value*);
int napi_get_value_string_utf8(napi_env, napi_value, char*, size_t, size_t*);
int napi_create_string_utf8(napi_env, const char*, size_t, napi_value*);
int napi_get_typedarray_info(napi_env, napi_value, int*, size_t*, void**, napi_value*, size_t*);
int napi_call_function(napi_env, napi_value, napi_value, size_t, const napi_value*, napi_value*);
int napi_get_undefined(napi_env, napi_value*);
int napi_open_handle_scope(napi_env, void**);
int napi_close_handle_scope(napi_env, void*);

static napi_value nop(napi_env env, napi_callback_info info) {
  size_t count = 0;
  napi_get_cb_info(env, info, &count, NULL, NULL, NULL);
  return NULL;
}

static napi_value add3(napi_env env, napi_callback_info info) {
  size_t count = 3;
  napi_value args[3], result;
  double a, b, c;
  napi_get_cb_info(env, info, &count, args, NULL, NULL);
  if (count != 3 || napi_get_value_double(env, args[0], &a) || napi_get_value_double(env, args[1], &b) ||
      napi_get_value_double(env, args[2], &c))
    return NULL;
  napi_create_double(env, a + b + c, &result);
  return result;
}

static napi_value echo(napi_env env, napi_callback_info info) {
  size_t count = 1, length;
  napi_value args[1], result;
  char text[256];
  napi_get_cb_info(env, info, &count, args, NULL, NULL);
  if (napi_get_value_string_utf8(env, args[0], text, sizeof text, &length)) return NULL;
  napi_create_string_utf8(env, text, length, &result);
  return result;
}

static napi_value sum(napi_env env, napi_callback_info info) {
  size_t count = 1, length, offset;
  napi_value args[1], buffer, result;
  int kind;
  void* data;
  napi_get_cb_info(env, info, &count, args, NULL, NULL);
  if (napi_get_typedarray_info(env, args[0], &kind, &length, &data, &buffer, &offset) || kind != 7) return NULL;
  double total = 0;
  for (size_t i = 0; i < length; ++i) total += ((float*)data)[i];
  napi_create_double(env, total, &result);
  return result;
}

/* Calls a function a number of times with one number. */
static napi_value loop(napi_env env, napi_callback_info info) {
  size_t count = 2;
  napi_value args[2], undefined, arg, result;
  double times, number;
  napi_get_cb_info(env, info, &count, args, NULL, NULL);
  napi_get_value_double(env, args[1], &times);
  napi_get_undefined(env, &undefined);
  for (double i = 0; i < times; ++i) {
    void* scope;
    napi_open_handle_scope(env, &scope);
    napi_create_double(env, 1, &arg);
    if (napi_call_function(env, undefined, args[0], 1, &arg, &result)) return NULL;
    napi_get_value_double(env, result, &number);
    napi_close_handle_scope(env, scope);
  }
  return NULL;
}

napi_value napi_register_module_v1(napi_env env, napi_value exports) {
  struct {
    const char* name;
    napi_callback function;
  } all[] = {{"nop", nop}, {"add3", add3}, {"echo", echo}, {"sum", sum}, {"loop", loop}};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    napi_value function;
    napi_create_function(env, all[i].name, strlen(all[i].name), all[i].function, NULL, &function);
    napi_set_named_property(env, exports, all[i].name, function);
  }
  return exports;
}
