// Support code for the generated conformance program: values of the corpus, a comparison, and the ways to run a case.
#ifndef ANYFN_CONFORMANCE_SUPPORT_HPP_
#define ANYFN_CONFORMANCE_SUPPORT_HPP_

#include <anyfn/anyfn.hpp>

#include <cstdio>
#include <cstdlib>

using anyfn::Any;
using anyfn::AnyView;
using anyfn::Array;
using anyfn::Bytes;
using anyfn::DType;
using anyfn::Error;
using anyfn::get_global_func;
using anyfn::Map;
using anyfn::ObjectRef;
using anyfn::PackedFunc;
using anyfn::parse_dtype;
using anyfn::Shape;
using anyfn::String;
using anyfn::Tensor;

static int passed, failed;

// ---- Values ---------------------------------------------------------------------------------------------------------

inline Any make_bigint(std::initializer_list<uint64_t> words) {
  TVMFFIByteArray bytes;
  bytes.data = reinterpret_cast<const char*>(words.begin());
  bytes.size = words.size() * sizeof(uint64_t);
  Any out;
  anyfn::detail::check(TVMFFIBigIntFromByteArray(&bytes, out.out()));
  return out;
}

inline Any make_float(uint64_t bits) {
  double x = 0;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

inline Any make_device(int32_t kind, int32_t number) {
  return anyfn::Device{static_cast<DLDeviceType>(kind), number};
}

inline Any make_pointer(uintptr_t address) { return reinterpret_cast<void*>(address); }

inline Any make_tensor(DType dtype, const Shape& shape, std::string_view data) {
  const Tensor tensor = Tensor::empty(shape, dtype);
  if (!data.empty()) std::memcpy(tensor.data(), data.data(), data.size());
  return tensor;
}

inline Any call(const char* function, std::initializer_list<Any> args) {
  Array<Any> values(args.begin(), args.end());
  return get_global_func(function).call_packed(
      values.empty() ? nullptr : anyfn::detail::seq_data(values.handle()), static_cast<int32_t>(args.size()));
}

inline Any set_field(const Any& object, const char* name, const Any& value) {
  object.cast<ObjectRef>().set_field(name, value);
  return {};
}

// Returns the value that a type has registered as an attribute.
inline Any make_attribute(const char* type_key, const char* name) {
  const TVMFFIByteArray key = anyfn_byte_array(type_key), attribute = anyfn_byte_array(name);
  int32_t index = -1;
  anyfn::detail::check(TVMFFITypeKeyToIndex(&key, &index));
  const TVMFFITypeAttrColumn* column = TVMFFIGetTypeAttrColumn(&attribute);
  ANYFN_CHECK(column != nullptr && index - column->begin_index < column->size, ValueError) << name;
  return Any(AnyView(column->data[index - column->begin_index]));
}

// Callbacks of this frontend.
inline Any make_callback(std::string_view name) {
  if (name == "echo") return PackedFunc([](Any value) { return value; });
  if (name == "count") {
    return PackedFunc([](anyfn::Args args, anyfn::RetValue* result) { *result = args.size(); });
  }
  ANYFN_CHECK(name == "fail", ValueError) << name;
  return PackedFunc([](anyfn::Args, anyfn::RetValue*) { throw Error("ValueError", "callback failed"); });
}

// ---- Comparison -----------------------------------------------------------------------------------------------------

inline bool same(const Any& a, const Any& b);

inline bool same_tensor(const Tensor& a, const Tensor& b) {
  if (!anyfn::same_dtype(a.dtype(), b.dtype()) || a.ndim() != b.ndim()) return false;
  for (int32_t i = 0; i < a.ndim(); ++i) {
    if (a.size(i) != b.size(i)) return false;
  }
  return std::memcmp(a.data(), b.data(), static_cast<size_t>(a.numel()) * a.dtype().bits / 8) == 0;
}

inline bool same_map(const Map<Any, Any>& a, const Map<Any, Any>& b) {
  Array<Any> left, right;
  const auto collect = [](const Map<Any, Any>& map, Array<Any>* out) {
    map.for_each([out](const Any& key, const Any& value) {
      out->push_back(key);
      out->push_back(value);
    });
  };
  collect(a, &left);
  collect(b, &right);
  return same(left, right);
}

inline bool same(const Any& a, const Any& b) {
  if (const auto text = a.as<std::string_view>()) return b.as<std::string_view>() == text;
  if (const auto bytes = a.as<Bytes>()) return b.as<Bytes>() == bytes;
  if (a.type_index() != b.type_index()) return false;
  switch (a.type_index()) {
    case kTVMFFIArray: {
      const Array<Any> x = a, y = b;
      bool equal = x.size() == y.size();
      for (size_t i = 0; equal && i < x.size(); ++i) equal = same(x[i], y[i]);
      return equal;
    }
    case kTVMFFIMap:
      return same_map(a.cast<Map<Any, Any>>(), b.cast<Map<Any, Any>>());
    case kTVMFFITensor:
      return same_tensor(a.cast<Tensor>(), b.cast<Tensor>());
    case kTVMFFIShape: {
      const Shape x = a, y = b;
      bool equal = x.size() == y.size();
      for (size_t i = 0; equal && i < x.size(); ++i) equal = x[i] == y[i];
      return equal;
    }
    case kTVMFFIBigInt: {
      const TVMFFIByteArray x = TVMFFIBigIntGetContentByteArray(&a.raw()), y = TVMFFIBigIntGetContentByteArray(&b.raw());
      return x.size == y.size && std::memcmp(x.data, y.data, x.size) == 0;
    }
    default:
      return a.raw().v_uint64 == b.raw().v_uint64;
  }
}

// ---- Running cases --------------------------------------------------------------------------------------------------

inline void count(bool ok, const char* way, const char* name) {
  ++(ok ? passed : failed);
  if (!ok) std::printf("FAILED %s %s\n", way, name);
}

// Checks that a call returns `expected`.
inline void check_call(const char* name, const char* function, std::initializer_list<Any> args, const Any& expected) {
  try {
    count(same(call(function, args), expected), "call", name);
  } catch (const Error& error) {
    std::printf("  %s\n", error.what());
    count(false, "call", name);
  }
}

// First part of the names of the functions under test, and the names of the cases to run.
static std::string prefix = "testing";
static Array<String> names;

// Returns a function under test, such as `testing.echo`.
inline PackedFunc tested(const char* name) { return get_global_func((prefix + "." + name).c_str()); }

// Begins a run by another program.
inline void begin_plugin(const std::string& own_prefix, const Array<String>& own_names) {
  prefix = own_prefix;
  names = own_names;
  passed = failed = 0;
}

inline bool is_selected(std::string_view name) {
  for (const String& selected : names) {
    if (selected == String(name)) return true;
  }
  return false;
}

// Passes a value to a function of another language, which returns it.
inline void pass_out(const char* name, const Any& value) {
  count(same(tested("echo")(value), value), "out", name);
}

// Passes a value to a callback of this language, which returns it.
inline void pass_in(const char* name, const Any& value) {
  const Any result = tested("apply")([](Any x) { return x; }, value);
  count(same(result, value), "in", name);
}

// Checks that a call, or the lookup of its function, fails, and that the process continues.
inline void check_error(const char* name, const char* function, std::initializer_list<Any> args, std::string_view kind,
                        std::string_view message) {
  bool ok = false;
  try {
    (void)call(function, args);
  } catch (const Error& error) {
    ok = error.kind() == kind && error.message() == message;
    if (!ok) std::printf("  expected %s: %s\n  got %s\n", std::string(kind).c_str(), std::string(message).c_str(), error.what());
  }
  count(ok && tested("echo")(1).cast<int>() == 1, "error", name);
}

// Lets the function under test raise an error, and lets an error of this language pass through it.
inline void check_errors() {
  check_error("raised", (prefix + ".raise_error").c_str(), {"ValueError", "told so"}, "ValueError", "told so");
  check_error("passed through", (prefix + ".apply").c_str(), {make_callback("fail")}, "ValueError", "callback failed");
}

// Runs a case whose values may be impossible to make.
inline void run(void (*body)()) {
  try {
    body();
  } catch (const Error& error) {
    std::printf("  %s\n", error.what());
    count(false, "case", "");
  }
}

inline void begin() {
  const char* path = std::getenv("ANYFN_TESTING_LIB");
  if (path == nullptr) {
    std::fprintf(stderr, "set ANYFN_TESTING_LIB to the path of the testing library\n");
    std::exit(2);
  }
  static const anyfn::Module module = anyfn::Module::load(path);  // stays loaded for the whole run
}

inline int end() {
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}

#endif  // ANYFN_CONFORMANCE_SUPPORT_HPP_
