// A key of what data says, to find again what was worked out from equal data.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace pipewright {

/// What is added in the same order gives the same key; anything else gives another one, but for one
/// case in 2^128. A type of ours is added by add_to(key, value), found beside the type. O(1) each.
class ContentKey {
 public:
  template <class T>
  void add(const T& value) {
    if constexpr (std::is_enum_v<T> || std::integral<T>) {
      mix(static_cast<std::uint64_t>(value));
    } else if constexpr (std::floating_point<T>) {
      mix(std::bit_cast<std::uint64_t>(static_cast<double>(value)));
    } else if constexpr (std::convertible_to<const T&, std::string_view>) {
      add_text(value);
    } else if constexpr (requires { value.value; }) {
      add(value.value);
    } else {
      add_to(*this, value);
    }
  }
  template <class T>
  void add(const std::vector<T>& values) {
    add(values.size());
    for (const T& value : values) add(value);
  }
  template <class T>
  void add(const std::shared_ptr<T>& value) {
    add(value != nullptr);
    if (value != nullptr) add(*value);
  }
  template <class... Ts>
  void add_all(const Ts&... values) {
    (add(values), ...);
  }

  /// 32 hexadecimal digits.
  std::string text() const {
    std::array<char, 33> digits{};
    std::snprintf(digits.data(), digits.size(), "%016llx%016llx",
                  static_cast<unsigned long long>(lanes_[0]),
                  static_cast<unsigned long long>(lanes_[1]));
    return digits.data();
  }

 private:
  void add_text(std::string_view text) {
    add(text.size());
    for (std::size_t at = 0; at < text.size(); at += sizeof(std::uint64_t)) {
      std::uint64_t word = 0;
      std::memcpy(&word, text.data() + at, std::min(sizeof(word), text.size() - at));
      mix(word);
    }
  }

  void mix(std::uint64_t word) {
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
      std::uint64_t& state = lanes_[lane];
      state = (state ^ word) * kFactors[lane];
      state ^= state >> 29;
    }
  }

  // Odd, with bits all over: the fractions of the golden ratio and of the square root of 2.
  static constexpr std::array<std::uint64_t, 2> kFactors = {0x9E3779B97F4A7C15, 0x6A09E667F3BCC909};
  std::array<std::uint64_t, 2> lanes_ = {1, 2};
};

}  // namespace pipewright
