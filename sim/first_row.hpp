// Rows that belong to instructions, sorted by these: Program::pairs, Program::extra_inputs.
#pragma once

#include <algorithm>
#include <cstddef>

#include "core/program/program.hpp"

namespace pipewright::sim {

/// The first of this instruction or a later one.
template <class Rows>
std::size_t first_row(const Rows& rows, InstructionId id) {
  const auto found = std::lower_bound(
      rows.begin(), rows.end(), id, [](const auto& row, InstructionId i) { return row.first < i; });
  return static_cast<std::size_t>(found - rows.begin());
}

}  // namespace pipewright::sim
