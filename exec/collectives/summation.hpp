// The sums that collectives take, over arrays that lie side by side. Pure functions.
#pragma once

#include <cstddef>
#include <span>

#include "exec/collectives/group.hpp"

namespace pipewright::exec::collectives {

/// result[i] = the sum of all summands' element i, added in the order given; `result` may be one of
/// them. False if a sum in fixed point is not finite or leaves its range.
[[nodiscard]] bool add_up(SumKind kind, std::span<const std::byte* const> summands,
                          std::size_t size, std::byte* result);

}  // namespace pipewright::exec::collectives
