/* Types defined in C with <anyfn/object.h>: a node, and a type derived from it. */
#include <anyfn/object.h>
#include <stdbool.h>

typedef struct {
  TVMFFIObject header;
  TVMFFIAny name;
  int64_t size;
  TVMFFIObjectHandle next;
} Node;

typedef struct {
  Node node;
  bool flag;
  float weight;
  TVMFFIAny extra;
} Leaf;

static const AnyfnType *node_type, *leaf_type;

/* Returns the sum of the sizes of a node and of its successors. */
static int total(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  void* at;
  int64_t sum = 0;
  (void)self;
  if (anyfn_arg_instance(args, num_args, 0, node_type, &at)) return -1;
  for (; at != NULL; at = ((Node*)at)->next) sum += ((Node*)at)->size;
  return anyfn_return_int(result, sum);
}

static int make(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  int64_t count, i;
  TVMFFIObjectHandle chain = NULL;
  (void)self;
  if (anyfn_arg_int(args, num_args, 0, &count)) return -1;
  for (i = 0; i < count; ++i) {
    void* node;
    if (anyfn_new(node_type, &node)) return -1;
    ((Node*)node)->size = i;
    ((Node*)node)->next = chain;
    chain = node;
  }
  return anyfn_return_object(result, chain);
}

/* Appends the name of a field, and its value if that is a string, to `context`. */
static int visit(void* context, const TVMFFIFieldInfo* field, const TVMFFIAny* value) {
  TVMFFIByteArray text;
  size_t used = strlen((char*)context);
  if (!anyfn_get_str(value, &text)) text = anyfn_byte_array("-");
  (void)snprintf((char*)context + used, 512 - used, "%.*s=%.*s ", (int)field->name.size, field->name.data, (int)text.size,
                 text.data);
  return 0;
}

ANYFN_EXPORT(describe) {
  TVMFFIObjectHandle object;
  char text[512] = "";
  if (anyfn_arg_object(args, num_args, 0, &object) || anyfn_visit_fields(object, visit, text)) return -1;
  return anyfn_return_str(result, text);
}

ANYFN_EXPORT(get) {
  TVMFFIObjectHandle object;
  TVMFFIByteArray name;
  char text[64];
  if (anyfn_arg_object(args, num_args, 0, &object) || anyfn_arg_str(args, num_args, 1, &name)) return -1;
  (void)snprintf(text, sizeof(text), "%.*s", (int)name.size, name.data);
  return anyfn_get_field(object, text, result);
}

ANYFN_EXPORT(set) {
  TVMFFIObjectHandle object;
  TVMFFIByteArray name;
  char text[64];
  if (anyfn_arg_object(args, num_args, 0, &object) || anyfn_arg_str(args, num_args, 1, &name)) return -1;
  (void)snprintf(text, sizeof(text), "%.*s", (int)name.size, name.data);
  return anyfn_set_field(object, text, &args[2]);
}

ANYFN_EXPORT(setup) {
  AnyfnField node_fields[] = {
      ANYFN_FIELD(Node, name, ANYFN_STR, "What it is called."),
      ANYFN_FIELD_DEFAULT(Node, size, ANYFN_INT64, "How large it is.", anyfn_int(1)),
      ANYFN_FIELD_DEFAULT(Node, next, ANYFN_OBJECT, "The one that follows.", anyfn_none()),
  };
  AnyfnField leaf_fields[] = {
      ANYFN_FIELD(Leaf, flag, ANYFN_BOOL, NULL),
      ANYFN_FIELD_DEFAULT(Leaf, weight, ANYFN_FLOAT32, NULL, anyfn_float(0.5)),
      ANYFN_FIELD_DEFAULT(Leaf, extra, ANYFN_ANY, NULL, anyfn_none()),
  };
  const AnyfnMethod methods[] = {
      {"total", "The sizes of all that follow.", total, 0},
      {"chain", "Makes a chain.", make, kTVMFFIFieldFlagBitMaskIsStaticMethod},
  };
  AnyfnTypeDef node = ANYFN_TYPE_DEF("c.Node", Node, "A node of a chain.", node_fields);
  AnyfnTypeDef leaf = ANYFN_TYPE_DEF("c.Leaf", Leaf, "A node with more.", leaf_fields);
  node_fields[0].flags |= kTVMFFIFieldFlagBitMaskSEqHashIgnore;
  node_fields[2].type_key = "c.Node";
  leaf_fields[1].flags |= kTVMFFIFieldFlagBitMaskKwOnly;
  leaf_fields[2].flags |= kTVMFFIFieldFlagBitMaskWritable;
  node.methods = methods;
  node.num_methods = 2;
  node.structural = leaf.structural = kTVMFFISEqHashKindTreeNode;
  if (anyfn_define_type(&node, &node_type)) return -1;
  leaf.parent = node_type;
  return anyfn_define_type(&leaf, &leaf_type);
}
