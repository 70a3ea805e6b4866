// Which calls of a group belong together (docs/semantics.md §3.3). Part of lower().
#pragma once

#include "core/order/order.hpp"
#include "core/program/program.hpp"

namespace pipewright {

/// Appends them to Program::collectives, and those that make groups. O(instructions + calls of a
/// group · its ranks).
void append_calls(const Order& order, Program& program);

}  // namespace pipewright
