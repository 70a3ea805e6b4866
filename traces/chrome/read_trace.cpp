#include "traces/chrome/read_trace.hpp"

#include <algorithm>
#include <charconv>
#include <tuple>

#include "core/base/error.hpp"
#include "core/base/units.hpp"
#include "core/order/call.hpp"
#include "traces/analysis/slice_waits.hpp"
#include "traces/chrome/trace_events.hpp"
#include "traces/chrome/unpacked_stream.hpp"

namespace pipewright::traces {
namespace {

constexpr std::string_view kOwnSchema = "pipewright.trace/";
constexpr std::int64_t kMostWait = std::int64_t{1} << 60;
constexpr std::int64_t kMostRanks = 1 << 24;
constexpr std::int64_t kMostTogether = std::int64_t{1} << 62;

/// Text out of a file for a message: short, and on one line.
std::string printable(std::string_view text) {
  std::string out(text.substr(0, 40));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  return out;
}

/// "m3" with letter 'm' is 3.
std::optional<int> numbered(std::string_view word, char letter) {
  int value = 0;
  if (word.size() < 2 || word[0] != letter || word[1] == '-') return std::nullopt;
  const char* end = word.data() + word.size();
  const auto [rest, error] = std::from_chars(word.data() + 1, end, value);
  if (error != std::errc() || rest != end) return std::nullopt;
  return value;
}

/// Of a call its kind, as in trace_timeline().
std::optional<Cell> cell_of_action(std::string_view text) {
  if (const auto call = parse_call(text))
    return Cell{{.kind = call->kind, .stage = {}, .micro_batch = {}}, std::nullopt};
  return parse_cell(text);
}

/// "F m3 s1", "F m0 s2 v3", "UNSHARD s1", "OPT", as append_slice_name() writes them.
std::optional<Action> action_of_slice_name(std::string_view name) {
  std::vector<std::string_view> words;
  while (!name.empty()) {
    const auto space = name.find(' ');
    words.push_back(name.substr(0, space));
    name.remove_prefix(space == std::string_view::npos ? name.size() : space + 1);
  }
  for (int k = 0; k < kActionKinds && !words.empty(); ++k) {
    Action action{.kind = static_cast<ActionKind>(k), .stage = {}, .micro_batch = {}};
    if (words[0] != to_string(action.kind)) continue;
    std::size_t next = 1;
    const auto take = [&](char letter) {
      const auto value = next < words.size() ? numbered(words[next], letter) : std::nullopt;
      if (value) ++next;
      return value;
    };
    if (has_micro_batch(action.kind)) {
      const auto micro_batch = take('m');
      if (!micro_batch) return std::nullopt;
      action.micro_batch = MicroBatchId(*micro_batch);
    }
    if (has_stage(action.kind)) {
      const auto stage = take('s');
      if (!stage) return std::nullopt;
      action.stage = StageId(*stage);
    }
    if (const auto version = take('v')) action.version = *version;
    if (next == words.size()) return action;
  }
  return std::nullopt;
}

/// "gloo:recv", "nccl:recv 0<-1": what a back end calls a receive. Not "c10d::recv_", which only
/// issues one.
bool is_backend_receive(std::string_view name) {
  const auto colon = name.find(':');
  return colon != std::string_view::npos && name.substr(colon + 1).starts_with("recv");
}

/// An operator or kernel that computes.
bool is_operator(const RawEvent& event, bool on_gpu) {
  if (event.category != (on_gpu ? "kernel" : "cpu_op")) return false;
  return !event.name.starts_with("c10d::") && !event.name.starts_with("nccl");
}

/// What the reader looks at of an event; the many operators of a trace need no name.
bool is_of_use(RawEvent& event) {
  if (event.phase == "M") return event.name.find("_name") != event.name.npos || event.sort_index;
  if (is_operator(event, true) || is_operator(event, false)) {
    if (!cell_of_slice_name(event.name) && !is_backend_receive(event.name)) event.name.clear();
    return true;
  }
  return !event.action.empty() || is_backend_receive(event.name) ||
         cell_of_slice_name(event.name).has_value();
}

/// A rank computes one action at a time: what overlaps would count twice. Tools that round times
/// leave overlaps of up to a microsecond, which are taken off the later action.
void settle_overlaps(TraceRank& rank, const std::string& file) {
  constexpr std::int64_t kRounding = 1000;
  const TraceSpan* latest = nullptr;
  for (TraceSpan& span : rank.spans) {
    const ActionKind kind = span.cell.action.kind;
    if (span.kind != SpanKind::Compute || !(is_compute(kind) || kind == ActionKind::Opt)) continue;
    if (latest != nullptr && span.start_ns + kRounding < latest->end_ns) {
      throw InputError(
          file, "rank " + std::to_string(rank.rank),
          to_string(span.cell) + " begins " +
              format_duration(Nanoseconds(latest->end_ns - span.start_ns)) + " before " +
              to_string(latest->cell) +
              " has ended; expected computations one after the other, as one rank does them");
    }
    if (latest != nullptr && span.start_ns < latest->end_ns) {
      span.start_ns = span.moving_ns = latest->end_ns;
      span.end_ns = std::max(span.end_ns, span.start_ns);
    }
    latest = &span;
  }
}

/// Collects the spans of each process, then numbers the ranks.
class Collector {
 public:
  Collector(RawTrace raw, std::string file) : raw_(std::move(raw)), file_(std::move(file)) {
    trace_.source = file_;
    trace_.metadata = std::move(raw_.metadata);
    own_ = is_own(trace_);
  }

  TraceTimeline run() {
    if (own_) check_metadata();
    for (const RawEvent& event : raw_.events) {
      if (event.phase == "M") note_name(event);
    }
    on_gpu_ = !own_ && std::any_of(raw_.events.begin(), raw_.events.end(), [](const RawEvent& e) {
      return e.category == "gpu_user_annotation" && cell_of_slice_name(e.name).has_value();
    });
    for (const RawEvent& event : raw_.events) {
      if (event.phase == "X") take(event);
    }
    number_ranks();
    if (trace_.ranks.empty()) {
      throw InputError(file_, "/traceEvents",
                       "holds no action of a pipeline; expected complete (ph X) slices named like "
                       "\"F m3 s0\", \"0F3\" or \"PP:0F3\"");
    }
    for (TraceRank& rank : trace_.ranks) settle_overlaps(rank, file_);
    finish_times();
    return std::move(trace_);
  }

 private:
  struct Process {
    std::string name;
    std::int64_t sort_index = 0;
    std::map<std::string, std::string> thread_names;
    std::map<std::string, std::int64_t> thread_order;
    std::map<std::string, std::vector<TraceSpan>> spans;  // by tid
    SliceSurroundings around;
  };

  void check_metadata() {
    const auto scale = trace_.metadata.find("time_scale");
    if (scale != trace_.metadata.end() && scale->second == "1000") time_scale_ = 1000;
    const std::string& schema = trace_.metadata.at("schema");
    if (schema == std::string(kOwnSchema) + "1") return;
    throw InputError(
        file_, "/metadata/schema",
        "is \"" + printable(schema) + "\"; this version reads \"" + std::string(kOwnSchema) +
            "1\": use the version of pipewright that wrote the trace, or write it again");
  }

  void note_name(const RawEvent& event) {
    Process& process = processes_[event.pid];
    if (event.name == "process_name") process.name = event.label;
    if (event.name == "process_sort_index") process.sort_index = event.sort_index.value_or(0);
    if (event.name == "thread_name") process.thread_names[event.tid] = event.label;
    if (event.name == "thread_sort_index") {
      process.thread_order[event.tid] = event.sort_index.value_or(0);
    }
  }

  void note_surroundings(const RawEvent& event) {
    if (!event.ts_ns || !event.dur_ns || *event.dur_ns < 0) return;
    const TimeRange range{*event.ts_ns, *event.ts_ns + *event.dur_ns};
    SliceSurroundings& around = processes_[event.pid].around;
    if (is_backend_receive(event.name)) around.receives.push_back(range);
    if (is_operator(event, on_gpu_)) around.operators.push_back(range);
  }

  void take(const RawEvent& event) {
    if (!own_) note_surroundings(event);
    if (on_gpu_ && event.category != "gpu_user_annotation") return;
    std::optional<Cell> cell;
    if (own_) {
      if (event.action.empty()) return;  // a wait or a bubble
      cell = cell_of_action(event.action);
      if (!cell)
        fail(event, "/args/action",
             "an action such as \"0F3\", found \"" + printable(event.action) + '"');
    } else {
      cell = cell_of_slice_name(event.name);
      if (!cell) return;
    }
    if (!event.ts_ns) fail(event, "/ts", "a time in microseconds");
    if (!event.dur_ns || *event.dur_ns < 0)
      fail(event, "/dur", "a duration in microseconds, 0 or more");
    const bool transfer = is_transfer(cell->action.kind) ||
                          (own_ ? event.category == "collective" : is_wait(cell->action.kind));
    if (event.waited_ns < 0 || event.waited_ns > kMostWait) {
      fail(event, "/args/waited_ns", "a duration in nanoseconds, 0 or more");
    }
    const std::int64_t waited = own_ && transfer ? event.waited_ns : 0;
    const std::int64_t moving = *event.ts_ns / time_scale_;
    TraceSpan span{.kind = transfer ? SpanKind::Transfer : SpanKind::Compute,
                   .cell = *cell,
                   .lane = 0,
                   .start_ns = moving - waited,
                   .moving_ns = moving,
                   .end_ns = (*event.ts_ns + *event.dur_ns) / time_scale_};
    if (own_ && span.start_ns < 0)
      fail(event, "/ts", "a time from the start of the step, 0 or more");
    if (event.category == "stuck") span.kind = SpanKind::Stuck;
    processes_[event.pid].spans[event.tid].push_back(span);
  }

  [[noreturn]] void fail(const RawEvent& event, const std::string& where,
                         const std::string& expected) const {
    throw InputError(file_, "/traceEvents/" + std::to_string(event.position) + where,
                     "expected " + expected);
  }

  void number_ranks() {
    std::vector<std::pair<std::string, Process*>> used;
    for (auto& [pid, process] : processes_) {
      if (has_action(process)) used.emplace_back(pid, &process);
    }
    std::stable_sort(used.begin(), used.end(), [](const auto& a, const auto& b) {
      // Numbers as numbers: a shorter text of digits is the smaller one.
      return std::make_tuple(a.second->sort_index, a.first.size(), a.first) <
             std::make_tuple(b.second->sort_index, b.first.size(), b.first);
    });
    std::map<int, TraceRank> ranks;
    for (std::size_t i = 0; i < used.size(); ++i) {
      Process& process = *used[i].second;
      int number = static_cast<int>(i);
      if (const auto named = rank_in_name(process.name)) number = *named;
      if (raw_.rank) number = static_cast<int>(std::clamp<std::int64_t>(*raw_.rank, 0, kMostRanks));
      TraceRank& rank = ranks[number];
      rank.rank = number;
      add_to(rank, process);
      if (!own_) separate_waits(rank, std::move(process.around));
    }
    for (auto& [number, rank] : ranks) trace_.ranks.push_back(std::move(rank));
  }

  /// An optimizer's step alone is no pipeline.
  bool has_action(const Process& process) const {
    return std::any_of(process.spans.begin(), process.spans.end(), [&](const auto& of_thread) {
      return std::any_of(
          of_thread.second.begin(), of_thread.second.end(),
          [&](const TraceSpan& span) { return own_ || has_stage(span.cell.action.kind); });
    });
  }

  static std::optional<int> rank_in_name(std::string_view name) {
    constexpr std::string_view kRank = "rank ";
    if (name.substr(0, kRank.size()) != kRank) return std::nullopt;
    name.remove_prefix(kRank.size() -
                       1);  // keeps the space, which stands where a letter is expected
    return numbered(name, ' ');
  }

  static void add_to(TraceRank& rank, Process& process) {
    std::vector<std::tuple<std::int64_t, std::size_t, std::string>> tids;
    for (const auto& [tid, spans] : process.spans) {
      const auto order = process.thread_order.find(tid);
      tids.emplace_back(order == process.thread_order.end() ? 0 : order->second, tid.size(), tid);
    }
    std::sort(tids.begin(), tids.end());
    for (const auto& [order, length, tid] : tids) {
      const auto name = process.thread_names.find(tid);
      const auto lane = static_cast<std::uint32_t>(rank.lanes.size());
      rank.lanes.push_back(name == process.thread_names.end() ? "thread " + tid : name->second);
      for (TraceSpan& span : process.spans[tid]) {
        span.lane = lane;
        rank.spans.push_back(span);
      }
    }
    std::stable_sort(rank.spans.begin(), rank.spans.end(), [](const auto& a, const auto& b) {
      return std::tie(a.start_ns, a.end_ns) < std::tie(b.start_ns, b.end_ns);
    });
  }

  void finish_times() {
    std::int64_t first = 0;
    if (!own_) {
      first = begin_ns(trace_.ranks.front());
      for (const TraceRank& rank : trace_.ranks) first = std::min(first, begin_ns(rank));
    }
    // A base out of range is ignored: all files of a job have the same one.
    const std::int64_t base = raw_.base_ns.value_or(0);
    trace_.clock_ns = (base < 0 || base > kMostTogether ? 0 : base) + first;
    trace_.world_size =
        static_cast<int>(std::clamp<std::int64_t>(raw_.world_size.value_or(0), 0, kMostRanks));
    for (TraceRank& rank : trace_.ranks) {
      shift(rank, -first);
      for (const TraceSpan& span : rank.spans) {
        if (span.kind == SpanKind::Stuck) continue;
        trace_.makespan_ns = std::max(trace_.makespan_ns, span.end_ns);
      }
    }
    // So that the times of all ranks together fit 64 bits.
    if (trace_.makespan_ns > kMostTogether / static_cast<std::int64_t>(trace_.ranks.size())) {
      throw InputError(file_, "/traceEvents",
                       "its actions take " + format_duration(Nanoseconds(trace_.makespan_ns)) +
                           "; expected a trace of one step");
    }
  }

  RawTrace raw_;
  const std::string file_;
  TraceTimeline trace_;
  bool own_ = false;
  std::int64_t time_scale_ = 1;  // times in the file are so many times the true ones
  bool on_gpu_ = false;
  std::map<std::string, Process> processes_;
};

}  // namespace

bool is_own(const TraceTimeline& trace) {
  const auto schema = trace.metadata.find("schema");
  return schema != trace.metadata.end() && schema->second.rfind(kOwnSchema, 0) == 0;
}

std::optional<Cell> cell_of_slice_name(std::string_view name) {
  constexpr std::string_view kTorch = "PP:";
  if (name.substr(0, kTorch.size()) == kTorch) name.remove_prefix(kTorch.size());
  if (name.starts_with("Optimizer.step#")) name = "OPT";
  if (auto cell = parse_cell(name)) return cell;
  const auto plus = name.find(" + ");
  const auto first = action_of_slice_name(name.substr(0, plus));
  if (!first) return std::nullopt;
  if (plus == std::string_view::npos) return Cell{*first, std::nullopt};
  const auto second = action_of_slice_name(name.substr(plus + 3));
  if (!second) return std::nullopt;
  return Cell{*first, *second};
}

TraceTimeline parse_trace(std::string_view bytes, const std::string& file) {
  UnpackedStream stream(bytes, file, kMostTraceBytes);
  return Collector(read_events(stream, file, is_of_use), file).run();
}

TraceTimeline read_trace(const std::string& path) {
  UnpackedStream stream(path, kMostTraceBytes);
  return Collector(read_events(stream, path, is_of_use), path).run();
}

}  // namespace pipewright::traces
