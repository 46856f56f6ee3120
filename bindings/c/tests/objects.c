/*
 * Tests of object types defined in C: functions of other languages make, print, compare, copy and save their objects.
 */
#include <anyfn/object.h>
#include <malloc.h>
#include <stdbool.h>

#include "check.h"

typedef struct {
  TVMFFIObject header;
  TVMFFIAny name;
  int64_t size;
  float weight;
  TVMFFIObjectHandle next;
} Node;

typedef struct {
  Node node;
  bool flag;
  int32_t small;
  double wide;
  TVMFFIAny extra;
} Leaf;

static const AnyfnType *node_type, *leaf_type;

static int twice(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  void* node;
  (void)self;
  if (anyfn_arg_instance(args, num_args, 0, node_type, &node)) return -1;
  return anyfn_return_int(result, ((Node*)node)->size * 2);
}

static int show_leaf(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  void* leaf;
  char text[64];
  (void)self;
  if (anyfn_arg_instance(args, num_args, 0, leaf_type, &leaf)) return -1;
  (void)snprintf(text, sizeof(text), "<leaf %d>", (int)((Leaf*)leaf)->small);
  return anyfn_return_str(result, text);
}

static int define_node(const char* key, int32_t structural, size_t count, const AnyfnType** out) {
  AnyfnField fields[] = {
      ANYFN_FIELD(Node, name, ANYFN_STR, "What it is called."),
      ANYFN_FIELD_DEFAULT(Node, size, ANYFN_INT64, NULL, anyfn_int(1)),
      ANYFN_FIELD_DEFAULT(Node, weight, ANYFN_FLOAT32, NULL, anyfn_float(0.5)),
      ANYFN_FIELD_DEFAULT(Node, next, ANYFN_OBJECT, NULL, anyfn_none()),
  };
  const AnyfnMethod methods[] = {{"twice", "Twice its size.", twice, 0}};
  AnyfnTypeDef def = ANYFN_TYPE_DEF(key, Node, "A node.", fields);
  fields[1].flags |= kTVMFFIFieldFlagBitMaskWritable;
  fields[3].type_key = key;
  fields[3].flags |= kTVMFFIFieldFlagBitMaskWritable;
  def.num_fields = count;
  def.methods = methods;
  def.num_methods = 1;
  def.structural = structural;
  return anyfn_define_type(&def, out);
}

static void define(void) {
  const AnyfnField fields[] = {
      ANYFN_FIELD(Leaf, flag, ANYFN_BOOL, NULL),
      ANYFN_FIELD(Leaf, small, ANYFN_INT32, NULL),
      ANYFN_FIELD_DEFAULT(Leaf, wide, ANYFN_FLOAT64, NULL, anyfn_float(2.5)),
      ANYFN_FIELD_DEFAULT(Leaf, extra, ANYFN_ANY, NULL, anyfn_none()),
  };
  AnyfnTypeDef def = ANYFN_TYPE_DEF("test.Leaf", Leaf, NULL, fields);
  static const AnyfnType* again; /* types live for the lifetime of the process */
  CHECK(define_node("test.Node", kTVMFFISEqHashKindTreeNode, 4, &node_type) == 0);
  def.parent = node_type;
  def.structural = kTVMFFISEqHashKindTreeNode;
  CHECK(anyfn_define_type(&def, &leaf_type) == 0);
  CHECK(anyfn_set_type_function(leaf_type, "__ffi_repr__", show_leaf) == 0);
  /* Tests a library that was built again, and one with another layout. */
  CHECK(define_node("test.Node", kTVMFFISEqHashKindTreeNode, 4, &again) == 0 && again->index == node_type->index);
  CHECK_ERROR(define_node("test.Node", kTVMFFISEqHashKindTreeNode, 3, &again), "RuntimeError", "test.Node");
  CHECK_ERROR(define_node("test.Node", kTVMFFISEqHashKindDAGNode, 4, &again), "RuntimeError", "another layout");
  def.key = "test.Wrong";
  def.size = sizeof(Node);
  CHECK_ERROR(anyfn_define_type(&def, &again), "ValueError", "field `flag` of test.Wrong");
}

/* Makes an object with its constructor; owned. */
static TVMFFIAny node(const char* name, int64_t size, TVMFFIAny next) {
  TVMFFIAny made;
  CALL("ffi.MakeObjectFromPackedArgs", &made, anyfn_str("test.Node"), anyfn_str("name"), anyfn_str(name),
       anyfn_str("size"), anyfn_int(size), anyfn_str("next"), next);
  anyfn_release(&next);
  return made;
}

static void check_text(TVMFFIAny value, const char* expected) {
  TVMFFIAny text;
  TVMFFIByteArray bytes;
  CALL("ffi.ReprPrint", &text, value);
  CHECK(anyfn_get_str(&text, &bytes));
  if (!same_text(bytes, expected)) fprintf(stderr, "%.*s\n", (int)bytes.size, bytes.data);
  CHECK(same_text(bytes, expected));
  anyfn_release(&text);
}

static int64_t number(const char* function, TVMFFIAny a, TVMFFIAny b) {
  TVMFFIAny result;
  CALL(function, &result, a, b, anyfn_bool(0), anyfn_bool(0));
  return result.v_int64;
}

static int64_t hash(const char* function, TVMFFIAny value) {
  TVMFFIAny result;
  if (strcmp(function, "ffi.RecursiveHash") == 0) {
    CALL(function, &result, value);
  } else {
    CALL(function, &result, value, anyfn_bool(0), anyfn_bool(0));
  }
  return result.v_int64;
}

static int64_t recursive_equal(TVMFFIAny a, TVMFFIAny b) {
  TVMFFIAny result;
  CALL("ffi.RecursiveEq", &result, a, b);
  return result.v_int64;
}

static void operations(void) {
  TVMFFIAny a = node("first, a longer text", 3, node("n", 1, anyfn_none())), copy, text, loaded, wrong;
  TVMFFIAny other = node("first, a longer text", 3, node("m", 1, anyfn_none()));
  check_text(a, "test.Node(name=\"first, a longer text\", size=3, weight=0.5, next=test.Node(name=\"n\", size=1, "
                "weight=0.5, next=None))");
  CALL("ffi.DeepCopy", &copy, a);
  CHECK(copy.v_obj != a.v_obj && ((Node*)copy.v_obj)->next != ((Node*)a.v_obj)->next);
  CHECK(number("ffi.StructuralEqual", a, copy) == 1 && number("ffi.StructuralEqual", a, other) == 0);
  CHECK(hash("ffi.StructuralHash", a) == hash("ffi.StructuralHash", copy));
  CHECK(recursive_equal(a, copy) == 1 && recursive_equal(a, other) == 0);
  CHECK(hash("ffi.RecursiveHash", a) == hash("ffi.RecursiveHash", copy));
  CALL("ffi.ToJSONGraphString", &text, a, anyfn_none());
  CALL("ffi.FromJSONGraphString", &loaded, text);
  CHECK(loaded.type_index == node_type->index && number("ffi.StructuralEqual", a, loaded) == 1);
  CALL("ffi.Array", &wrong, anyfn_int(1));
  CALL_ERROR("ffi.MakeObjectFromPackedArgs", "TypeError", "expected test.Node but got Array", anyfn_str("test.Node"),
             anyfn_str("name"), anyfn_str("x"), anyfn_str("next"), wrong);
  anyfn_release(&wrong);
  CALL_ERROR("ffi.MakeObjectFromPackedArgs", "TypeError", "expected str but got int", anyfn_str("test.Node"),
             anyfn_str("name"), anyfn_int(1));
  CALL_ERROR("ffi.MakeObjectFromPackedArgs", "TypeError", "missing required argument: 'name'", anyfn_str("test.Node"));
  anyfn_release(&loaded);
  anyfn_release(&text);
  anyfn_release(&copy);
  anyfn_release(&other);
  anyfn_release(&a);
}

static int count_field(void* context, const TVMFFIFieldInfo* field, const TVMFFIAny* value) {
  char* names = (char*)context;
  (void)value;
  strncat(names, field->name.data, field->name.size);
  strcat(names, " ");
  return 0;
}

static int stop(void* context, const TVMFFIFieldInfo* field, const TVMFFIAny* value) {
  (void)field, (void)value;
  return ++*(int*)context == 2 ? 7 : 0;
}

static void by_name(void) {
  TVMFFIAny leaf, value, text = anyfn_str("a text of more than seven bytes"), three = anyfn_int(3);
  char names[256] = "";
  int seen = 0;
  CALL("ffi.MakeObjectFromPackedArgs", &leaf, anyfn_str("test.Leaf"), anyfn_str("name"), text, anyfn_str("flag"),
       anyfn_bool(1), anyfn_str("small"), anyfn_int(-7), anyfn_str("extra"), text);
  CHECK(anyfn_is_instance(leaf.v_obj, node_type->index) && anyfn_is_instance(leaf.v_obj, kTVMFFIObject));
  CHECK(!anyfn_is_instance(leaf.v_obj, kTVMFFIArray));
  check_text(leaf, "<leaf -7>");
  CHECK(anyfn_get_field(leaf.v_obj, "small", &value) == 0 && value.v_int64 == -7);
  CHECK(anyfn_get_field(leaf.v_obj, "weight", &value) == 0 && value.v_float64 == 0.5);
  CHECK(anyfn_get_field(leaf.v_obj, "extra", &value) == 0 && value.type_index == kTVMFFIStr);
  anyfn_release(&value);
  CHECK_ERROR(anyfn_get_field(leaf.v_obj, "nothing", &value), "AttributeError", "test.Leaf has no field `nothing`");
  CHECK(anyfn_set_field(leaf.v_obj, "size", &three) == 0 && ((Node*)leaf.v_obj)->size == 3);
  CHECK_ERROR(anyfn_set_field(leaf.v_obj, "small", &three), "AttributeError", "`small` is read-only");
  CHECK_ERROR(anyfn_set_field(leaf.v_obj, "size", &text), "TypeError", "expected int");
  /* The setter is a function object, since it checks the type of the object. */
  value = node("next", 1, anyfn_none());
  CHECK(anyfn_set_field(leaf.v_obj, "next", &value) == 0 && ((Node*)leaf.v_obj)->next == value.v_obj);
  anyfn_release(&value);
  CHECK_ERROR(anyfn_set_field(leaf.v_obj, "next", &three), "TypeError", "expected");
  CHECK(anyfn_visit_fields(leaf.v_obj, count_field, names) == 0);
  CHECK(strcmp(names, "name size weight next flag small wide extra ") == 0);
  CHECK(anyfn_visit_fields(leaf.v_obj, stop, &seen) == 7 && seen == 2);
  CALL_ERROR("ffi.MakeObjectFromPackedArgs", "OverflowError", "does not fit into 32 bits", anyfn_str("test.Leaf"),
             anyfn_str("name"), text, anyfn_str("flag"), anyfn_bool(1), anyfn_str("small"), anyfn_int(INT64_C(1) << 40));
  anyfn_release(&leaf);
}

/* Builds a chain of the given length through the struct. It is released without recursion, and all memory is freed. */
static void chain(int64_t length) {
  TVMFFIAny root = anyfn_none(), copy;
  int64_t i;
  for (i = 0; i < length; ++i) {
    void* made;
    CHECK(anyfn_new(i % 2 ? node_type : leaf_type, &made) == 0);
    ((Node*)made)->size = i;
    ((Node*)made)->next = root.v_obj;
    root = anyfn_object(made);
  }
  CALL("ffi.DeepCopy", &copy, root);
  CHECK(number("ffi.StructuralEqual", root, copy) == 1);
  CHECK(hash("ffi.StructuralHash", root) == hash("ffi.StructuralHash", copy));
  anyfn_release(&copy);
  anyfn_release(&root);
}

/* Returns 1 if a tool that detects memory errors observes the program; such tools retain freed memory and are slow. */
static int is_watched(void) {
  const char* preloaded = getenv("LD_PRELOAD");
#ifdef __SANITIZE_ADDRESS__
  return 1;
#endif
  return preloaded != NULL && strstr(preloaded, "vgpreload") != NULL;
}

/* Appends each visited field to a string. */
static int list_fields(void* context, const TVMFFIFieldInfo* field, const TVMFFIAny* value) {
  char* names = (char*)context;
  size_t size = strlen(names);
  CHECK(size + field->name.size + 2 < 100);
  memcpy(names + size, field->name.data, field->name.size);
  strcpy(names + size + field->name.size, value->type_index == kTVMFFINone ? "- " : " ");
  return 0;
}

/* Tests fields and methods of a type that Rust code defines, in the library of sample functions. */
static void rust_object(const char* library) {
  TVMFFIAny module = load_module(library), result, args[3];
  char names[100] = "";
  CALL("ffi.MakeObjectFromPackedArgs", &args[0], anyfn_str("testing.Savings"), anyfn_str("owner"),
       anyfn_str("a name of more than seven letters"), anyfn_str("cents"), anyfn_int(200), anyfn_str("rate"), anyfn_float(5));
  CHECK(anyfn_visit_fields(args[0].v_obj, list_fields, names) == 0);
  CHECK(strcmp(names, "owner cents note- others rate ") == 0);
  args[1] = anyfn_str("a note of more than seven letters");
  CHECK(anyfn_set_field(args[0].v_obj, "note", &args[1]) == 0 && anyfn_get_field(args[0].v_obj, "note", &result) == 0);
  CHECK(result.type_index == kTVMFFIStr);
  anyfn_release(&result);
  args[1] = anyfn_int(50);
  CHECK(anyfn_call_method("deposit", args, 2, &result) == 0 && result.v_int64 == 250);
  args[2] = anyfn_int(3);
  CHECK(anyfn_call_method("deposit", args, 3, &result) == 0 && result.v_int64 == 400);
  CHECK(anyfn_call_method("interest", args, 1, &result) == 0 && result.v_float64 == 20);
  CHECK_ERROR(anyfn_call_method("interst", args, 1, &result), "AttributeError", "testing.Savings has no method `interst`");
  CHECK_ERROR(anyfn_call_method("deposit", args, 1, &result), "TypeError", "testing.Account.deposit");
  CHECK_ERROR(anyfn_call_method("deposit", args + 1, 1, &result), "TypeError", "needs an object");
  /* Calls a static method through an object. */
  CALL("ffi.Array", &args[1], args[0], args[0]);
  CHECK(anyfn_call_method("names", args, 2, &result) == 0 && result.type_index == kTVMFFIStr);
  anyfn_release(&result);
  anyfn_release(&args[1]);
  anyfn_release(&args[0]);
  anyfn_release(&module);
}

int main(void) {
  int64_t length = is_watched() ? 20000 : getenv("ANYFN_SOAK") != NULL ? 1000000 : 200000;
  long before;
  int i;
  define();
  operations();
  by_name();
  CHECK(getenv("ANYFN_TESTING_LIB") != NULL);
  rust_object(getenv("ANYFN_TESTING_LIB"));
  chain(length);
  malloc_trim(0);
  before = resident_pages();
  for (i = 0; i < 3; ++i) chain(length);
  malloc_trim(0);
  CHECK(resident_pages() <= before + 1024 || is_watched());
  return 0;
}
