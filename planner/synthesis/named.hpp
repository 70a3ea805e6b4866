// The registry's schedules as starting points and as what a synthesis is measured against.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "planner/synthesis/as_it_is.hpp"
#include "planner/synthesis/search.hpp"

namespace pipewright::planner::synthesis {

struct NamedBest {
  std::string name;  // "": no schedule fits
  std::int64_t value = kNever;
  std::optional<AsItIs> as_it_is;  // where that is better than the order as a sequence
};

/// Offers every schedule of the registry that has the placement, keeps to the limit and can be
/// written as a sequence (no overlapped pairs, no weight versions), planned for the request's costs
/// and limit. The best of them is returned, as it is or with backwards taken apart.
NamedBest offer_named(Search& search, const SynthesisRequest& request);

}  // namespace pipewright::planner::synthesis
