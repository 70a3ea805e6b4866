// Operations that make connections: where `connect = first-use`, a batch that is one operation
// connects all its peers before anything of it moves (docs/semantics.md §2.4).
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/program/program.hpp"

namespace pipewright {

/// One side of a directed rank edge, which makes its connection by its first end.
struct EdgeSide {
  RankId source, destination;
  bool sends = false;

  auto operator<=>(const EdgeSide&) const = default;
};
EdgeSide side_of(const Program& program, InstructionId end);
inline EdgeSide other_side(EdgeSide side) { return {side.source, side.destination, !side.sends}; }
/// By side, its first end in the order of issue.
std::map<EdgeSide, InstructionId> first_ends(const Program& program);

/// An operation that holds the first end of a connection.
struct FirstUse {
  std::uint32_t batch = kNoBatch;
  std::vector<InstructionId> ends;  // of the operation
  /// Its first ends, each with the other rank's first end of that connection; kNoInstruction: there
  /// is none.
  std::vector<std::pair<InstructionId, InstructionId>> connections;
};
/// Empty where connections are there before the step.
std::vector<FirstUse> first_uses(const Program& program);

/// Which of them connect: all of their ends stand at the head of their lanes, and so do the other
/// ends of their connections, whose operations connect too. `stands(id)`: it has been issued and is
/// at the head of its lane, or has ended.
template <class Stands>
std::vector<std::uint8_t> connected(const std::vector<FirstUse>& uses, Stands&& stands) {
  std::vector<std::uint8_t> connects(uses.size());
  for (std::size_t u = 0; u < uses.size(); ++u)
    connects[u] = std::all_of(uses[u].ends.begin(), uses[u].ends.end(), stands);
  const auto can_meet = [&](InstructionId other) {
    if (other == kNoInstruction || !stands(other)) return false;
    for (std::size_t u = 0; u < uses.size(); ++u) {
      const auto& ends = uses[u].ends;
      if (std::find(ends.begin(), ends.end(), other) != ends.end()) return connects[u] != 0;
    }
    return true;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t u = 0; u < uses.size(); ++u) {
      if (connects[u] == 0) continue;
      for (const auto& [own, other] : uses[u].connections) {
        if (connects[u] == 0 || can_meet(other)) continue;
        connects[u] = 0;
        changed = true;
      }
    }
  }
  return connects;
}

}  // namespace pipewright
