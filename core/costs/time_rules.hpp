// The rules by which a cost table arrives at a time, for callers that put other numbers in. Pure
// functions.
#pragma once

#include <optional>

#include "core/costs/costs.hpp"
#include "core/costs/factor.hpp"

namespace pipewright {

/// Of an overlapped pair that does not take what its two actions take together.
std::optional<Nanoseconds> own_pair_time(const CostTable& costs, const Action& first,
                                         const Action& second);

/// What a part takes of an action that takes so long (docs/semantics.md §3.4).
Nanoseconds part_time(const PartWork& work, Nanoseconds action);

/// CostTable::transfer_time() of f times the latency, rounded, and f times the bytes.
Nanoseconds transfer_time(const CostTable& costs, const Route& route, int ranks, Factor f);

}  // namespace pipewright
