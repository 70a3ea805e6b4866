// What the idle time of a rank comes from in the end: what held back the action that came next,
// what held that back, and so on to the root (docs/metrics.md). Times in ns. Pure functions; any
// number of threads may call them.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/costs/costs.hpp"
#include "core/timeline/timeline.hpp"
#include "traces/analysis/bubbles.hpp"
#include "traces/analysis/trace_timeline.hpp"

namespace pipewright::traces {

enum class RootCause : std::uint8_t {
  Fill,         // before the rank's first computation
  Drain,        // after its last one
  Upstream,     // an action of another rank ran, for as long as its like and its consumer take
  Straggler,    // for as long as it took more than the same stage's median elsewhere
  Imbalance,    // for as long as it took more than the action that it feeds
  Latency,      // a message was under way
  Bandwidth,    // its bytes were
  Queue,        // it waited for others, for credit, or for its turn
  Collective,   // all members were there
  Optimizer,    // another rank updated its weights
  Host,         // the trace shows the host starting transfers
  Unexplained,  // nothing of this; of a simulation none
  Stuck,        // the rest of a step that did not finish
};
inline constexpr int kRootCauses = 13;

/// "fill", "drain", "upstream action", "straggler", "imbalance", "message latency", "message
/// bandwidth", "message queue", "collective", "optimizer", "host", "unexplained", "stuck".
std::string_view to_string(RootCause cause);

struct RootSpan {
  RankId rank;  // which is idle
  std::int64_t start_ns = 0, end_ns = 0;
  RootCause cause = RootCause::Fill;
  BubbleCause bubble = BubbleCause::Fill;  // a part of this bubble
  /// The computation that had to wait; kNoInstruction for Drain and Stuck.
  InstructionId waiting = kNoInstruction;
  /// The computation, the end of a message or the member of a collective that it waited for;
  /// kNoInstruction for Fill, Drain and Stuck.
  InstructionId root = kNoInstruction;
  /// Where it waited for a collective: the member that came last, nearest to the idle rank.
  InstructionId last_member = kNoInstruction;
};

struct RootTotals {
  std::array<std::int64_t, kRootCauses> ns{};
  std::int64_t of(RootCause cause) const { return ns[static_cast<std::size_t>(cause)]; }
};

struct RootReport {
  std::vector<RootSpan> spans;  // by rank, then start; together they are the bubbles
  std::vector<RootTotals> ranks;
  RootTotals total;
};

/// `costs`: of a simulation, whose messages are divided by them; of a trace a table without stages:
/// the fastest message of a route counts as its latency. `trace`: where the timeline is from one.
RootReport root_causes(const Program& program, const Timeline& timeline, const CostTable& costs,
                       const BubbleReport& bubbles, const TraceTimeline* trace = nullptr);

/// What the idle time that has one root instruction comes to.
struct RootOf {
  InstructionId root = kNoInstruction;  // of a message its SEND, where the Program has it
  std::int64_t idle_ns = 0;             // of all ranks
  RootTotals by_cause;
};
/// By idle time, the largest first, of equals the first in the Program.
std::vector<RootOf> by_root(const Program& program, const RootReport& report);

/// How long ranks waited, over all collectives, until a rank came as the last.
struct LateMember {
  RankId rank;
  std::int64_t idle_ns = 0;
};
/// By idle time, the largest first.
std::vector<LateMember> late_members(const Program& program, const RootReport& report);

}  // namespace pipewright::traces
