// Tests of modules: those of other languages, and a kind that a C++ class implements.
#include "check.hpp"

using namespace anyfn;

struct Constants : ModuleKind {
  explicit Constants(int64_t first) : first_(first) {}
  const char* kind() const override { return "cpp_constants"; }
  PackedFunc get_function(const std::string& name) override {
    if (name == "first") return [first = first_] { return first; };
    if (name == "fail") throw Error("ValueError", "cannot make it");
    return nullptr;
  }
  Array<String> functions() override { return {"first"}; }
  bool can_save() const override { return true; }
  Bytes save_to_bytes() override { return Bytes(&first_, sizeof(first_)); }

 private:
  int64_t first_;
};

ANYFN_REGISTER_GLOBAL("ffi.Module.load_from_bytes.cpp_constants").set_body_typed([](Bytes bytes) {
  int64_t first = 0;
  CHECK(bytes.size() == sizeof(first));
  std::memcpy(&first, bytes.data(), sizeof(first));
  return make_module<Constants>(first);
});

int main() {
  const Module testing = Module::load(std::getenv("ANYFN_TESTING_LIB"));
  CHECK(testing["add_one"](2).cast<int>() == 3 && testing.kind() == "library");
  CHECK(!testing.find_function("no_such_function"));
  CHECK_ERROR("AttributeError", "has no function `no_such_function`", testing["no_such_function"]);
  CHECK(!try_load_module("/no/such/file.so").ok());

  const Module constants = make_module<Constants>(42);
  CHECK(constants["first"]().cast<int>() == 42 && constants.kind() == "cpp_constants");
  CHECK(constants.function_names().size() == 1 && !constants.find_function("second"));
  CHECK_ERROR("ValueError", "cannot make it", constants["fail"]);
  const Bytes saved = get_global_func("ffi.ModuleSaveToBytes")(constants);
  const Module loaded = get_global_func("ffi.Module.load_from_bytes.cpp_constants")(saved);
  CHECK(loaded["first"]().cast<int>() == 42);
  constants.import_module(make_module<Constants>(1));
  CHECK(constants.imports().size() == 1 && constants.imports()[0]["first"]().cast<int>() == 1);
  return 0;
}
