// What a picture of a timeline shows of a rank: its compute lane, by kind. Shared by the terminal
// and the SVG. The view points into the trace, which must outlive it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "traces/analysis/trace_timeline.hpp"

namespace pipewright::traces {

enum class Look : std::uint8_t {
  F,
  B,
  I,
  W,
  Pair,
  Other,     // OPT, REDUCE_GRAD, UNSHARD, RESHARD
  Transfer,  // one that occupies the compute lane
  Stuck,
  Bubble,
};
inline constexpr int kLooks = 9;

/// "F", "B", "I", "W", "pair", "update", "transfer", "stuck", "bubble".
std::string_view name_of(Look look);

struct LookedSpan {
  const TraceSpan* span = nullptr;
  Look look = Look::F;
};

struct ViewedRank {
  const TraceRank* rank = nullptr;
  std::vector<LookedSpan> spans;  // of the compute lane, by start; of those that take time
  std::int64_t busy_ns = 0;
  int peak_activations = 0;
};

struct ComputeView {
  std::vector<ViewedRank> ranks;
  std::int64_t end_ns = 0;  // of the picture; the makespan, or later where something is stuck
  std::array<bool, kLooks> used{};  // which looks occur (Bubble always)
};

ComputeView compute_view(const TraceTimeline& trace);

/// How a span of a rank is drawn; nullopt: it is not, for it takes no time or is not on the compute
/// lane.
std::optional<Look> look_of(const TraceSpan& span);

}  // namespace pipewright::traces
