/*
 * Errors. An error is an object with a kind, a message and a traceback, which crosses the borders between languages.
 * In C++ it is thrown as an exception:
 *
 *     void set_threads(int count) {
 *       if (count == 0) throw anyfn::Error("ValueError", "expected at least one thread, got 0");
 *       if (count < 0) ANYFN_THROW(ValueError) << "expected at least one thread, got " << count;
 *       ANYFN_CHECK(count < 1000, ValueError) << "expected less than 1000 threads, got " << count;
 *     }
 *
 *     void example() {
 *       try {
 *         set_threads(-1);
 *       } catch (const anyfn::Error& error) {
 *         if (error.kind() != "ValueError") throw;
 *       }
 *     }
 *
 * The kind is the name of a class in Python: `ValueError` is raised as a `ValueError` there. An exception that came from
 * another language goes back to it as the same object. Exceptions of the standard library that leave a C++ function
 * become errors, too: `std::out_of_range` an `IndexError`, `std::invalid_argument`, `std::domain_error`,
 * `std::length_error` and `std::range_error` a `ValueError`, `std::overflow_error` an `OverflowError`, `std::bad_alloc` a
 * `MemoryError`, all others a `RuntimeError`.
 */
#ifndef ANYFN_ERROR_HPP_
#define ANYFN_ERROR_HPP_

#include <anyfn/base.hpp>

#include <exception>
#include <new>
#include <stdexcept>

#if ANYFN_EXCEPTIONS && defined(__GNUC__)
#include <cxxabi.h>
#endif

namespace anyfn {
inline namespace v0 {

/** An error object, as an exception. Copies refer to the same object. */
class ANYFN_VISIBLE Error : public std::runtime_error {
 public:
  /** Creates an error. Its traceback begins with the line of the caller. */
  Error(std::string_view kind, std::string_view message, const char* file = __builtin_FILE(), int line = __builtin_LINE(),
        const char* function = __builtin_FUNCTION())
      : Error(nullptr, kind, message, file, line, function) {}

  /** Creates an error that was caused by another one. */
  Error(const Error& cause, std::string_view kind, std::string_view message, const char* file = __builtin_FILE(),
        int line = __builtin_LINE(), const char* function = __builtin_FUNCTION())
      : Error(cause.object_, kind, message, file, line, function) {}

  Error(const Error& other) noexcept : std::runtime_error(other), object_(other.object_) { anyfn_retain_object(object_); }
  Error(Error&& other) noexcept : std::runtime_error(other), object_(std::exchange(other.object_, nullptr)) {}
  Error& operator=(Error other) noexcept {
    std::swap(object_, other.object_);
    text_.clear();
    return *this;
  }
  ~Error() override { anyfn_release_object(object_); }

  /** Returns an Error that owns the reference `object`, which the caller must not release. */
  static Error from_owned(TVMFFIObjectHandle object) noexcept { return Error(object); }

  /** Takes the error that is raised on this thread. */
  static Error take_raised() {
    TVMFFIObjectHandle object = anyfn_take_error();
    return object != nullptr ? Error(object) : Error("InternalError", "a function failed without an error");
  }

  /** Kind of the error, such as `ValueError`. */
  std::string_view kind() const noexcept { return detail::text_of(anyfn_error_kind(object_)); }
  /** Message, without the kind. */
  std::string_view message() const noexcept { return detail::text_of(anyfn_error_message(object_)); }
  /** Lines of the traceback, the most recent call first. */
  std::string backtrace() const { return std::string(detail::text_of(anyfn_error_backtrace(object_))); }
  /** Kind and message, such as `ValueError: no`. */
  const char* what() const noexcept override {
    if (text_.empty()) text_.assign(kind()).append(": ").append(message());
    return text_.c_str();
  }

  /** Returns true if another error caused this one. */
  bool has_cause() const noexcept { return cause_object() != nullptr; }
  /** Error that caused this one. has_cause() must be true. */
  Error cause() const noexcept {
    TVMFFIObjectHandle object = cause_object();
    anyfn_retain_object(object);
    return Error(object);
  }

  /** Detail of an error about a value: `function`, `argument`, `path`, `expected` or `got`; empty if not known. */
  std::string detail(const char* name) const {
    const TVMFFIErrorCell* cell = anyfn_error_cell(object_);
    TVMFFIAny context = anyfn_object(cell->extra_context);
    v0::detail::Elements pairs;
    if (!pairs.read_mapping(context)) return {};
    for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
      TVMFFIByteArray key, value;
      if (anyfn_get_str(&pairs[i], &key) != 0 && v0::detail::text_of(key) == name &&
          anyfn_get_str(&pairs[i + 1], &value) != 0) {
        return std::string(v0::detail::text_of(value));
      }
    }
    return {};
  }

  /** Raises the error on this thread, for code without exceptions. Always returns -1. */
  int raise() const noexcept { return anyfn_raise_object(object_); }

  /** The error object, borrowed. */
  TVMFFIObjectHandle handle() const noexcept { return object_; }

 private:
  explicit Error(TVMFFIObjectHandle object) noexcept : std::runtime_error(""), object_(object) {}

  ANYFN_COLD Error(TVMFFIObjectHandle cause, std::string_view kind, std::string_view message, const char* file, int line,
        const char* function)
      : std::runtime_error("") {
    const TVMFFIByteArray bytes[2] = {v0::detail::bytes_of(kind), v0::detail::bytes_of(message)};
    const TVMFFIByteArray* trace = TVMFFIBacktrace(file, line, function, 0);
    if (TVMFFIErrorCreateWithCauseAndExtraContext(&bytes[0], &bytes[1], trace, cause, nullptr, &object_) != 0) {
      std::abort(); /* out of memory, even for the error */
    }
  }

  TVMFFIObjectHandle cause_object() const noexcept {
    TVMFFIObjectHandle cause = anyfn_error_cell(object_)->cause_chain;
    return cause != nullptr && static_cast<TVMFFIObject*>(cause)->type_index == kTVMFFIError ? cause : nullptr;
  }

  TVMFFIObjectHandle object_ = nullptr;
  mutable std::string text_;
};

/** Throws an error. In a program without exceptions, prints it and ends the process. */
[[noreturn]] ANYFN_COLD inline void throw_error(const Error& error) {
#if ANYFN_EXCEPTIONS
  throw error;
#else
  std::fprintf(stderr, "anyfn: error in a program without exceptions: %s\n%s", error.what(), error.backtrace().c_str());
  std::abort();
#endif
}

namespace detail {

[[noreturn]] ANYFN_COLD inline void throw_raised() {
#if ANYFN_EXCEPTIONS
  throw Error::take_raised(); /* in the memory of the exception, so that unwinding finds nothing to destroy here */
#else
  throw_error(Error::take_raised());
#endif
}

[[noreturn]] ANYFN_COLD inline void throw_no_memory() { throw_error(Error("MemoryError", "out of memory")); }

inline void check(int code) {
  if (!ANYFN_LIKELY(code == 0)) throw_raised();
}

[[noreturn]] ANYFN_COLD inline void throw_mismatch(const TypeDesc& type, const TVMFFIAny& value,
                                                   const char* subject = nullptr) {
  (void)raise_mismatch(type, value, subject);
  throw_raised();
}

#if ANYFN_EXCEPTIONS
/** Raises the exception that is being handled, which is not an Error. Always returns -1. */
ANYFN_COLD inline int raise_current() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    return error.raise();
  } catch (const std::bad_alloc& error) {
    return anyfn_raise("MemoryError", "%s", error.what());
  } catch (const std::out_of_range& error) {
    return anyfn_raise("IndexError", "%s", error.what());
  } catch (const std::overflow_error& error) {
    return anyfn_raise("OverflowError", "%s", error.what());
  } catch (const std::invalid_argument& error) {
    return anyfn_raise("ValueError", "%s", error.what());
  } catch (const std::domain_error& error) {
    return anyfn_raise("ValueError", "%s", error.what());
  } catch (const std::length_error& error) {
    return anyfn_raise("ValueError", "%s", error.what());
  } catch (const std::range_error& error) {
    return anyfn_raise("ValueError", "%s", error.what());
  } catch (const std::exception& error) {
    return anyfn_raise("RuntimeError", "%s", error.what());
  } catch (...) {
#if defined(__GNUC__)
    const std::type_info* type = abi::__cxa_current_exception_type();
    int status = 0;
    char* name = type != nullptr ? abi::__cxa_demangle(type->name(), nullptr, nullptr, &status) : nullptr;
    const int code = anyfn_raise("RuntimeError", "C++ exception of type `%s`", name != nullptr ? name : "unknown");
    std::free(name);
    return code;
#else
    return anyfn_raise("RuntimeError", "C++ exception of unknown type");
#endif
  }
}
#endif

/** Runs code and returns 0, or -1 with the exception that left it raised as an error. */
template <class Body>
inline int guarded(Body&& body) noexcept {
#if ANYFN_EXCEPTIONS
  try {
    return body();
  } catch (const Error& error) {
    return error.raise();
  } catch (...) {
    return raise_current();
  }
#else
  return body();
#endif
}

/** Throws an error at the end of the statement. */
class Thrower {
 public:
  Thrower(const char* kind, const char* file, int line, const char* function)
      : kind_(kind), file_(file), line_(line), function_(function), text_() {}
  Thrower(const Thrower&) = delete;
  Thrower& operator=(const Thrower&) = delete;
  [[noreturn]] ANYFN_COLD ~Thrower() noexcept(false) {
#if ANYFN_EXCEPTIONS
    throw finish();
#else
    throw_error(finish());
#endif
  }
  Text& text() { return text_; }

 private:
  /** Makes the error, and destroys the text, so that unwinding finds nothing to destroy. */
  Error finish() {
    struct Guard {
      ~Guard() { text.~Text(); }
      Text& text;
    } guard{text_};
    return Error(kind_, text_, file_, line_, function_);
  }

  const char *kind_, *file_;
  int line_;
  const char* function_;
  union {
    Text text_;
  };
};

}  // namespace detail

/** Throws an error with a message: `ANYFN_THROW(ValueError) << "no";`. */
#define ANYFN_THROW(kind) ::anyfn::detail::Thrower(#kind, __FILE__, __LINE__, __func__).text()

/** Throws an error if the condition is false: `ANYFN_CHECK(n > 0, ValueError) << "got " << n;`. */
#define ANYFN_CHECK(condition, kind) \
  if (condition) {                   \
  } else                             \
    ANYFN_THROW(kind)

}  // namespace v0
}  // namespace anyfn

#endif  // ANYFN_ERROR_HPP_
