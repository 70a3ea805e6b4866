// The single events of a Chrome trace, a line each. Used by traces/chrome/trace.cpp alone.
#pragma once

#include <string_view>

#include "traces/chrome/json_text.hpp"

namespace pipewright::traces {

/// Where an event stands: process and thread, both from 1, because 0 is the kernel's in Perfetto.
struct TracePlace {
  std::int64_t pid = 1;
  std::int64_t tid = 1;
};

class ChromeEvents {
 public:
  /// Writes the head of the file. Then events may follow, then end(). All times are multiplied by
  /// `time_scale`.
  ChromeEvents(std::size_t expected_events, std::int64_t time_scale);

  /// Metadata of a process or thread: "process_name" and its like.
  void name(TracePlace place, std::string_view what, std::string_view key, std::string_view value);
  void index(TracePlace place, std::string_view what, std::int64_t value);

  /// Begins a slice; the caller adds args through args(), then closes it. `color` may be empty.
  void begin_slice(TracePlace place, std::string_view category, std::string_view name,
                   std::string_view color, std::int64_t start_ns, std::int64_t end_ns);
  void arg(std::string_view key, std::string_view text);
  void arg(std::string_view key, std::int64_t value);
  void close_slice();

  /// One end of an arrow strictly inside the slice [start, end): the tail just before its end, the
  /// head just after its start. The slice must be at least 2 ns long as it is written.
  void arrow_tail(TracePlace place, std::int64_t id, std::string_view name, std::int64_t end_ns);
  void arrow_head(TracePlace place, std::int64_t id, std::string_view name, std::int64_t start_ns);

  /// A counter of one or two series.
  void counter(std::int64_t pid, std::string_view name, std::int64_t at_ns, std::string_view key,
               std::int64_t value);
  void counter(std::int64_t pid, std::string_view name, std::int64_t at_ns, std::string_view key,
               std::int64_t value, std::string_view second_key, std::int64_t second_value);

  /// Ends the list of events and opens the metadata; entry() adds to it, finish() gives the file.
  void end();
  void entry(std::string_view key, std::string_view value);
  void entry(std::string_view key, std::int64_t value);
  std::string finish();

 private:
  JsonText& event(std::string_view phase, TracePlace place);
  void time(std::string_view key, std::int64_t ns) { written_time(key, ns * time_scale_); }
  void written_time(std::string_view key, std::int64_t ns);
  void arrow(std::string_view phase, TracePlace place, std::int64_t id, std::string_view name);
  void comma();

  const std::int64_t time_scale_;
  JsonText out_;
  bool first_ = true;
};

}  // namespace pipewright::traces
