// A search's budget, counted: each thing that the search does has a price in time of an ordinary
// core, and the search ends when the prices add up to the budget. No clock is asked, so the same
// job and budget give the same answer on any machine, with any number of threads. Plain data.
#pragma once

#include <cstdint>

namespace pipewright::planner {

struct SearchBudget {
  std::int64_t most_ns = 0;  // 0: no limit
  std::int64_t spent_ns = 0;

  void spend(std::int64_t times, std::int64_t each_ns) { spent_ns += times * each_ns; }
  bool is_spent() const { return most_ns > 0 && spent_ns > most_ns; }
  /// 0 where there is no limit, else at least 1.
  std::int64_t left_ns() const {
    if (most_ns == 0) return 0;
    return spent_ns < most_ns ? most_ns - spent_ns : 1;
  }
};

/// Prices, measured on an ordinary core, with room to spare.
inline constexpr std::int64_t kMeshNs = 4'000;   // its bound
inline constexpr std::int64_t kShapeNs = 4'000;  // a schedule on a mesh: cut, costs, memory, bound
inline constexpr std::int64_t kInstructionNs = 300;  // of a configuration lowered and simulated
/// Orders that follow from the costs are made in several tries.
inline constexpr std::int64_t kTriesByCosts = 4;

}  // namespace pipewright::planner
