#include "core/base/units.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <span>

#include "core/base/error.hpp"
#include "core/base/trimmed.hpp"

namespace pipewright {

namespace {

struct Unit {
  std::string_view name;
  std::int64_t scale;
};

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

constexpr std::array<Unit, 8> kDurations{{{"", 1},
                                          {"ns", 1},
                                          {"us", 1'000},
                                          {"\xc2\xb5s", 1'000},  // the micro sign
                                          {"ms", 1'000'000},
                                          {"s", 1'000'000'000},
                                          {"min", 60'000'000'000},
                                          {"h", 3'600'000'000'000}}};

constexpr std::array<Unit, 10> kSizes{{{"", 1},
                                       {"B", 1},
                                       {"kB", 1'000},
                                       {"KB", 1'000},
                                       {"MB", 1'000'000},
                                       {"GB", 1'000'000'000},
                                       {"TB", 1'000'000'000'000},
                                       {"KiB", std::int64_t{1} << 10},
                                       {"MiB", std::int64_t{1} << 20},
                                       {"GiB", std::int64_t{1} << 30}}};
constexpr Unit kTebibyte{"TiB", std::int64_t{1} << 40};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// A decimal number, as written: whole part and up to nine digits of fraction.
struct Decimal {
  std::int64_t whole = 0;
  std::int64_t billionths = 0;
};

/// Takes a decimal number off the front of `text`; nullopt if there is none or it does not fit.
std::optional<Decimal> take_decimal(std::string_view& text) {
  Decimal result;
  std::size_t at = 0;
  for (; at < text.size() && is_digit(text[at]); ++at) {
    if (result.whole > (kLargest - 9) / 10) {
      return std::nullopt;
    }
    result.whole = result.whole * 10 + (text[at] - '0');
  }
  std::size_t digits = at;
  if (at < text.size() && text[at] == '.') {
    ++at;
    std::int64_t place = 100'000'000;
    for (; at < text.size() && is_digit(text[at]); ++at, ++digits, place /= 10) {
      if (place == 0 && text[at] != '0') {
        return std::nullopt;
      }
      result.billionths += (text[at] - '0') * place;
    }
  }
  if (digits == 0) {
    return std::nullopt;
  }
  text.remove_prefix(at);
  return result;
}

struct Scaled {
  std::int64_t value = 0;
  bool exact = true;  // false: a fraction below 1 was cut off
};

/// number * scale in whole units; nullopt if it does not fit in 63 bits.
std::optional<Scaled> scaled(const Decimal& number, std::int64_t scale) {
  constexpr std::int64_t kBillion = 1'000'000'000;
  if (number.whole > kLargest / scale) {
    return std::nullopt;
  }
  // scale = a * 10^9 + b keeps every product below 2^63: a and b are at most 1100 and 10^9.
  const std::int64_t low = number.billionths * (scale % kBillion);
  const std::int64_t part = number.billionths * (scale / kBillion) + low / kBillion;
  const std::int64_t whole = number.whole * scale;
  if (part > kLargest - whole) {
    return std::nullopt;
  }
  return Scaled{whole + part, low % kBillion == 0};
}

std::optional<std::int64_t> scale_of(std::string_view unit, std::span<const Unit> units) {
  for (const Unit& known : units) {
    if (known.name == unit) {
      return known.scale;
    }
  }
  return std::nullopt;
}

std::optional<std::int64_t> scale_of_size(std::string_view unit) {
  return unit == kTebibyte.name ? kTebibyte.scale : scale_of(unit, kSizes);
}

[[noreturn]] void refuse(std::string_view text, std::string_view what,
                         const std::string& expected) {
  std::string shown;
  for (char c : text.substr(0, 40)) {
    const auto byte = static_cast<unsigned char>(c);
    shown += byte < 0x20 || byte >= 0x7f ? '?' : c;
  }
  throw InputError(std::string(what) + ": expected " + expected + ", found \"" + shown + "\"");
}

/// `value` in units of `scale` with three significant digits, or "" if rounding reaches `limit`.
std::string three_digits(std::int64_t value, std::int64_t scale, std::int64_t limit) {
  for (const std::int64_t tenths : {100, 10, 1}) {
    // value < 10 * scale in the first two rounds, so the product fits wherever it is used.
    if (tenths > 1 && value / scale >= 1000 / tenths) {
      continue;
    }
    const std::int64_t rest = (value % scale) * tenths;
    const std::int64_t rounded =
        (value / scale) * tenths + rest / scale + ((rest % scale) >= scale - rest % scale ? 1 : 0);
    if (tenths > 1 && rounded >= 1000) {
      continue;  // 9.996 becomes 10.0, not 10.00
    }
    if (tenths == 1 && rounded >= limit) {
      return "";
    }
    std::string text = std::to_string(rounded / tenths);
    if (tenths > 1) {
      const std::string fraction = std::to_string(rounded % tenths + tenths);
      text += "." + fraction.substr(1);
    }
    return text;
  }
  return "";
}

std::string formatted(std::int64_t value, std::span<const Unit> ascending, std::int64_t step) {
  const bool negative = value < 0;
  // The least value has no positive twin; nothing real is that large.
  const std::int64_t size = negative ? -std::max(value, -kLargest) : value;
  const std::string sign = negative ? "-" : "";
  if (size < step) {
    return sign + std::to_string(size) + " " + std::string(ascending.front().name);
  }
  for (const Unit& unit : ascending.subspan(1)) {
    const bool last = &unit == &ascending.back();
    if (!last && size / unit.scale >= step) {
      continue;
    }
    const std::string number = three_digits(size, unit.scale, last ? kLargest : step);
    if (!number.empty()) {
      return sign + number + " " + std::string(unit.name);
    }
  }
  throw_bug(__FILE__, __LINE__, "a quantity has no unit");
}

}  // namespace

Nanoseconds parse_duration(std::string_view text, std::string_view what) {
  // Far beyond any step, and small enough that sums of many stay within 63 bits.
  constexpr std::int64_t kMost = 100'000'000'000'000;
  const std::string expected = "a duration such as 1500, 2.5ms, 3us or 30s (no unit: nanoseconds)";
  std::string_view rest = trimmed(text);
  const std::optional<Decimal> number = take_decimal(rest);
  if (!number) {
    refuse(text, what, expected);
  }
  const std::optional<std::int64_t> scale = scale_of(trimmed(rest), kDurations);
  if (!scale) {
    refuse(text, what, expected);
  }
  const std::optional<Scaled> value = scaled(*number, *scale);
  if (!value || value->value > kMost) {
    refuse(text, what, "a duration of at most 10^14 ns (27 hours)");
  }
  if (!value->exact) {
    refuse(text, what, "a whole number of nanoseconds");
  }
  return Nanoseconds(value->value);
}

Bytes parse_bytes(std::string_view text, std::string_view what) {
  const std::string expected = "a size such as 4096, 16KiB or 2GB (no unit: bytes)";
  std::string_view rest = trimmed(text);
  const bool negative = rest.starts_with('-');
  if (negative) {
    rest.remove_prefix(1);
  }
  const std::optional<Decimal> number = take_decimal(rest);
  if (!number) {
    refuse(text, what, expected);
  }
  const std::optional<std::int64_t> scale = scale_of_size(trimmed(rest));
  if (!scale) {
    refuse(text, what, expected);
  }
  constexpr std::int64_t kMost = std::int64_t{1} << 53;
  const std::optional<Scaled> value = scaled(*number, *scale);
  if (!value || value->value > kMost) {
    refuse(text, what, "a size of at most 2^53 bytes");
  }
  if (!value->exact && *scale == 1) {
    refuse(text, what, "a whole number of bytes");
  }
  return Bytes(negative ? -value->value : value->value);
}

double parse_bandwidth(std::string_view text, std::string_view what) {
  const std::string expected =
      "a bandwidth such as 25GB/s, 100Gb/s or 3GiB/s (no unit: bytes per second)";
  std::string_view rest = trimmed(text);
  const std::optional<Decimal> number = take_decimal(rest);
  if (!number) {
    refuse(text, what, expected);
  }
  std::string unit(trimmed(rest));
  double bits_per_unit = 8;
  if (unit.ends_with("bps") || unit.ends_with("b/s")) {  // bits: 100Gb/s, 100Gbps
    bits_per_unit = 1;
    unit.erase(unit.size() - 3);
    unit += "B";
  } else if (unit.ends_with("/s")) {
    unit.erase(unit.size() - 2);
  } else if (!unit.empty()) {
    refuse(text, what, expected);
  }
  const std::optional<std::int64_t> scale = scale_of_size(unit);
  const double amount =
      static_cast<double>(number->whole) + static_cast<double>(number->billionths) * 1e-9;
  if (!scale) {
    refuse(text, what, expected);
  }
  const double result = amount * static_cast<double>(*scale) * bits_per_unit / 8;
  if (!(result > 0) || result > 1e18) {
    refuse(text, what, "a bandwidth above 0 and at most 1e18 bytes per second");
  }
  return result;
}

std::string format_duration(Nanoseconds t) {
  constexpr std::array<Unit, 4> kUnits{
      {{"ns", 1}, {"us", 1'000}, {"ms", 1'000'000}, {"s", 1'000'000'000}}};
  return formatted(t.value, kUnits, 1000);
}

std::string format_bytes(Bytes b) {
  constexpr std::array<Unit, 5> kUnits{{{"B", 1},
                                        {"KiB", std::int64_t{1} << 10},
                                        {"MiB", std::int64_t{1} << 20},
                                        {"GiB", std::int64_t{1} << 30},
                                        {"TiB", std::int64_t{1} << 40}}};
  return formatted(b.value, kUnits, 1024);
}

}  // namespace pipewright
