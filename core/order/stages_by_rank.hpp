// Placement::stages_of() of all ranks at once. Pure functions.
#pragma once

#include <vector>

#include "core/order/placement.hpp"

namespace pipewright {

/// By rank, its stages ascending. O(stages * micro_batches), where asking rank by rank is that many
/// times the ranks. `micro_batches`: of the order; looked at where the placement does.
std::vector<std::vector<StageId>> stages_by_rank(const Placement& placement, int micro_batches);

}  // namespace pipewright
