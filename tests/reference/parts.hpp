// Section 3.4 of docs/semantics.md: what stands before an action that consists of parts.
#pragma once

#include <vector>

#include "tests/reference/order.hpp"
#include "tests/reference/program.hpp"

namespace pipewright::reference {

/// The lists with the parts of each action before it.
[[nodiscard]] Order with_parts(const Order& lists, const Parts& parts);
/// The action, or one of the pair, consists of parts.
[[nodiscard]] bool has_parts(const Cell& cell, const Parts& parts);
/// The first parts get the inputs of the action that they stand before, each other the one before
/// it, and the action the last ones.
void chain_parts(const Parts& parts, Program& program);

}  // namespace pipewright::reference
