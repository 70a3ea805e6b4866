#include "core/costs/part_weights.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace pipewright {
namespace {

bool is_beside_call(const std::vector<Part>& parts, std::size_t k) {
  return k > 0 && parts[k - 1].beside;
}

/// What the list takes where its weights are nanoseconds.
std::int64_t length_of(const std::vector<Part>& parts) {
  std::int64_t length = 0, calls = 0;  // those that go on beside the next part
  for (const Part& part : parts) {
    if (part.beside) {
      calls += part.weight;
      continue;
    }
    length += std::max(calls, part.weight);
    calls = 0;
  }
  return length + calls;
}

/// The computations share out so many nanoseconds.
void share_out(double all, const std::vector<double>& shares, std::vector<Part>& parts) {
  for (std::size_t k = 0; k < parts.size(); ++k) {
    if (parts[k].is_computation())
      parts[k].weight = std::max<std::int64_t>(1, std::llround(shares[k] * all));
  }
}

}  // namespace

Nanoseconds weigh(ActionParts& action, Nanoseconds whole,
                  const std::function<Nanoseconds(const Call&)>& price) {
  std::vector<Part>& parts = action.parts;
  std::vector<double> shares;
  std::int64_t calls = 0;
  double weights = 0;
  bool some_beside = false;
  for (Part& part : parts) {
    if (!part.is_computation()) calls += part.weight = price(part.call).value;
    some_beside |= part.beside;
    shares.push_back(part.is_computation() ? static_cast<double>(part.weight) : 0);
    weights += shares.back();
  }
  for (double& share : shares) share /= weights;
  // The most that fits; with calls beside computations more than what calls leave of the whole.
  std::int64_t all = whole.value - calls, too_much = whole.value + 1;
  while (some_beside && all + 1 < too_much) {
    const std::int64_t middle = all + (too_much - all) / 2;
    share_out(static_cast<double>(middle), shares, parts);
    (length_of(parts) <= whole.value ? all : too_much) = middle;
  }
  share_out(static_cast<double>(all), shares, parts);
  Part* largest = nullptr;
  for (std::size_t k = 0; k < parts.size(); ++k) {
    if (!parts[k].is_computation() || is_beside_call(parts, k)) continue;
    if (largest == nullptr || parts[k].weight > largest->weight) largest = &parts[k];
  }
  const std::int64_t left = whole.value - length_of(parts);
  largest->weight = std::max<std::int64_t>(1, largest->weight + left);
  std::int64_t computations = 0;
  for (const Part& part : parts) computations += part.is_computation() ? part.weight : 0;
  return Nanoseconds(computations);
}

}  // namespace pipewright
