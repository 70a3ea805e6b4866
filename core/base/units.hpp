// Units and indices as types, so that a rank cannot be passed where a stage is
// meant. Plain values, no ownership; safe to copy between threads.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace pipewright {

/// A position that counts from 0. `value` is public: hot loops work on the raw
/// integer.
template <class Tag>
struct Index {
  std::int32_t value = 0;

  constexpr Index() = default;
  constexpr explicit Index(std::int64_t v) : value(static_cast<std::int32_t>(v)) {}
  constexpr auto operator<=>(const Index&) const = default;
};

using RankId = Index<struct RankTag>;
using StageId = Index<struct StageTag>;
using MicroBatchId = Index<struct MicroBatchTag>;

/// An amount of something, 64 bits, additive.
template <class Tag>
struct Quantity {
  std::int64_t value = 0;

  constexpr Quantity() = default;
  constexpr explicit Quantity(std::int64_t v) : value(v) {}
  constexpr auto operator<=>(const Quantity&) const = default;
  constexpr Quantity& operator+=(Quantity o) {
    value += o.value;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity o) {
    value -= o.value;
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) {
    return Quantity(a.value + b.value);
  }
  friend constexpr Quantity operator-(Quantity a, Quantity b) {
    return Quantity(a.value - b.value);
  }
  friend constexpr Quantity operator*(Quantity a, std::int64_t n) { return Quantity(a.value * n); }
};

using Nanoseconds = Quantity<struct NanosecondsTag>;
using Bytes = Quantity<struct BytesTag>;

inline constexpr std::int64_t kGibibyte = std::int64_t{1} << 30;

/// "1500", "2.5ms", "3us", "1s" (no unit: nanoseconds). Throws InputError
/// naming `what`.
Nanoseconds parse_duration(std::string_view text, std::string_view what);
/// "4096", "16KiB", "2GB" (no unit: bytes). A minus is allowed (memory given back); a caller that
/// needs a size checks for it. Throws InputError naming `what`.
Bytes parse_bytes(std::string_view text, std::string_view what);
/// "25GB/s", "100Gb/s", "3GiB/s" -> bytes per second. Throws InputError naming
/// `what`.
double parse_bandwidth(std::string_view text, std::string_view what);

/// Three significant digits and a unit: "33.0 ms", "950 ns".
std::string format_duration(Nanoseconds t);
/// Binary units: "1.50 GiB", "512 B".
std::string format_bytes(Bytes b);

}  // namespace pipewright
