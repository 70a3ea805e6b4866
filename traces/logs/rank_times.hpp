// What Megatron-LM's timers say of each rank, and of each pipeline stage.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "traces/logs/megatron_timers.hpp"

namespace pipewright::traces {

/// Times of one iteration in nanoseconds. Forward, backward, messages and sums lie within the
/// passes.
struct RankTimes {
  std::int64_t passes = 0;    // "forward-backward"
  std::int64_t forward = 0;   // "forward-compute"
  std::int64_t backward = 0;  // "backward-compute"
  std::int64_t messages = 0;  // all of "…-recv" and "…-send": waiting and sending
  std::int64_t sums = 0;      // of gradients: "all-grads-sync", "…-grads-all-reduce"
  std::int64_t optimizer = 0;

  std::int64_t computing() const { return forward + backward; }
  /// Of the passes, what no timer has: the host, and what it waits for elsewhere.
  std::int64_t rest() const { return passes - computing() - messages - sums; }
};

/// Throws InputError naming `file` if the timers of computing are not among them.
std::vector<RankTimes> rank_times_of(const TimedIterations& print, const std::string& file);

/// The print whose longest passes are the median (of an even number the shorter of the middle two).
std::size_t median_print(const std::vector<TimedIterations>& prints);

struct StageTimes {
  std::vector<int> ranks;
  RankTimes median;  // of its ranks, each time for itself
  int slowest = 0;   // the rank that computes longest
  double above = 0;  // by which part of the median
};

/// Ranks as Megatron-LM numbers them: those of a stage in a row, the first stage's first. `stages`
/// divides the number of ranks.
std::vector<StageTimes> stage_times_of(const std::vector<RankTimes>& ranks, int stages);

}  // namespace pipewright::traces
