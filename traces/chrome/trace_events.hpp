// The events of a Chrome trace as they stand in the file, without their meaning. Used by
// traces/chrome/read_trace.cpp.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <streambuf>
#include <string>
#include <string_view>

namespace pipewright::traces {

/// What read_trace looks at; other members are skipped. pid and tid as text, for some tools write
/// words.
struct RawEvent {
  std::string phase, name, category, pid, tid;
  std::optional<std::int64_t> ts_ns, dur_ns;
  std::string action;                      // args.action, of our own traces
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
};

/// The most events that are kept of a trace.
inline constexpr std::size_t kMostEvents = 5'000'000;

/// Whether an event is kept; it may take out of it what is not needed.
using EventFilter = bool (*)(RawEvent&);

/// Reads an object with "traceEvents", or a bare list of events. Throws InputError if the text is
/// not JSON or neither of the two, or holds more than kMostEvents that are kept.
RawTrace read_events(std::streambuf& text, const std::string& file, EventFilter is_kept);

/// "12.345" (microseconds) as 12345 ns, rounded to the nearest; nullopt if it is no number or
/// beyond 69 years. Exact where a double is not: clocks that count from 1970 need 52 bits for the
/// microseconds alone.
std::optional<std::int64_t> nanoseconds_of_micros(std::string_view text);

}  // namespace pipewright::traces
