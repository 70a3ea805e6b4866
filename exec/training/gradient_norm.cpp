#include "exec/training/gradient_norm.hpp"

#include <array>
#include <cmath>
#include <cstring>

#include "core/base/error.hpp"

namespace pipewright::exec {
namespace {

constexpr double kMostSmall = 1, kLargeUnit = 0x1p40;
using Words = std::array<std::int64_t, 4>;

SquareSum sum_of(const Part& message) {
  if (const auto* own = dynamic_cast<const NormMessage*>(&message)) return own->squares;
  const auto* packed = dynamic_cast<const PackedPart*>(&message);
  Words words{};
  if (packed == nullptr || packed->payload.size() != sizeof words)
    throw RunError("received what is no sum of a rank's squared gradients");
  std::memcpy(words.data(), packed->payload.values.data(), sizeof words);
  return {{words[0], words[1]}, {words[2], words[3]}};
}

}  // namespace

bool SquareSum::add(std::span<const float> x) {
  for (const float one : x) {
    const double value = one, square = value * value;  // exact: 48 bits
    const bool fine =
        square < kMostSmall ? small.add(square) : large.add(square / kLargeUnit);  // false for NaN
    if (!fine) return false;
  }
  return true;
}

bool SquareSum::add(const SquareSum& other) {
  const bool fine = small.add(other.small);
  return large.add(other.large) && fine;
}

double SquareSum::norm() const { return std::sqrt(small.value() + large.value() * kLargeUnit); }

float clip_factor(double norm, double most) {
  return norm > most ? static_cast<float>(most / norm) : 1.0F;
}

HostPayload NormMessage::pack() const {
  const Words words{squares.small.high, squares.small.low, squares.large.high, squares.large.low};
  HostPayload payload(std::vector<float>(sizeof words / sizeof(float)));
  std::memcpy(payload.data(), words.data(), sizeof words);
  return payload;
}

std::optional<SquareSum> total_of(std::span<const PartPtr> messages) {
  SquareSum total;
  for (const PartPtr& message : messages) {
    if (!total.add(sum_of(*message))) return std::nullopt;
  }
  return total;
}

}  // namespace pipewright::exec
