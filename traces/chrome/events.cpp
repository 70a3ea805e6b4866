#include "traces/chrome/events.hpp"

namespace pipewright::traces {

ChromeEvents::ChromeEvents(std::size_t expected_events, std::int64_t time_scale)
    : time_scale_(time_scale) {
  constexpr std::size_t kBytesAnEvent = 170;
  out_.reserve(expected_events * kBytesAnEvent + 4096);
  out_.raw("{\"traceEvents\":[");
}

JsonText& ChromeEvents::event(std::string_view phase, TracePlace place) {
  out_.raw(first_ ? "\n{\"ph\":\"" : ",\n{\"ph\":\"");
  first_ = false;
  return out_.raw(phase).raw("\",\"pid\":").number(place.pid).raw(",\"tid\":").number(place.tid);
}

void ChromeEvents::written_time(std::string_view key, std::int64_t ns) {
  out_.raw(",\"").raw(key).raw("\":").micros(ns);
}

void ChromeEvents::name(TracePlace place, std::string_view what, std::string_view key,
                        std::string_view value) {
  event("M", place).raw(",\"name\":").quoted(what);
  out_.raw(",\"args\":{").quoted(key).raw(':').quoted(value).raw("}}");
}

void ChromeEvents::index(TracePlace place, std::string_view what, std::int64_t value) {
  event("M", place).raw(",\"name\":").quoted(what);
  out_.raw(",\"args\":{\"sort_index\":").number(value).raw("}}");
}

void ChromeEvents::begin_slice(TracePlace place, std::string_view category, std::string_view name,
                               std::string_view color, std::int64_t start_ns, std::int64_t end_ns) {
  event("X", place);
  time("ts", start_ns);
  time("dur", end_ns - start_ns);
  out_.raw(",\"cat\":\"").raw(category).raw("\",\"name\":\"").raw(name).raw('"');
  if (!color.empty()) out_.raw(",\"cname\":\"").raw(color).raw('"');
  out_.raw(",\"args\":{");
  first_ = true;
}

void ChromeEvents::comma() {
  if (!first_) out_.raw(',');
  first_ = false;
}

void ChromeEvents::arg(std::string_view key, std::string_view text) {
  comma();
  out_.raw('"').raw(key).raw("\":").quoted(text);
}

void ChromeEvents::arg(std::string_view key, std::int64_t value) {
  comma();
  out_.raw('"').raw(key).raw("\":").number(value);
}

void ChromeEvents::close_slice() {
  out_.raw("}}");
  first_ = false;
}

void ChromeEvents::arrow(std::string_view phase, TracePlace place, std::int64_t id,
                         std::string_view name) {
  event(phase, place).raw(",\"id\":").number(id).raw(",\"cat\":\"transfer\",\"name\":\"");
  out_.raw(name).raw('"');
}

void ChromeEvents::arrow_tail(TracePlace place, std::int64_t id, std::string_view name,
                              std::int64_t end_ns) {
  arrow("s", place, id, name);
  written_time("ts", end_ns * time_scale_ - 1);
  out_.raw('}');
}

void ChromeEvents::arrow_head(TracePlace place, std::int64_t id, std::string_view name,
                              std::int64_t start_ns) {
  arrow("f", place, id, name);
  written_time("ts", start_ns * time_scale_ + 1);
  out_.raw(",\"bp\":\"e\"}");
}

void ChromeEvents::counter(std::int64_t pid, std::string_view name, std::int64_t at_ns,
                           std::string_view key, std::int64_t value) {
  event("C", {pid, 1});
  time("ts", at_ns);
  out_.raw(",\"cat\":\"memory\",\"name\":\"").raw(name).raw("\",\"args\":{\"").raw(key);
  out_.raw("\":").number(value).raw("}}");
}

void ChromeEvents::counter(std::int64_t pid, std::string_view name, std::int64_t at_ns,
                           std::string_view key, std::int64_t value, std::string_view second_key,
                           std::int64_t second_value) {
  event("C", {pid, 1});
  time("ts", at_ns);
  out_.raw(",\"cat\":\"memory\",\"name\":\"").raw(name).raw("\",\"args\":{\"").raw(key);
  out_.raw("\":").number(value).raw(",\"").raw(second_key).raw("\":").number(second_value);
  out_.raw("}}");
}

void ChromeEvents::end() {
  out_.raw("\n],\n\"displayTimeUnit\":\"ms\",\n\"metadata\":{");
  first_ = true;
}

void ChromeEvents::entry(std::string_view key, std::string_view value) {
  comma();
  out_.raw("\n  ").quoted(key).raw(": ").quoted(value);
}

void ChromeEvents::entry(std::string_view key, std::int64_t value) {
  comma();
  out_.raw("\n  ").quoted(key).raw(": ").number(value);
}

std::string ChromeEvents::finish() {
  out_.raw("\n}}\n");
  return out_.take();
}

}  // namespace pipewright::traces
