/*
 * The host in C: loads a plugin, uses all of its functions, and drops the module before the plugin's values.
 *
 * Usage: `host PLUGIN`. Prints one line for each action, the same lines as `host.py` and `program/src/host.rs`.
 */
#include <anyfn/anyfn.h>

/* Prints the error and ends the program if a call has failed that must succeed. */
static void must(int code) {
  if (code == 0) return;
  (void)anyfn_print_error(stdout);
  exit(1);
}

static TVMFFIAny call_global(const char* name, const TVMFFIAny* args, int32_t num_args) {
  TVMFFIAny result;
  must(anyfn_call_global(name, args, num_args, &result));
  return result;
}

/* Calls a global function with two arguments. */
static TVMFFIAny call1(const char* name, TVMFFIAny a, TVMFFIAny b) {
  TVMFFIAny args[2];
  args[0] = a;
  args[1] = b;
  return call_global(name, args, 2);
}

static void show_text(const char* name, const TVMFFIAny* value) {
  TVMFFIByteArray text;
  if (!anyfn_get_str(value, &text)) {
    printf("%s (a value of type %d)\n", name, value->type_index);
    return;
  }
  printf("%s %.*s\n", name, (int)text.size, text.data);
}

static void show_int(const char* name, TVMFFIAny value) { printf("%s %lld\n", name, (long long)value.v_int64); }

/* Prints the kind of the raised error and, if `with_message` is not 0, its message. */
static void show_raised(const char* name, int with_message) {
  TVMFFIObjectHandle error = anyfn_take_error();
  TVMFFIByteArray kind = anyfn_error_kind(error), message = anyfn_error_message(error);
  printf("%s %.*s", name, (int)kind.size, kind.data);
  if (with_message) printf(": %.*s", (int)message.size, message.data);
  printf("\n");
  anyfn_release_object(error);
}

/* Returns an owned function of a module, or None if the module has no such function. */
static TVMFFIAny function(TVMFFIAny module, const char* name) {
  TVMFFIAny args[3];
  args[0] = module;
  args[1] = anyfn_str(name);
  args[2] = anyfn_bool(0);
  return call_global("ffi.ModuleGetFunction", args, 3);
}

/* Calls a function of a module. */
static int call(TVMFFIAny module, const char* name, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  TVMFFIAny f = function(module, name);
  int code = f.type_index == kTVMFFIFunction ? anyfn_call(f.v_obj, args, num_args, result)
                                             : anyfn_raise("AttributeError", "no function %s", name);
  anyfn_release(&f);
  return code;
}

static int has(TVMFFIAny module, const char* name) {
  TVMFFIAny f = function(module, name);
  int found = f.type_index == kTVMFFIFunction;
  anyfn_release(&f);
  return found;
}

static int plus_one(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  int64_t x;
  (void)self;
  if (anyfn_arg_int(args, num_args, 0, &x)) return -1;
  return anyfn_return_int(result, x + 1);
}

static int fail(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  (void)self;
  (void)args;
  (void)num_args;
  (void)result;
  return anyfn_raise("IndexError", "of the host");
}

/* Values of the plugin that are used after the module is dropped; None if the plugin does not provide the value. */
static TVMFFIAny adder, tensor, cell, answer;
static TVMFFIObjectHandle error;

static void containers(TVMFFIAny module) {
  TVMFFIAny items[3], array, result, item;
  int i;
  for (i = 0; i < 3; ++i) items[i] = anyfn_int(i + 1);
  array = call_global("ffi.Array", items, 3);
  must(call(module, "reverse", &array, 1, &result));
  printf("array");
  for (i = 0; i < 3; ++i) {
    item = call1("ffi.ArrayGetItem", result, anyfn_int(i));
    printf(" %lld", (long long)item.v_int64);
  }
  printf("\n");
  anyfn_release(&array);
  anyfn_release(&result);
  if (!has(module, "tally")) return;
  items[0] = items[2] = anyfn_str("b");
  items[1] = anyfn_str("a");
  array = call_global("ffi.Array", items, 3);
  must(call(module, "tally", &array, 1, &result));
  printf("map a=%lld", (long long)call1("ffi.MapGetItem", result, anyfn_str("a")).v_int64);
  printf(" b=%lld\n", (long long)call1("ffi.MapGetItem", result, anyfn_str("b")).v_int64);
  anyfn_release(&array);
  anyfn_release(&result);
}

/* Prints the field `value` of an object, which is found by reflection. */
static void field(TVMFFIAny object) {
  const TVMFFITypeInfo* info = TVMFFIGetTypeInfo(object.type_index);
  TVMFFIAny value = anyfn_none();
  int i;
  for (i = 0; i < info->num_fields; ++i) {
    const TVMFFIFieldInfo* found = &info->fields[i];
    if (found->name.size != 5 || memcmp(found->name.data, "value", 5) != 0) continue;
    must(found->getter((char*)object.v_obj + found->offset, &value));
    show_int("field", value);
    return;
  }
  printf("field none\n");
}

static void objects(TVMFFIAny module) {
  TVMFFIAny result, seven = anyfn_int(7), other;
  if (!has(module, "cell")) return;
  must(call(module, "cell", &seven, 1, &cell));
  must(call(module, "cell_value", &cell, 1, &result));
  show_int("object", result);
  field(cell);
  other = function(module, "cell");
  if (call(module, "cell_value", &other, 1, &result)) show_raised("not its", 0);
  anyfn_release(&other);
}

static void use(TVMFFIAny module) {
  TVMFFIAny args[2], result;
  TVMFFIObjectHandle f;
  args[0] = anyfn_int(2);
  args[1] = anyfn_int(3);
  must(call(module, "add", args, 2, &result));
  show_int("call", result);
  args[0] = anyfn_str("told so, at some length");
  if (call(module, "fail", args, 1, &result)) show_raised("error", 1);
  if (call(module, "add", args, 2, &result)) show_raised("mistake", 0);
  if (has(module, "fail_foreign") && call(module, "fail_foreign", args, 1, &result)) show_raised("foreign", 1);

  must(anyfn_make_function(plus_one, NULL, NULL, &f));
  args[0] = anyfn_object(f);
  args[1] = anyfn_int(20);
  must(call(module, "apply", args, 2, &result));
  show_int("callback", result);
  anyfn_release_object(f);
  must(anyfn_make_function(fail, NULL, NULL, &f));
  args[0] = anyfn_object(f);
  if (call(module, "apply", args, 2, &result)) show_raised("through", 1);
  if (has(module, "caught")) {
    must(call(module, "caught", args, 2, &result));
    show_text("caught", &result);
    anyfn_release(&result);
  }
  anyfn_release_object(f);

  containers(module);
  objects(module);
  args[0] = anyfn_int(5);
  if (has(module, "adder")) must(call(module, "adder", args, 1, &adder));
  if (has(module, "tensor")) must(call(module, "tensor", NULL, 0, &tensor));
  if (has(module, "install")) must(call(module, "install", NULL, 0, &result));
  must(anyfn_find_global("hosts.answer", &f));
  answer = anyfn_object(f);
  if (f != NULL) {
    must(anyfn_call(f, NULL, 0, &result));
    show_int("registered", result);
  }
  args[0] = anyfn_str("kept, and long enough");
  if (call(module, "fail", args, 1, &result)) error = anyfn_take_error();
}

static void use_kept(void) {
  TVMFFIAny result, one = anyfn_int(1);
  TVMFFIObjectHandle found;
  TVMFFIByteArray message;
  if (adder.type_index == kTVMFFIFunction) {
    must(anyfn_call(adder.v_obj, &one, 1, &result));
    show_int("function", result);
  }
  if (tensor.type_index == kTVMFFITensor) {
    const float* values = (const float*)anyfn_tensor_data(anyfn_get_tensor(&tensor));
    printf("tensor %.1f %.1f\n", values[0], values[1]);
  }
  if (cell.type_index != kTVMFFINone) field(cell);
  message = anyfn_error_message(error);
  printf("error %.*s\n", (int)message.size, message.data);
  if (answer.type_index == kTVMFFIFunction) {
    must(anyfn_call(answer.v_obj, NULL, 0, &result));
    must(anyfn_find_global("hosts.answer", &found));
    printf("registered %lld %s\n", (long long)result.v_int64, found != NULL ? "there" : "gone");
    anyfn_release_object(found);
  }
}

/* Prints the leases on the plugin's library, according to the list of mapped libraries. */
static void leases(const char* path) {
  static const char* const kinds[] = {"functions", "tensors", "opaque objects", "objects", "modules"};
  TVMFFIAny libraries = call_global("ffi.ModuleMapped", NULL, 0);
  int64_t i, size = call_global("ffi.ArraySize", &libraries, 1).v_int64;
  const char* found = " unknown";
  printf("leases");
  for (i = 0; i < size; ++i) {
    TVMFFIAny library = call1("ffi.ArrayGetItem", libraries, anyfn_int(i)), leased;
    TVMFFIAny file = call1("ffi.MapGetItem", library, anyfn_str("file"));
    TVMFFIByteArray text;
    size_t kind;
    if (anyfn_get_str(&file, &text) && text.size == strlen(path) && memcmp(text.data, path, text.size) == 0) {
      found = " none";
      leased = call1("ffi.MapGetItem", library, anyfn_str("leases"));
      for (kind = 0; kind < sizeof(kinds) / sizeof(kinds[0]); ++kind) {
        if (call1("ffi.MapCount", leased, anyfn_str(kinds[kind])).v_int64 == 0) continue;
        printf(" %s %lld", kinds[kind], (long long)call1("ffi.MapGetItem", leased, anyfn_str(kinds[kind])).v_int64);
        found = "";
      }
      anyfn_release(&leased);
    }
    anyfn_release(&file);
    anyfn_release(&library);
  }
  printf("%s\n", found);
  anyfn_release(&libraries);
}

static int is_mapped(const char* path) {
  char line[8192];
  int found = 0;
  FILE* maps = fopen("/proc/self/maps", "r");
  while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) found |= strstr(line, path) != NULL;
  if (maps != NULL) fclose(maps);
  return found;
}

int main(int argc, char** argv) {
  TVMFFIAny path, module, result;
  char* real = argc == 2 ? realpath(argv[1], NULL) : NULL;
  if (real == NULL) return 2;
  path = anyfn_str(real);
  if (anyfn_call_global("ffi.ModuleLoadFromFile", &path, 1, &module)) {
    TVMFFIByteArray message;
    error = anyfn_take_error();
    message = anyfn_error_message(error);
    printf("refused %.*s\n", (int)message.size, message.data);
    anyfn_release_object(error);
    free(real);
    return 0;
  }
  use(module);
  result = call_global("ffi.ModulePinned", &module, 1);
  if (result.type_index == kTVMFFINone) printf("pinned None\n");
  if (result.type_index != kTVMFFINone) show_text("pinned", &result);
  anyfn_release(&result);

  anyfn_release(&module);
  use_kept();
  leases(real);
  anyfn_release(&answer);
  path = anyfn_str("hosts.answer");
  (void)call_global("ffi.FunctionRemoveGlobal", &path, 1);
  anyfn_release(&adder);
  anyfn_release(&tensor);
  anyfn_release(&cell);
  anyfn_release_object(error);
  leases(real);
  result = call_global("ffi.ModuleReap", NULL, 0);
  anyfn_release(&result);
  printf("mapped %s\n", is_mapped(real) ? "yes" : "no");
  free(real);
  return 0;
}
