// When a rank keeps an older version of its stages' weights, and when it lets go of it
// (docs/semantics.md §3.1). Pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/order/order.hpp"
#include "core/program/program.hpp"

namespace pipewright {

struct VersionChange {
  std::size_t after = 0;  // place in the rank's list; the change is there when it has ended
  int stage = 0;
  int change = 0;  // of the older versions kept: 1, -1
};

/// An OPT keeps what its rank's stages had before it where a later computation names it, until the
/// last one that does (weight stashing, arXiv:1806.03377 §3.3). `list`: one rank's, in order;
/// `stages`: those that it updates. Ascending; empty where nothing names a version.
std::vector<VersionChange> version_changes(std::span<const Cell> list,
                                           std::span<const StageId> stages);

/// The same of a Program's rank; places count from its first instruction. O(1) where it is
/// synchronous.
std::vector<VersionChange> version_changes(const Program& program, RankId rank);

}  // namespace pipewright
