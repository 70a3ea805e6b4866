// The registry's schedules as starting points and as what a synthesis is measured against.
#pragma once

#include <cstdint>
#include <string>

#include "planner/synthesis/search.hpp"

namespace pipewright::planner::synthesis {

struct NamedBest {
  std::string name;  // "": no schedule fits
  std::int64_t value = kNever;
};

/// Offers every schedule of the registry that has the placement, keeps to the limit and can be
/// written as a sequence (no overlapped pairs, no weight versions), planned for the request's costs
/// and limit. The best of them as they are (I and W fused where they are) is returned.
NamedBest offer_named(Search& search, const SynthesisRequest& request);

}  // namespace pipewright::planner::synthesis
