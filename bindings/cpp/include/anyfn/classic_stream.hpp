/*
 * Part of <anyfn/classic.h>: the streams that modules of TVM 0.8 are saved to and loaded from.
 */
#ifndef ANYFN_CLASSIC_STREAM_HPP_
#define ANYFN_CLASSIC_STREAM_HPP_

#include <anyfn/classic_object.hpp>

#include <vector>

namespace dmlc {
inline namespace anyfn_v0 {

/** A sequential byte stream. Numbers are stored in the byte order of the machine. */
class Stream {
 public:
  virtual ~Stream() = default;
  /** Reads up to `size` bytes and returns their number. */
  virtual size_t Read(void* data, size_t size) = 0;
  virtual size_t Write(const void* data, size_t size) = 0;

  /** Writes a number, a plain structure, a string, or a vector of these. Sizes are 64-bit integers. */
  template <class T>
  void Write(const T& value) {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>, "values of this type cannot be written to a stream");
    (void)Write(static_cast<const void*>(&value), sizeof(T));
  }
  void Write(const std::string& text) {
    Write(static_cast<uint64_t>(text.size()));
    if (!text.empty()) (void)Write(static_cast<const void*>(text.data()), text.size());
  }
  template <class T>
  void Write(const std::vector<T>& items) {
    Write(static_cast<uint64_t>(items.size()));
    for (const T& item : items) Write(item);
  }
  /** Reads what Write() has written. Returns false if the stream ends before the value is complete. */
  template <class T>
  bool Read(T* value) {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>, "values of this type cannot be read from a stream");
    return Read(static_cast<void*>(value), sizeof(T)) == sizeof(T);
  }
  bool Read(std::string* text) {
    uint64_t size = 0;
    char part[4096];
    text->clear();
    if (!Read(&size)) return false;
    /* In parts, because a damaged size must not allocate memory. */
    while (size > 0) {
      const size_t count = size < sizeof(part) ? static_cast<size_t>(size) : sizeof(part);
      if (Read(static_cast<void*>(part), count) != count) return false;
      text->append(part, count);
      size -= count;
    }
    return true;
  }
  template <class T>
  bool Read(std::vector<T>* items) {
    uint64_t size = 0;
    items->clear();
    if (!Read(&size)) return false;
    for (; size > 0; --size) {
      T item{};
      if (!Read(&item)) return false;
      items->push_back(std::move(item));
    }
    return true;
  }
};

}  // namespace anyfn_v0
}  // namespace dmlc

namespace tvm {
namespace runtime {
inline namespace anyfn_v0 {
namespace detail {

/** Stream in memory. */
class BytesStream final : public ::dmlc::Stream {
 public:
  explicit BytesStream(std::string content = "") : content_(std::move(content)) {}
  using Stream::Read;
  using Stream::Write;
  size_t Read(void* data, size_t size) override {
    const size_t count = std::min(size, content_.size() - at_);
    if (count > 0) std::memcpy(data, content_.data() + at_, count);
    at_ += count;
    return count;
  }
  size_t Write(const void* data, size_t size) override {
    content_.append(static_cast<const char*>(data), size);
    return size;
  }
  const std::string& content() const { return content_; }

 private:
  std::string content_;
  size_t at_ = 0;
};

}  // namespace detail
}  // namespace anyfn_v0
}  // namespace runtime
}  // namespace tvm

#endif  // ANYFN_CLASSIC_STREAM_HPP_
