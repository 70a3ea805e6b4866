// Which calls of a group belong together (docs/semantics.md §3.3). Part of lower().
#pragma once

#include <string_view>

#include "core/order/order.hpp"
#include "core/program/program.hpp"

namespace pipewright {

/// What of two calls that meet is not the same: as difference() says it, or "action" where they are
/// parts of another stage or kind, or only one is a part (§3.4).
std::string_view difference(const Program& program, InstructionId a, InstructionId b);

/// Appends them to Program::collectives, and those that make groups. O(instructions + calls of a
/// group · its ranks).
void append_calls(const Order& order, Program& program);

}  // namespace pipewright
