// Section 3.4 of docs/semantics.md: what stands before an action that consists of parts.
#pragma once

#include <vector>

#include "tests/reference/order.hpp"

namespace pipewright::reference {

/// The lists with the parts of each action before it.
[[nodiscard]] Order with_parts(const Order& lists, const Parts& parts);
/// The action, or one of the pair, consists of parts.
[[nodiscard]] bool has_parts(const Cell& cell, const Parts& parts);

}  // namespace pipewright::reference
