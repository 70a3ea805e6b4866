// How well one timeline predicts another, action by action: a simulation and a run, or two runs.
// The formulas are in docs/metrics.md. Pure functions; any number of threads may call them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "traces/analysis/trace_timeline.hpp"

namespace pipewright::traces {

/// Two durations that belong together, in ns.
struct ComparedTimes {
  std::int64_t predicted_ns = 0, measured_ns = 0;
  std::int64_t error_ns() const { return predicted_ns - measured_ns; }
  /// 100 * (predicted - measured) / measured; where measured is 0: 0 if predicted is too, else 100.
  double error_percent() const;
};

struct ComparedKind {
  std::string
      kind;  // "F", "I", "W", "B", "pair", "OPT", …; "SEND_F": its transfers, by their receives
  std::int64_t count = 0;
  ComparedTimes sum;
  std::int64_t absolute_error_ns = 0;  // sum of |predicted - measured| over the kind
};

struct ComparedRank {
  int rank = 0;
  ComparedTimes busy;
};

/// The bubble: the share of the makespan in which ranks do not compute, 0 to 1.
struct ComparedRatio {
  double predicted = 0, measured = 0;
  double difference() const { return predicted - measured; }
};

struct ComparedAction {
  std::string action;  // "" if nothing was compared
  int rank = 0;
  ComparedTimes times;
};

struct Comparison {
  ComparedTimes step;
  ComparedRatio bubble;                  // of all ranks
  std::vector<ComparedRatio> bubble_of;  // by entry of `ranks`
  std::vector<ComparedKind> kinds;       // those that occur, in the order of ActionKind
  std::vector<ComparedRank> ranks;
  std::int64_t compared_actions = 0;       // computations found in both
  double mean_absolute_error_ns = 0;       // over these
  double mean_absolute_error_percent = 0;  // of their measured time in all
  ComparedAction worst;  // largest |error|; ties: lowest rank, then the earlier one
  std::int64_t only_predicted = 0, only_measured = 0;  // computations without a partner
};

/// Actions are matched by rank and name; of several of one name the k-th meets the k-th.
Comparison compare(const TraceTimeline& predicted, const TraceTimeline& measured);
/// Two timelines of one Program.
Comparison compare(const Program& program, const Timeline& predicted, const Timeline& measured);

}  // namespace pipewright::traces
