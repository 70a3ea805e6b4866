// Where a Program repeats itself.
#pragma once

#include <optional>
#include <vector>

#include "core/order/order.hpp"
#include "core/program/program.hpp"
#include "sim/steady/order_middle.hpp"

namespace pipewright::sim {

/// The Program's phases, `periods` of the order's as one: of each rank the instructions [begin,
/// end) of Program::code, in which each one but for the last `period` is what stands `period`
/// places later, with its partner and its inputs, as far as these are of the same phase. Those of
/// other phases may be any: while all ranks are in one, all before it has ended and nothing behind
/// it has begun. `program` is `order` lowered. nullopt: some rank's list has fewer than two such
/// periods.
std::optional<std::vector<Phase>> middle_of(const Program& program, const Order& order,
                                            const OrderMiddle& middle, int periods);

}  // namespace pipewright::sim
