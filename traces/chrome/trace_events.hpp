// The events of a Chrome trace, read. Used by traces/chrome/read_trace.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <streambuf>
#include <string>
#include <string_view>

#include "traces/events/raw_trace.hpp"

namespace pipewright::traces {

/// Reads an object with "traceEvents", or a bare list of events. A beginning (phase B) and its end
/// (phase E) on one thread are one slice, as if they were written as phase X. Throws InputError if
/// the text is not JSON or neither of the two, or holds more than kMostEvents that are kept.
RawTrace read_events(std::streambuf& text, const std::string& file, EventFilter is_kept);

/// "12.345" (microseconds) as 12345 ns, rounded to the nearest; nullopt if it is no number or
/// beyond 69 years. Exact where a double is not: clocks that count from 1970 need 52 bits for the
/// microseconds alone.
std::optional<std::int64_t> nanoseconds_of_micros(std::string_view text);

}  // namespace pipewright::traces
