#include "tests/support/trace_rules.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

namespace pipewright::test {
namespace {

using nlohmann::json;
using Thread = std::pair<std::int64_t, std::int64_t>;

// Colour names that both the importer of 2016 and today's know.
const std::set<std::string> kColors = {"thread_state_uninterruptible",
                                       "thread_state_iowait",
                                       "thread_state_running",
                                       "thread_state_runnable",
                                       "thread_state_sleeping",
                                       "thread_state_unknown",
                                       "background_memory_dump",
                                       "light_memory_dump",
                                       "detailed_memory_dump",
                                       "generic_work",
                                       "good",
                                       "bad",
                                       "terrible",
                                       "black",
                                       "rail_response",
                                       "rail_animation",
                                       "rail_idle",
                                       "rail_load",
                                       "startup"};

class Rules {
 public:
  TraceFacts run(std::string_view text) {
    for (const char c : text) {
      if (static_cast<unsigned char>(c) < 0x20 && c != '\n')
        problem("a control character in the file");
    }
    const json trace = json::parse(text, nullptr, false);
    if (trace.is_discarded() || !trace.contains("traceEvents")) {
      problem("not a trace");
      return facts_;
    }
    if (trace.value("displayTimeUnit", "") != "ms") problem("displayTimeUnit is not ms");
    for (const json& event : trace["traceEvents"]) take(event);
    // As Perfetto: sorted by time in whole nanoseconds, stream order among equals.
    std::stable_sort(timed_.begin(), timed_.end(),
                     [](const json* a, const json* b) { return ns(*a, "ts") < ns(*b, "ts"); });
    for (const json* event : timed_) replay(*event);
    for (const auto& [id, ends] : arrows_) {
      if (ends.first == nullptr || ends.second == nullptr) {
        problem("arrow " + std::to_string(id) + " has one end");
        continue;
      }
      if ((*ends.first)["name"] != (*ends.second)["name"] ||
          (*ends.first)["cat"] != (*ends.second)["cat"]) {
        problem("arrow " + std::to_string(id) + " has two names");
      }
    }
    facts_.arrows = static_cast<int>(arrows_.size());
    facts_.processes = static_cast<int>(processes_.size());
    facts_.threads = static_cast<int>(threads_.size());
    for (const Thread& thread : used_) {
      if (threads_.count(thread) == 0) problem("a thread without a name");
      if (processes_.count(thread.first) == 0) problem("a process without a name");
    }
    return facts_;
  }

 private:
  static std::int64_t ns(const json& event, const char* key) {
    return std::llround(event[key].get<double>() * 1000);
  }
  static Thread thread_of(const json& event) { return {event["pid"], event["tid"]}; }

  void problem(const std::string& what) {
    if (facts_.problems.size() < 20) facts_.problems.push_back(what);
  }

  void take(const json& event) {
    for (const char* key : {"pid", "tid"}) {
      if (!event.contains(key) || !event[key].is_number_integer() || event[key] < 1) {
        problem("pid or tid is no number from 1: " + event.dump());
        return;
      }
    }
    const std::string phase = event.value("ph", "");
    if (phase == "M") return metadata(event);
    used_.insert(thread_of(event));
    if (!event.contains("ts") || !event["ts"].is_number() || event["ts"] < 0) {
      return problem("no time: " + event.dump());
    }
    if (phase == "X") {
      slice(event);
    } else if (phase == "s" || phase == "f") {
      arrow(event, phase == "s");
    } else if (phase == "C") {
      counter(event);
    } else {
      problem("unknown phase: " + event.dump());
    }
  }

  void metadata(const json& event) {
    const std::string name = event.value("name", "");
    const json& args = event["args"];
    if (name == "process_name" && args["name"].is_string()) {
      processes_.insert(event["pid"].get<std::int64_t>());
    } else if (name == "thread_name" && args["name"].is_string()) {
      threads_.insert(thread_of(event));
    } else if (name == "process_sort_index" || name == "thread_sort_index") {
      if (!args["sort_index"].is_number_integer()) problem("sort index is no integer");
    } else if (name != "process_labels" || !args["labels"].is_string()) {
      problem("unknown metadata: " + event.dump());
    }
  }

  void whole_ns(const json& event, const char* key) {
    const double value = event[key].get<double>() * 1000;
    if (std::abs(value - std::round(value)) > 1e-3 + 1e-12 * std::abs(value)) {
      problem(std::string(key) + " is no whole nanosecond: " + event.dump());
    }
  }

  void slice(const json& event) {
    ++facts_.slices;
    if (!event.contains("dur") || event["dur"] < 0) return problem("no duration: " + event.dump());
    whole_ns(event, "ts");
    whole_ns(event, "dur");
    if (event.contains("cname") && kColors.count(event["cname"]) == 0) {
      problem("colour unknown to old viewers: " + event["cname"].dump());
    }
    timed_.push_back(&event);
  }

  void arrow(const json& event, bool tail) {
    if (!event["id"].is_number_integer()) return problem("id is no number: " + event.dump());
    if (!tail && event.value("bp", "") != "e") problem("head without bp: " + event.dump());
    auto& ends = arrows_[event["id"]];
    const json*& end = tail ? ends.first : ends.second;
    if (end != nullptr) problem("id used twice: " + event.dump());
    end = &event;
    timed_.push_back(&event);
  }

  void counter(const json& event) {
    ++facts_.counters;
    if (event["args"].empty()) problem("counter without a value");
    for (const json& value : event["args"]) {
      if (!value.is_number_integer()) problem("counter is no integer: " + event.dump());
    }
  }

  void replay(const json& event) {
    std::vector<const json*>& open = open_[thread_of(event)];
    const std::int64_t at = ns(event, "ts");
    while (!open.empty() && ns(*open.back(), "ts") + ns(*open.back(), "dur") <= at) open.pop_back();
    if (event["ph"] == "X") {
      if (!open.empty() &&
          at + ns(event, "dur") > ns(*open.back(), "ts") + ns(*open.back(), "dur")) {
        problem("slices overlap: " + open.back()->dump() + " and " + event.dump());
      }
      open.push_back(&event);
      return;
    }
    if (open.empty()) return problem("no slice around " + event.dump());
    // chrome://tracing takes the time as it is written, and finds no slice shorter than 1 us that
    // follows another.
    const double exact = event["ts"], start = (*open.back())["ts"], dur = (*open.back())["dur"];
    if (!(exact > start && exact < start + dur)) problem("not inside its slice: " + event.dump());
    if (dur < 1) problem("bound to a slice too short: " + event.dump());
  }

  TraceFacts facts_;
  std::set<std::int64_t> processes_;
  std::set<Thread> threads_, used_;
  std::vector<const json*> timed_;
  std::map<std::int64_t, std::pair<const json*, const json*>> arrows_;
  std::map<Thread, std::vector<const json*>> open_;
};

}  // namespace

TraceFacts trace_facts(std::string_view text) { return Rules().run(text); }

}  // namespace pipewright::test
