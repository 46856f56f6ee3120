// Tests of tensors: views, elements, DLPack in and out.
#include "check.hpp"

using namespace anyfn;

static int released = 0;

static DLManagedTensorVersioned* foreign() {
  static float data[6] = {0, 1, 2, 3, 4, 5};
  static int64_t shape[2] = {2, 3};
  auto* tensor = new DLManagedTensorVersioned();
  tensor->version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  tensor->deleter = [](DLManagedTensorVersioned* self) {
    ++released;
    delete self;
  };
  tensor->dl_tensor = {data, cpu(), 2, dtype_of<float>(), shape, nullptr, 0};
  return tensor;
}

int main() {
  const Tensor zeros = Tensor::zeros({2, 3}, dtype_of<int32_t>());
  CHECK(zeros.ndim() == 2 && zeros.size(0) == 2 && zeros.size(-1) == 3 && zeros.numel() == 6);
  CHECK(zeros.view().is_contiguous() && zeros.view().stride(0) == 3 && same_dtype(zeros.dtype(), dtype_of<int>()));
  CHECK_ERROR("IndexError", "out of range", zeros.size(2));
  zeros.elements<int32_t>()[4] = 7;
  CHECK_ERROR("TypeError", "x: expected elements of type `float32` but got `int32`", zeros.elements<float>("x"));

  const float numbers[] = {1, 2, 3, 4};
  const Tensor copy = Tensor::copy_of(numbers, {2, 2});
  float sum = 0;
  for (const float x : copy.elements<float>()) sum += x;
  CHECK(sum == 10);

  // A view in, a tensor in; a result that shares memory.
  const PackedFunc scale([](TensorView x, double factor) {
    for (float& value : x.elements<float>("x")) value *= static_cast<float>(factor);
  });
  scale(copy, 2);
  CHECK(copy.elements<float>()[3] == 8);
  const PackedFunc echo([](Tensor x) { return x; });
  CHECK(echo(copy).cast<Tensor>().handle() == copy.handle());
  const PackedFunc total([](ConstTensorView x) {
    double out = 0;
    for (const float& value : x.elements<float>("x")) out += static_cast<double>(value);
    return out;
  });
  CHECK(total(copy).cast<double>() == 20);
  DLTensor raw = {const_cast<float*>(numbers), cpu(), 1, dtype_of<float>(), const_cast<int64_t*>(zeros.shape().data()), nullptr, 0};
  CHECK(total(&raw).cast<double>() == 3);
  CHECK_ERROR("TypeError", "Expected `Tensor` but got `DLTensor*`", echo(&raw));

  // Functions of the runtime see the strides.
  const Tensor column = get_global_func("anyfn.tensor_permute")(copy, Array<int64_t>{1, 0});
  CHECK(!column.view().is_contiguous() && column.view().stride(0) == 1);
  CHECK_ERROR("ValueError", "x: expected a contiguous tensor", total(column));

  {
    const Tensor taken = Tensor::from_dlpack(foreign());
    CHECK(taken.elements<float>()[5] == 5 && released == 0);
    DLManagedTensorVersioned* exported = taken.to_dlpack();
    CHECK(exported->dl_tensor.shape[1] == 3);
    exported->deleter(exported);
  }
  CHECK(released == 1);
  CHECK(same_dtype(parse_dtype("bfloat16"), DType{kDLBfloat, 16, 1}) && to_string(dtype_of<bool>()) == "bool");
  CHECK_ERROR("ValueError", "flaot32", parse_dtype("flaot32"));
  return 0;
}
