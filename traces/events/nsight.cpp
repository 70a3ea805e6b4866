#include "traces/events/nsight.hpp"

#include <charconv>
#include <map>
#include <set>
#include <unordered_map>

#include "core/base/error.hpp"
#include "traces/events/sqlite.hpp"

namespace pipewright::traces {
namespace {

/// "rank 1 step 3" (exec/devices/cuda/action_ranges.hpp).
struct OwnStep {
  int rank = 0, step = 0;
};

/// What follows the word, and the number behind it; false if that is not how it begins.
bool take_number(std::string_view& text, std::string_view word, int& number) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return false;
  text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
  return true;
}

std::optional<OwnStep> own_step(std::string_view name) {
  OwnStep own;
  if (!take_number(name, "rank ", own.rank) || !take_number(name, " step ", own.step) ||
      !name.empty()) {
    return std::nullopt;
  }
  return own;
}

class NsightReader {
 public:
  NsightReader(const Database& database, EventFilter is_kept)
      : file_(database.file()), is_kept_(is_kept), database_(database) {}

  RawTrace run() {
    if (!database_.has_table("NVTX_EVENTS")) {
      throw InputError(file_, "",
                       "has no table NVTX_EVENTS; expected ranges named after the actions of a "
                       "pipeline: record with nsys profile --trace=cuda,nvtx");
    }
    if (database_.has_table("StringIds")) {
      database_.each("SELECT id, value FROM StringIds", [&](const DatabaseRow& row) {
        texts_[row.number(0).value_or(0)] = row.text(1);
      });
    }
    read_ranges();
    if (database_.has_table("CUPTI_ACTIVITY_KIND_RUNTIME")) read_calls();
    if (database_.has_table("CUPTI_ACTIVITY_KIND_KERNEL")) read_kernels();
    if (!ranks_.empty()) {
      if (database_.has_table("CUPTI_ACTIVITY_KIND_MEMCPY")) read_copies();
      divide_by_rank();
    }
    if (database_.has_table("TARGET_INFO_SESSION_START_TIME")) {
      database_.each("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME",
                     [&](const DatabaseRow& row) { trace_.base_ns = row.number(0); });
    }
    trace_.correlations_are_unique = true;
    trace_.hosts_run_ahead = !ranks_.empty();
    return std::move(trace_);
  }

 private:
  void read_ranges() {
    database_.each(
        "SELECT start, \"end\", text, textId, globalTid FROM NVTX_EVENTS "
        "WHERE \"end\" IS NOT NULL",
        [&](const DatabaseRow& row) {
          RawEvent event = slice(row, "user_annotation", row.number(4).value_or(0));
          event.name = row.text(2);
          if (const auto id = row.number(3); event.name.empty() && id) event.name = texts_[*id];
          if (const auto own = own_step(event.name)) {
            ranks_[event.pid][event.tid] = own->rank;
            event.name = "ProfilerStep#" + std::to_string(own->step);
          }
          add(std::move(event));
        });
  }

  void read_calls() {
    database_.each(
        "SELECT start, \"end\", correlationId, globalTid FROM "
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        [&](const DatabaseRow& row) {
          RawEvent event = slice(row, "cuda_runtime", row.number(3).value_or(0));
          event.correlation = correlation(row.number(2), row.number(3));
          add(std::move(event));
        });
  }

  void read_kernels() {
    database_.each(
        "SELECT start, \"end\", correlationId, globalPid, shortName FROM "
        "CUPTI_ACTIVITY_KIND_KERNEL",
        [&](const DatabaseRow& row) {
          RawEvent event = slice(row, "kernel", row.number(3).value_or(0));
          event.correlation = correlation(row.number(2), row.number(3));
          event.name = texts_[row.number(4).value_or(0)];
          event.pid += " GPU";
          add(std::move(event));
        });
  }

  /// Of our own runs, where a message is a copy.
  void read_copies() {
    database_.each(
        "SELECT start, \"end\", correlationId, globalPid FROM CUPTI_ACTIVITY_KIND_MEMCPY",
        [&](const DatabaseRow& row) {
          RawEvent event = slice(row, "kernel", row.number(3).value_or(0));
          event.correlation = correlation(row.number(2), row.number(3));
          event.pid += " GPU";
          add(std::move(event));
        });
  }

  /// The threads of our ranks become processes of their own; where a process has one rank, with
  /// what libraries' threads do for it.
  void divide_by_rank() {
    const auto process_of_rank = [](const std::string& pid, int rank) {
      return pid + " rank " + std::to_string(rank);
    };
    std::set<std::pair<std::string, int>> named;
    for (RawEvent& event : trace_.events) {
      const auto threads = ranks_.find(event.pid);
      if (threads == ranks_.end()) continue;
      auto thread = threads->second.find(event.tid);
      if (thread == threads->second.end() && threads->second.size() == 1)
        thread = threads->second.begin();
      if (thread == threads->second.end()) continue;
      named.emplace(event.pid, thread->second);
      event.pid = process_of_rank(event.pid, thread->second);
    }
    for (const auto& [pid, rank] : named) {
      RawEvent name;
      name.phase = "M";
      name.name = "process_name";
      name.pid = process_of_rank(pid, rank);
      name.label = "rank " + std::to_string(rank);
      add(std::move(name));
    }
  }

  /// The numbers of processes and threads are packed: 8 bits each of hardware and virtual machine,
  /// 24 of the process, 24 of the thread.
  static std::int64_t process_of(std::int64_t global) { return global >> 24; }

  RawEvent slice(const DatabaseRow& row, const char* category, std::int64_t global) {
    constexpr std::int64_t kMostTime = std::int64_t{1} << 61;  // differences fit 64 bits
    RawEvent event;
    event.phase = "X";
    event.category = category;
    event.pid = std::to_string(process_of(global) & 0xFF'FFFF);
    event.tid = std::to_string(global & 0xFF'FFFF);
    const std::int64_t start = row.number(0).value_or(-1), end = row.number(1).value_or(-1);
    if (start < 0 || end < start || end > kMostTime) {
      throw InputError(file_, "",
                       "has a " + std::string(category) + " from " + std::to_string(start) +
                           " to " + std::to_string(end) +
                           " ns; expected a start of 0 or more and an end after it");
    }
    event.ts_ns = start;
    event.dur_ns = end - start;
    return event;
  }

  /// Each process counts its calls from 0.
  std::int64_t correlation(std::optional<std::int64_t> id, std::optional<std::int64_t> global) {
    const auto [process, is_new] =
        processes_.try_emplace(process_of(global.value_or(0)), processes_.size());
    return static_cast<std::int64_t>(process->second << 40) + (id.value_or(0) & 0xFF'FFFF'FFFF);
  }

  void add(RawEvent event) {
    event.position = position_++;
    if (!is_kept_(event)) return;
    trace_.events.push_back(std::move(event));
    if (trace_.events.size() > kMostEvents) {
      throw InputError(file_, "", "holds more than 5 million events; record a few steps");
    }
  }

  const std::string file_;
  const EventFilter is_kept_;
  const Database& database_;
  std::unordered_map<std::int64_t, std::string> texts_;
  std::unordered_map<std::int64_t, std::size_t>
      processes_;  // their numbers, in order of appearance
  std::map<std::string, std::map<std::string, int>> ranks_;  // of our own, by pid and tid
  std::size_t position_ = 0;
  RawTrace trace_;
};

}  // namespace

RawTrace read_nsight(const std::string& path, EventFilter is_kept) {
  return NsightReader(Database(path), is_kept).run();
}

RawTrace parse_nsight(std::string_view bytes, const std::string& file, EventFilter is_kept) {
  return NsightReader(Database(bytes, file), is_kept).run();
}

}  // namespace pipewright::traces
