// When each instruction of a Program ran: what sim predicts and exec measures,
// in one form.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/costs/costs.hpp"
#include "core/program/program.hpp"

namespace pipewright {

inline constexpr std::int64_t kNotEnded = -1;

/// Times in ns from the start of the step. Start of a transfer end: when it was
/// ready (head of its lane, issued, input there). -1: has not happened (a run
/// that got stuck).
struct Timeline {
  std::vector<std::int64_t> start;  // by instruction
  std::vector<std::int64_t> end;    // by instruction
  /// By transfer end: when the data began to move (rendezvous: both ends ready; eager: the SEND
  /// left). Computations: start.
  std::vector<std::int64_t> moving;
  std::int64_t makespan_ns = 0;
};

/// Figures of one rank (docs/metrics.md).
struct RankFigures {
  std::int64_t busy_ns = 0, span_ns = 0, first_start_ns = 0, last_end_ns = 0;
  int peak_activations = 0;
  std::int64_t peak_bytes = 0;  // 0 without a memory table
};

struct Figures {
  std::int64_t makespan_ns = 0;
  double bubble_ratio = 0;
  double span_bubble_ratio = 0;
  std::vector<RankFigures> ranks;
};

Figures figures_of(const Program& program, const Timeline& timeline, const CostTable& costs);
/// Peaks alone: they depend on the Program's order, not on times.
std::vector<RankFigures> peaks_of(const Program& program, const CostTable& costs);
/// figures_of() where these are known.
Figures figures_of(const Program& program, const Timeline& timeline,
                   std::vector<RankFigures> peaks);

}  // namespace pipewright
