/*
 * Tensors. TensorView is a tensor that is borrowed for a call, of any library that supports DLPack; Tensor is an object
 * that keeps its memory alive; Span<T> is the elements of a tensor after its type has been checked.
 *
 *     void scale(anyfn::TensorView x, double factor) {
 *       for (float& value : x.elements<float>("x")) value *= static_cast<float>(factor);
 *     }
 *
 *     void example() {
 *       anyfn::Tensor tensor = anyfn::Tensor::zeros({2, 3}, anyfn::dtype_of<float>());
 *       tensor.elements<float>()[1] = 2;
 *       scale(tensor, 3);
 *       ANYFN_CHECK(tensor.elements<float>()[1] == 6, ValueError) << "another element";
 *     }
 */
#ifndef ANYFN_TENSOR_HPP_
#define ANYFN_TENSOR_HPP_

#include <anyfn/container.hpp>

namespace anyfn {
inline namespace v0 {

using DType = DLDataType;
using Device = DLDevice;

/** Device of main memory. */
constexpr Device cpu() { return Device{kDLCPU, 0}; }

constexpr bool same_dtype(DType a, DType b) { return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes; }

/** Data type of a C++ type. */
template <class T>
constexpr DType dtype_of() {
  static_assert(std::is_arithmetic_v<T>, "anyfn: only numbers and bool have a data type");
  const uint8_t code = std::is_same_v<T, bool>        ? static_cast<uint8_t>(kDLBool)
                       : std::is_floating_point_v<T> ? static_cast<uint8_t>(kDLFloat)
                       : std::is_signed_v<T>         ? static_cast<uint8_t>(kDLInt)
                                                     : static_cast<uint8_t>(kDLUInt);
  return DType{code, static_cast<uint8_t>(8 * sizeof(T)), 1};
}

/** Parses a data type such as `float32`. Throws `ValueError` if the text is not a data type. */
inline DType parse_dtype(std::string_view text) {
  const TVMFFIByteArray bytes = detail::bytes_of(text);
  DType out;
  detail::check(TVMFFIDataTypeFromString(&bytes, &out));
  return out;
}

/** Name of a data type, such as `float32`. */
inline std::string to_string(DType dtype) {
  Any text;
  detail::check(TVMFFIDataTypeToString(&dtype, text.out()));
  return text.cast<std::string>();
}

/** Elements in consecutive memory, borrowed. */
template <class T>
class Span {
 public:
  Span() noexcept = default;
  Span(T* data, size_t size) noexcept : data_(data), size_(size) {}
  T* data() const noexcept { return data_; }
  size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  T* begin() const noexcept { return data_; }
  T* end() const noexcept { return data_ + size_; }
  T& operator[](size_t i) const noexcept { return data_[i]; }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

/** A tensor that is borrowed, such as an argument of a function. */
class TensorView {
 public:
  TensorView() noexcept = default;
  explicit TensorView(const DLTensor* tensor) noexcept : tensor_(tensor) {}

  bool defined() const noexcept { return tensor_ != nullptr; }
  int32_t ndim() const noexcept { return tensor_->ndim; }
  DType dtype() const noexcept { return tensor_->dtype; }
  Device device() const noexcept { return tensor_->device; }
  Span<const int64_t> shape() const noexcept { return {tensor_->shape, static_cast<size_t>(tensor_->ndim)}; }
  /** Extent of a dimension; a negative one counts from the last. Throws `IndexError` if it does not exist. */
  int64_t size(int32_t i) const {
    if (i < 0) i += ndim();
    if (i < 0 || i >= ndim()) detail::throw_index(" shape", i, ndim());
    return tensor_->shape[i];
  }
  /** Stride of a dimension, in elements. */
  int64_t stride(int32_t i) const {
    (void)size(i);
    if (i < 0) i += ndim();
    if (tensor_->strides != nullptr) return tensor_->strides[i];
    int64_t out = 1;
    for (int32_t k = ndim() - 1; k > i; --k) out *= tensor_->shape[k];
    return out;
  }
  /** Number of elements. */
  int64_t numel() const noexcept { return anyfn_tensor_size(tensor_); }
  bool is_contiguous() const noexcept { return anyfn_tensor_is_contiguous(tensor_) != 0; }
  /** Address of the first element. */
  void* data() const noexcept { return anyfn_tensor_data(tensor_); }
  const DLTensor* get() const noexcept { return tensor_; }
  const DLTensor* operator->() const noexcept { return tensor_; }

  /**
   * The elements of a contiguous tensor in main memory. Throws `TypeError` if they are not of type `T`, and `ValueError` if
   * the tensor is elsewhere or not contiguous; `name` names it in the message.
   */
  template <class T>
  Span<T> elements(const char* name = "tensor") const {
    constexpr DType type = dtype_of<std::remove_const_t<T>>();
    detail::check(anyfn_check_tensor(tensor_, type.code, type.bits, name));
    return {static_cast<T*>(data()), static_cast<size_t>(numel())};
  }

 private:
  const DLTensor* tensor_ = nullptr;
};

/** A TensorView whose elements the function only reads, so that callers may pass read-only arrays. */
class ConstTensorView : public TensorView {
 public:
  using TensorView::TensorView;
  const void* data() const noexcept { return TensorView::data(); }
  template <class T>
  Span<const T> elements(const char* name = "tensor") const {
    return TensorView::elements<const T>(name);
  }
};

namespace detail {

template <class View, bool kConst>
struct ViewTraits {
  static constexpr TypeDesc make() {
    TypeDesc out = plain_desc(TypeDesc::kTensorView);
    out.is_const = kConst;
    return out;
  }
  static constexpr TypeDesc desc = make();
  static constexpr bool is_borrowed = true;
  static bool accepts(const TVMFFIAny& value) {
    return (value.type_index == kTVMFFIDLTensorPtr && value.v_ptr != nullptr) || has_type(value, kTVMFFITensor);
  }
  static const DLTensor* tensor_of(const TVMFFIAny& value) {
    if (value.type_index == kTVMFFIDLTensorPtr) return static_cast<const DLTensor*>(value.v_ptr);
    return static_cast<const DLTensor*>(anyfn_object_cell(object_of(value)));
  }
  static View get(const TVMFFIAny& value) { return View(tensor_of(value)); }
  static bool view(const View& x, TVMFFIAny* out) {
    *out = anyfn_tensor(const_cast<DLTensor*>(x.get()));
    return false;
  }
  /** A view that outlives the call must become a tensor, which only its owner can make. */
  static void put(const View& x, TVMFFIAny* out) {
    TVMFFIAny borrowed;
    (void)view(x, &borrowed);
    check(TVMFFIAnyViewToOwnedAny(&borrowed, out));
  }
};

}  // namespace detail

template <>
struct Traits<TensorView> : detail::ViewTraits<TensorView, false> {};
template <>
struct Traits<ConstTensorView> : detail::ViewTraits<ConstTensorView, true> {};
template <>
struct Traits<DLTensor*> : detail::ViewTraits<TensorView, false> {
  static DLTensor* get(const TVMFFIAny& value) { return const_cast<DLTensor*>(tensor_of(value)); }
  static bool view(DLTensor* x, TVMFFIAny* out) {
    *out = anyfn_tensor(x);
    return false;
  }
  static void put(DLTensor* x, TVMFFIAny* out) { ViewTraits::put(TensorView(x), out); }
};

/** A tensor object, which keeps its memory alive, or NULL. */
class Tensor : public ObjectRef {
 public:
  Tensor() noexcept = default;
  Tensor(std::nullptr_t) noexcept {}

  /** Allocates a tensor whose elements are not set. */
  static Tensor empty(const Shape& shape, DType dtype, Device device = cpu());
  /** Allocates a tensor of zeros. */
  static Tensor zeros(const Shape& shape, DType dtype, Device device = cpu());
  /** Makes a tensor in main memory with a copy of elements in row-major order. */
  template <class T>
  static Tensor copy_of(const T* data, const Shape& shape) {
    Tensor out = empty(shape, dtype_of<T>());
    const Span<T> elements = out.view().elements<T>();
    if (!elements.empty()) std::memcpy(static_cast<void*>(elements.data()), data, elements.size() * sizeof(T));
    return out;
  }
  /** Takes over a tensor of another library. On an error, the caller still owns it. */
  static Tensor from_dlpack(DLManagedTensorVersioned* tensor) {
    TVMFFIObjectHandle out = nullptr;
    detail::check(TVMFFITensorFromDLPackVersioned(tensor, 0, 0, &out));
    return ObjectRef::from_owned<Tensor>(out);
  }
  static Tensor from_dlpack(DLManagedTensor* tensor) {
    TVMFFIObjectHandle out = nullptr;
    detail::check(TVMFFITensorFromDLPack(tensor, 0, 0, &out));
    return ObjectRef::from_owned<Tensor>(out);
  }
  /** Exports the tensor. The caller calls the deleter of the result once. */
  DLManagedTensorVersioned* to_dlpack() const {
    DLManagedTensorVersioned* out = nullptr;
    detail::check(TVMFFITensorToDLPackVersioned(checked(), &out));
    return out;
  }

  /** The tensor, borrowed from this reference. */
  TensorView view() const { return TensorView(static_cast<const DLTensor*>(anyfn_object_cell(checked()))); }
  operator TensorView() const { return view(); }
  int32_t ndim() const { return view().ndim(); }
  DType dtype() const { return view().dtype(); }
  Device device() const { return view().device(); }
  Span<const int64_t> shape() const { return view().shape(); }
  int64_t size(int32_t i) const { return view().size(i); }
  int64_t numel() const { return view().numel(); }
  void* data() const { return view().data(); }
  template <class T>
  Span<T> elements(const char* name = "tensor") const {
    return view().elements<T>(name);
  }
};

template <>
struct Traits<Tensor> : detail::RefTraits<Tensor> {
  static constexpr TypeDesc desc = detail::plain_desc(TypeDesc::kTensor);
  static constexpr bool is_nullable = true;
  static bool accepts(const TVMFFIAny& value) { return detail::has_type(value, kTVMFFITensor); }
};

inline Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  return detail::run("anyfn.tensor_empty", shape, dtype, device);
}
inline Tensor Tensor::zeros(const Shape& shape, DType dtype, Device device) {
  return detail::run("anyfn.tensor_zeros", shape, dtype, device);
}

}  // namespace v0
}  // namespace anyfn

#endif  // ANYFN_TENSOR_HPP_
