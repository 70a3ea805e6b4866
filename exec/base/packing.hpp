// Values into bytes and back, for what processes of one run tell one another: the same command on
// machines of one kind, so the bytes are those of memory. Reading past the end is a RunError.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/base/error.hpp"

namespace pipewright::exec {

using PackedBytes = std::vector<std::byte>;

class Packer {
 public:
  /// The type is always named: the reader has to name the same.
  template <class T>
  void put(const std::type_identity_t<T>& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    append(&value, sizeof value);
  }
  template <class T>
  void put_all(std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    put<std::uint64_t>(values.size());
    append(values.data(), values.size_bytes());
  }
  void put_text(std::string_view text) { put_all(std::span(text.data(), text.size())); }

  PackedBytes take() { return std::move(bytes_); }

 private:
  void append(const void* from, std::size_t size) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + size);
    if (size > 0) std::memcpy(bytes_.data() + at, from, size);
  }
  PackedBytes bytes_;
};

class Unpacker {
 public:
  /// The bytes must outlive it.
  explicit Unpacker(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <class T>
  T get() {
    T value;
    std::memcpy(static_cast<void*>(&value), next(sizeof value), sizeof value);
    return value;
  }
  template <class T>
  std::vector<T> get_all() {
    const auto count = get<std::uint64_t>();
    if (count > rest_.size() / sizeof(T)) throw RunError("another process sent what is not whole");
    std::vector<T> values(count);
    const std::byte* from = next(count * sizeof(T));
    if (count > 0) std::memcpy(static_cast<void*>(values.data()), from, count * sizeof(T));
    return values;
  }
  bool empty() const { return rest_.empty(); }
  std::string get_text() {
    const std::vector<char> letters = get_all<char>();
    return {letters.begin(), letters.end()};
  }

 private:
  const std::byte* next(std::size_t size) {
    if (size > rest_.size()) throw RunError("another process sent what is not whole");
    const std::byte* at = rest_.data();
    rest_ = rest_.subspan(size);
    return at;
  }
  std::span<const std::byte> rest_;
};

}  // namespace pipewright::exec
