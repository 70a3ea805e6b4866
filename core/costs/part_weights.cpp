#include "core/costs/part_weights.hpp"

#include <algorithm>
#include <cmath>

namespace pipewright {

Nanoseconds weigh(ActionParts& action, Nanoseconds whole,
                  const std::function<Nanoseconds(const Call&)>& price) {
  Nanoseconds rest = whole;
  double weights = 0;
  for (Part& part : action.parts) {
    if (part.is_computation()) {
      weights += static_cast<double>(part.weight);
      continue;
    }
    const Nanoseconds time = price(part.call);
    part.weight = time.value;
    rest = rest - time;
  }
  std::int64_t left = rest.value;
  Part* largest = nullptr;
  for (Part& part : action.parts) {
    if (!part.is_computation()) continue;
    const double share = static_cast<double>(part.weight) / weights;
    part.weight = std::max<std::int64_t>(1, std::llround(share * static_cast<double>(rest.value)));
    left -= part.weight;
    if (largest == nullptr || part.weight > largest->weight) largest = &part;
  }
  largest->weight = std::max<std::int64_t>(1, largest->weight + left);
  return rest;
}

}  // namespace pipewright
