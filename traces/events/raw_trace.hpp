// The events of another tool's trace as they stand in its file, without their meaning: slices, and
// names of processes and threads. Plain data.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

namespace pipewright::traces {

/// What read_trace looks at. pid and tid as text, for some tools write words.
struct RawEvent {
  std::string phase, name, category, pid, tid;  // phase "X": a slice, "M": a name
  std::optional<std::int64_t> ts_ns, dur_ns;
  std::string action;                      // args.action, of our own traces
  std::string part_of;                     // args.part_of, the action of which it is a part
  std::int64_t waited_ns = 0;              // args.waited_ns
  std::string label;                       // args.name, of name events
  std::optional<std::int64_t> sort_index;  // args.sort_index
  /// args.correlation: the same of a kernel and of the call that launched it.
  std::optional<std::int64_t> correlation;
  std::size_t position = 0;  // index in the list of events
};

struct RawTrace {
  std::deque<RawEvent> events;                  // phases X and M that are kept
  std::map<std::string, std::string> metadata;  // plain values of the top-level "metadata"
  // PyTorch's "distributedInfo": {"rank": …, "world_size": …} and "baseTimeNanoseconds"
  std::optional<std::int64_t> rank, world_size, base_ns;
  /// No two processes have a correlation in common.
  bool correlations_are_unique = false;
  /// Transfers are put on the device ahead of it, as computations are: when the host did is not
  /// when they ran.
  bool hosts_run_ahead = false;
};

/// The most events that are kept of a trace.
inline constexpr std::size_t kMostEvents = 5'000'000;

/// Whether an event is kept; it may take out of it what is not needed.
using EventFilter = bool (*)(RawEvent&);

}  // namespace pipewright::traces
