// A timeline without its Program: what a trace file says, ours or another tool's, and what the
// terminal, the picture and the comparison are made from. Plain data. Times in ns from the start of
// the step.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/timeline/timeline.hpp"

namespace pipewright::traces {

/// Transfer: members of collectives too.
enum class SpanKind : std::uint8_t { Compute, Transfer, Stuck };

struct TraceSpan {
  SpanKind kind = SpanKind::Compute;
  Cell cell;                   // what ran; for Stuck what had not ended
  std::uint32_t lane = 0;      // index into TraceRank::lanes
  std::int64_t start_ns = 0;   // of a transfer end: when it was ready
  std::int64_t moving_ns = 0;  // of a transfer end: when data began to move, never before start_ns
  std::int64_t end_ns = 0;     // of Stuck: the end of the trace
  bool is_part = false;        // of a computation: a part of the action in `cell`
  bool awaited = false;        // of a RECV in another tool's trace: its end let a computation begin

  std::int64_t duration_ns() const { return end_ns - start_ns; }
};

struct TimeRange {
  std::int64_t start_ns = 0, end_ns = 0;
};

/// How waiting inside the slices of another tool's trace was told from work.
enum class WaitRule : std::uint8_t {
  Unneeded,   // our own trace: slices hold nothing but work
  Receives,   // by the end of the receives that a computation needs
  Operators,  // by the first operator inside the slice
  Producers,  // by the end of what feeds it on another rank
  Unknown,    // by nothing: waiting inside a slice counts as work
};

struct TraceRank {
  int rank = 0;
  std::vector<std::string> lanes;  // the compute lane first
  std::vector<TraceSpan> spans;    // by start, then end
  WaitRule wait_rule = WaitRule::Unneeded;
  std::vector<TimeRange> waits;  // taken out of computations
  std::vector<TimeRange> posts;  // the host starts transfers and collectives
};

struct TraceTimeline {
  std::string source;                           // file name, or "" where it was never in a file
  std::map<std::string, std::string> metadata;  // "schedule", "policy", "costs", …
  std::vector<TraceRank> ranks;                 // by rank number
  std::int64_t makespan_ns = 0;
  /// Another tool's: what the clock of the machine showed at time 0, and how many ranks there are.
  std::int64_t clock_ns = 0;
  std::int64_t base_ns = 0;  // and where the file's own times are 0
  int world_size = 0;        // 0: the file does not say
  /// Another tool's: which of the file's steps this is, by PyTorch's profiler or counted from 0.
  int step = 0;
  bool steps_are_marked = false;    // by the profiler
  bool stages_are_ranks = false;    // for its slices do not say which stage a rank has
  std::size_t stray_transfers = 0;  // kernels of NCCL, of all steps, outside any action
};

/// The neutral form of a Timeline.
TraceTimeline trace_timeline(const Program& program, const Timeline& timeline);

/// Replaces all times of a rank, each by what the function makes of it.
void retime(TraceRank& rank, const std::function<std::int64_t(std::int64_t)>& time_of);
/// Moves all times of a rank.
void shift(TraceRank& rank, std::int64_t by_ns);
/// When its first action began, waiting for its input included. The rank has a span.
std::int64_t begin_ns(const TraceRank& rank);
/// Sum of the durations of the rank's computations.
std::int64_t busy_ns(const TraceRank& rank);
/// True if no span belongs to a backward (docs/semantics.md §7).
bool is_forward_only(const TraceTimeline& trace);
/// Counts the activations alive along a rank's computations (docs/semantics.md §6).
class LiveActivations {
 public:
  explicit LiveActivations(bool forward_only) : forward_only_(forward_only) {}
  void add(const Cell& computation);
  int peak() const { return peak_; }

 private:
  void take(const Action& action);

  bool forward_only_;
  int live_ = 0, peak_ = 0;
};
/// Most activations alive at once along the rank's computations.
int peak_activations(const TraceRank& rank, bool forward_only = false);

/// What a picture shows of an instruction. Of a call its kind alone: its number means nothing
/// outside its Program. Of a computation that is a part its action.
Cell drawn_cell(const Program& program, InstructionId id);

/// "F m3 s1", "F m0 s2 v3", "F m7 s0 + B m3 s7", "SEND_F m3 s1", "OPT": a name that viewers colour
/// by its letters (they ignore the digits). Appends, for a trace has millions.
void append_slice_name(const Cell& cell, std::string& out);

/// The first unfinished instruction of each lane of a Program that got stuck, if it is known to
/// wait: the head of each compute lane, and each transfer end that was ready. Empty if all have
/// ended.
struct StuckSpan {
  InstructionId instruction = kNoInstruction;
  std::int64_t start_ns = 0;  // since when it waits
};
std::vector<StuckSpan> stuck_spans(const Program& program, const LaneTable& lanes,
                                   const Timeline& timeline);
/// The end of a trace: the makespan, and for one that got stuck a twentieth more (at least 1 us),
/// so that what hangs can be seen.
std::int64_t trace_end_ns(const Timeline& timeline, bool stuck);

}  // namespace pipewright::traces
