// Where a Program repeats itself.
#pragma once

#include <optional>
#include <vector>

#include "core/program/program.hpp"
#include "sim/steady/order_middle.hpp"

namespace pipewright::sim {

/// Of each rank the instructions [begin, end) of Program::code, in which each one but for the last
/// `period` is what stands `period` places later, so many micro-batches before, with its partner
/// and its inputs. nullopt: some rank's list has fewer than two such periods around its middle.
std::optional<std::vector<Middle>> middle_of(const Program& program, int micro_batches);

}  // namespace pipewright::sim
