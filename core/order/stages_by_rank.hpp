// Placement::stages_of() of all ranks at once. Pure functions.
#pragma once

#include <vector>

#include "core/order/placement.hpp"

namespace pipewright {

/// By rank, its stages ascending. O(stages * micro_batches); stages_of() for each rank would cost
/// that once a rank. `micro_batches`: those of the order, needed only where the placement depends
/// on them.
std::vector<std::vector<StageId>> stages_by_rank(const Placement& placement, int micro_batches);

}  // namespace pipewright
