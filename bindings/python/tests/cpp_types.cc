// Object types in C++, written against the headers of apache-tvm-ffi: the node types of a small compiler, one for each
// kind of structural comparison.
#include <tvm/ffi/enum.h>
#include <tvm/ffi/reflection/enum_def.h>
#include <tvm/ffi/tvm_ffi.h>

namespace ffi = tvm::ffi;
namespace refl = tvm::ffi::reflection;

namespace {

#define KIND(kind) static constexpr TVMFFISEqHashKind _type_s_eq_hash_kind = kTVMFFISEqHashKind##kind

// Base class of all types, from which C++ code derives and Python code can derive.
class ExprObj : public ffi::Object {
 public:
  int64_t line = 0;

  ExprObj() = default;
  KIND(TreeNode);
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO("cpp.Expr", ExprObj, ffi::Object);
};

class VarObj : public ExprObj {
 public:
  ffi::String name;
  ffi::Any type;

  KIND(FreeVar);
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("cpp.Var", VarObj, ExprObj);
};

class AddObj : public ExprObj {
 public:
  ffi::ObjectRef lhs, rhs;

  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("cpp.Add", AddObj, ExprObj);
};

class LetObj : public ExprObj {
 public:
  ffi::ObjectRef var, value, body;

  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("cpp.Let", LetObj, ExprObj);
};

class FuncObj : public ffi::Object {
 public:
  ffi::Array<ffi::ObjectRef> params;
  ffi::Any body;
  ffi::String comment;
  ffi::Optional<ffi::Map<ffi::String, ffi::Any>> attrs;

  KIND(TreeNode);
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("cpp.Func", FuncObj, ffi::Object);
};

class BlockObj : public ffi::Object {
 public:
  ffi::List<ffi::Any> items;
  double weight = 0;
  bool flag = false;

  KIND(DAGNode);
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("cpp.Block", BlockObj, ffi::Object);
};

class ConstObj : public ffi::Object {
 public:
  int32_t value = 0;
  float scale = 1;
  DLDataType dtype{kDLFloat, 32, 1};
  DLDevice device{kDLCPU, 0};

  KIND(ConstTreeNode);
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("cpp.Const", ConstObj, ffi::Object);
};

class OpObj : public ffi::Object {
 public:
  ffi::String name;

  KIND(UniqueInstance);
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("cpp.Op", OpObj, ffi::Object);
};

// A type with its own hooks for printing, comparing and hashing, which use only its first field.
class CustomObj : public ffi::Object {
 public:
  ffi::Any key, label;

  KIND(TreeNode);
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("cpp.Custom", CustomObj, ffi::Object);
};

// A type that cannot be copied and has no registered constructor.
class HandleObj : public ffi::Object {
 public:
  int64_t number = 1;

  explicit HandleObj(int64_t number) : number(number) {}
  HandleObj(const HandleObj&) = delete;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("cpp.Handle", HandleObj, ffi::Object);
};

class ColourObj : public ffi::EnumObj {
 public:
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("cpp.Colour", ColourObj, ffi::EnumObj);
};

class LevelObj : public ffi::IntEnumObj {
 public:
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("cpp.Level", LevelObj, ffi::IntEnumObj);
};

class UnitObj : public ffi::StrEnumObj {
 public:
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("cpp.Unit", UnitObj, ffi::StrEnumObj);
};

int64_t Depth(const AddObj* add) {
  int64_t depth = 0;
  for (; add != nullptr; add = add->lhs.as<AddObj>()) ++depth;
  return depth;
}

TVM_FFI_STATIC_INIT_BLOCK() {
  using Flag = refl::AttachFieldFlag;
  refl::ObjectDef<ExprObj>().def_rw("line", &ExprObj::line, "Where it stands.", refl::default_value(int64_t{0}),
                                    refl::kw_only(true), Flag::SEqHashIgnore());
  refl::ObjectDef<VarObj>()
      .def_ro("name", &VarObj::name, "What it is called.", Flag::SEqHashIgnore())
      .def_ro("type", &VarObj::type, refl::default_value(ffi::Any(nullptr)));
  refl::ObjectDef<AddObj>()
      .def_ro("lhs", &AddObj::lhs)
      .def_ro("rhs", &AddObj::rhs)
      .def("depth", Depth, "How deep it is on the left.")
      .def_static("of", [](ffi::ObjectRef lhs, ffi::ObjectRef rhs) {
        auto add = ffi::make_object<AddObj>();
        add->lhs = lhs;
        add->rhs = rhs;
        return ffi::ObjectRef(add);
      });
  refl::ObjectDef<LetObj>()
      .def_ro("var", &LetObj::var, Flag::SEqHashDefSimple())
      .def_ro("value", &LetObj::value)
      .def_ro("body", &LetObj::body);
  refl::ObjectDef<FuncObj>()
      .def_ro("params", &FuncObj::params, Flag::SEqHashDefPattern())
      .def_ro("body", &FuncObj::body)
      .def_ro("comment", &FuncObj::comment, refl::default_value(ffi::String("")), refl::repr(false), refl::compare(false),
              Flag::SEqHashIgnore())
      .def_ro("attrs", &FuncObj::attrs, refl::default_value(ffi::Any(nullptr)));
  refl::ObjectDef<BlockObj>()
      .def_rw("items", &BlockObj::items)
      .def_rw("weight", &BlockObj::weight, refl::default_value(0.5))
      .def_rw("flag", &BlockObj::flag, refl::default_value(false));
  refl::ObjectDef<ConstObj>()
      .def_ro("value", &ConstObj::value)
      .def_ro("scale", &ConstObj::scale, refl::default_value(1.5))
      .def_ro("dtype", &ConstObj::dtype, refl::default_value(DLDataType{kDLInt, 8, 1}))
      .def_ro("device", &ConstObj::device, refl::default_value(DLDevice{kDLCPU, 0}));
  refl::ObjectDef<OpObj>().def_ro("name", &OpObj::name);
  refl::ObjectDef<CustomObj>().def_ro("key", &CustomObj::key).def_ro("label", &CustomObj::label);
  refl::TypeAttrDef<CustomObj>()
      .def("__ffi_repr__", [](const CustomObj* self, ffi::Function show) -> ffi::String {
        return "<" + show(self->key).cast<ffi::String>() + ">";
      })
      .def("__ffi_eq__", [](const CustomObj* a, const CustomObj* b, ffi::Function equal) -> bool {
        return equal(a->key, b->key).cast<bool>();
      })
      .def("__ffi_hash__", [](const CustomObj* self, ffi::Function hash) -> int64_t { return hash(self->key).cast<int64_t>(); })
      .def("__ffi_compare__", [](const CustomObj* a, const CustomObj* b, ffi::Function compare) -> int64_t {
        return -compare(a->key, b->key).cast<int64_t>();
      })
      .def("__s_equal__", [](const CustomObj* a, const CustomObj* b, ffi::Function equal) -> bool {
        return equal(a->key, b->key, 0, "key").cast<bool>();
      })
      .def("__s_hash__", [](const CustomObj* self, int64_t start, ffi::Function hash) -> int64_t {
        return hash(self->key, start, 0).cast<int64_t>();
      });
  refl::ObjectDef<HandleObj>(refl::init(false)).def_ro("number", &HandleObj::number);
  refl::ObjectDef<ColourObj>(refl::init(false));
  refl::EnumDef<ColourObj>("red").set_attr("hex", ffi::String("ff0000"));
  refl::EnumDef<ColourObj>("green").set_attr("hex", ffi::String("00ff00"));
  refl::ObjectDef<LevelObj>(refl::init(false));
  refl::EnumDef<LevelObj>("low", 10);
  refl::EnumDef<LevelObj>("high", -3);
  refl::ObjectDef<UnitObj>(refl::init(false));
  refl::EnumDef<UnitObj>("metre");
}

ffi::ObjectRef MakeHandle(int64_t number) { return ffi::ObjectRef(ffi::make_object<HandleObj>(number)); }

ffi::ObjectRef Colour(ffi::String name) { return ColourObj::_GetByStrIndex<ColourObj>(name); }
ffi::ObjectRef Level(int64_t number) { return LevelObj::_GetByIntIndex<LevelObj>(number); }
ffi::ObjectRef Unit(ffi::String name) { return UnitObj::_GetByStrIndex<UnitObj>(name); }

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(handle, MakeHandle);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(colour, Colour);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(level, Level);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(unit, Unit);
