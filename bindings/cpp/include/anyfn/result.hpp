/*
 * Results of functions that may fail, for programs without exceptions: Result<T> holds a value or an error, Status
 * success or an error. Functions of such a program return them, and make calls with PackedFunc::try_call().
 *
 *     anyfn::Result<int64_t> half(int64_t x) {
 *       if (x % 2 != 0) return anyfn::Error("ValueError", "expected an even number");
 *       return x / 2;
 *     }
 *
 *     void example() {
 *       anyfn::Result<int64_t> value = half(3);
 *       if (!value.ok()) std::printf("%s\n", value.error().what());
 *     }
 */
#ifndef ANYFN_RESULT_HPP_
#define ANYFN_RESULT_HPP_

#include <anyfn/any.hpp>

namespace anyfn {
inline namespace v0 {

/** A value, or the error that prevented it. */
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Error error) : error_(std::move(error)) {}

  bool ok() const noexcept { return value_.has_value(); }
  explicit operator bool() const noexcept { return ok(); }
  /** The value. Throws the error if there is none. */
  T& value() & {
    if (!value_) throw_error(*error_);
    return *value_;
  }
  const T& value() const& {
    if (!value_) throw_error(*error_);
    return *value_;
  }
  T value() && {
    if (!value_) throw_error(*error_);
    return std::move(*value_);
  }
  T value_or(T other) const { return value_ ? *value_ : std::move(other); }
  /** The error. ok() must be false. */
  const Error& error() const noexcept { return *error_; }

 private:
  std::optional<T> value_;
  std::optional<Error> error_;
};

/** Success, or an error. */
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() noexcept = default;
  Result(Error error) : error_(std::move(error)) {}

  bool ok() const noexcept { return !error_.has_value(); }
  explicit operator bool() const noexcept { return ok(); }
  /** Throws the error, if there is one. */
  void value() const {
    if (error_) throw_error(*error_);
  }
  /** The error. ok() must be false. */
  const Error& error() const noexcept { return *error_; }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace v0
}  // namespace anyfn

#endif  // ANYFN_RESULT_HPP_
