#include "traces/chrome/read_trace.hpp"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <unordered_map>

#include "core/base/error.hpp"
#include "core/base/units.hpp"
#include "traces/analysis/slice_waits.hpp"
#include "traces/chrome/device_spans.hpp"
#include "traces/chrome/slice_names.hpp"
#include "traces/chrome/split_steps.hpp"
#include "traces/chrome/torch_stages.hpp"
#include "traces/chrome/trace_events.hpp"
#include "traces/chrome/unpacked_stream.hpp"
#include "traces/events/chakra_events.hpp"
#include "traces/events/nsight.hpp"
#include "traces/events/paddle_jobs.hpp"
#include "traces/events/sqlite.hpp"

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

/// Collects the spans of each process, numbers the ranks and tells steps apart.
class Collector {
 public:
  Collector(RawTrace raw, std::string file) : raw_(std::move(raw)), file_(std::move(file)) {
    name_paddle_jobs(raw_);
    whole_.source = file_;
    const std::int64_t rank = raw_.rank.value_or(rank_in_file_name(file_).value_or(0));
    whole_.stages_are_ranks =
        name_torch_stages(raw_, static_cast<int>(std::clamp<std::int64_t>(rank, 0, kMostRanks)));
    whole_.metadata = std::move(raw_.metadata);
    own_ = is_own(whole_);
  }

  std::vector<TraceTimeline> run() {
    if (own_) check_metadata();
    for (const RawEvent& event : raw_.events) {
      if (event.phase == "M") note_name(event);
    }
    for (const RawEvent& event : raw_.events) {
      if (event.phase == "X") take(event);
    }
    if (!own_) choose_device();
    number_ranks();
    if (steps_.empty()) {
      throw InputError(file_, "/traceEvents",
                       "holds no action of a pipeline; expected complete (ph X) slices named like "
                       "\"F m3 s0\", \"0F3\" or \"PP:0F3\", or the operators and messages of "
                       "PyTorch's Schedule1F1B");
    }
    std::vector<TraceTimeline> steps;
    for (auto& [number, ranks] : steps_) steps.push_back(step_of(number, std::move(ranks)));
    return steps;
  }

 private:
  using SpansOfThreads = std::map<std::string, std::vector<TraceSpan>>;  // by tid
  struct Process {
    std::string name;
    std::int64_t sort_index = 0;
    std::map<std::string, std::string> thread_names;
    std::map<std::string, std::int64_t> thread_order;
    SpansOfThreads spans, annotated;                  // of the host, or our own; of a GPU
    std::map<std::string, std::int64_t> parts_begun;  // by tid: of an action that is to come
    std::vector<MarkedStep> marks;
    std::vector<TimeRange> kernels;  // that compute, of the process that is a GPU
    std::vector<Kernel> launched;    // by a host; empty: its slices, or the GPU's, give the times
    SliceSurroundings around;
  };
  /// The kernels of a trace, once it is known when they were launched.
  struct DeviceWork {
    std::unordered_map<std::int64_t, std::pair<std::string, std::int64_t>> launches;  // pid, time
    std::vector<std::pair<std::int64_t, Kernel>> kernels;  // by correlation
  };

  void check_metadata() {
    const auto scale = whole_.metadata.find("time_scale");
    if (scale != whole_.metadata.end() && scale->second == "1000") time_scale_ = 1000;
    const std::string& schema = whole_.metadata.at("schema");
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
    Process& process = processes_[event.pid];
    if (is_backend_receive(event.name)) process.around.receives.push_back(range);
    if (is_operator(event, false)) process.around.operators.push_back(range);
    if (is_operator(event, true)) process.kernels.push_back(range);
    if (const auto step = marked_step_number(event)) process.marks.push_back({range, *step});
    if (!event.correlation) return;
    if (is_launch(event)) device_.launches[*event.correlation] = {event.pid, range.start_ns};
    if (event.category == "kernel")
      device_.kernels.push_back({*event.correlation, {range, 0, is_nccl_kernel(event)}});
  }

  void take(const RawEvent& event) {
    if (!own_) note_surroundings(event);
    std::optional<Cell> cell;
    if (own_) {
      if (event.action.empty()) return;  // a wait or a bubble
      cell = own_cell(event);
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
    Process& process = processes_[event.pid];
    if (own_ && !join_part(event, process.parts_begun, span)) return;
    const bool annotated = !own_ && event.category == "gpu_user_annotation";
    (annotated ? process.annotated : process.spans)[event.tid].push_back(span);
  }

  Cell own_cell(const RawEvent& event) const {
    const bool is_part = !event.part_of.empty();
    const std::string& text = is_part ? event.part_of : event.action;
    const auto cell = cell_of_action(text);
    if (cell) return *cell;
    fail(event, is_part ? "/args/part_of" : "/args/action",
         "an action such as \"0F3\", found \"" + printable(text) + '"');
  }

  /// An action with parts takes from the beginning of the first one, which stands before it on its
  /// thread, to its own end: what the devices of a rank tell one another is in it. False of a part,
  /// which is then in its action.
  static bool join_part(const RawEvent& event, std::map<std::string, std::int64_t>& begun,
                        TraceSpan& span) {
    if (span.kind == SpanKind::Stuck) return true;
    if (!event.part_of.empty()) {
      if (event.category == "compute") begun.try_emplace(event.tid, span.start_ns);
      return false;
    }
    const auto first = begun.find(event.tid);
    if (first == begun.end()) return true;
    span.start_ns = span.moving_ns = std::min(first->second, span.start_ns);
    begun.erase(first);
    return true;
  }

  [[noreturn]] void fail(const RawEvent& event, const std::string& where,
                         const std::string& expected) const {
    throw InputError(file_, "/traceEvents/" + std::to_string(event.position) + where,
                     "expected " + expected);
  }

  /// Where kernels can be traced to the slices of the host that launched them, and to no other's,
  /// these give the times. Else the slices that the profiler drew on the GPU, if there are any.
  void choose_device() {
    const auto hosts = std::count_if(processes_.begin(), processes_.end(), [&](const auto& entry) {
      return has_action(entry.second.spans);
    });
    if (hosts == 1 || raw_.correlations_are_unique) trace_kernels();
    const bool launched = std::any_of(processes_.begin(), processes_.end(), [](const auto& entry) {
      return !entry.second.launched.empty();
    });
    const bool annotated =
        std::any_of(processes_.begin(), processes_.end(),
                    [&](const auto& entry) { return has_action(entry.second.annotated); });
    if (launched || !annotated) return;
    for (auto& [pid, process] : processes_) {
      process.spans = std::move(process.annotated);
      process.around.operators = std::move(process.kernels);
      process.around.on_device = true;
    }
  }

  void trace_kernels() {
    for (auto& [correlation, kernel] : device_.kernels) {
      const auto launch = device_.launches.find(correlation);
      if (launch == device_.launches.end()) continue;
      Process& process = processes_[launch->second.first];
      if (!has_action(process.spans)) continue;
      kernel.launched_ns = launch->second.second;
      process.launched.push_back(kernel);
    }
    for (auto& [pid, process] : processes_) {
      if (!launches_kernels(spans_of(process, nullptr), process.launched)) process.launched.clear();
    }
  }

  void number_ranks() {
    std::vector<std::pair<std::string, Process*>> used;
    for (auto& [pid, process] : processes_) {
      if (has_action(process.spans)) used.emplace_back(pid, &process);
    }
    std::stable_sort(used.begin(), used.end(), [](const auto& a, const auto& b) {
      // Numbers as numbers: a shorter text of digits is the smaller one.
      return std::make_tuple(a.second->sort_index, a.first.size(), a.first) <
             std::make_tuple(b.second->sort_index, b.first.size(), b.first);
    });
    for (std::size_t i = 0; i < used.size(); ++i) {
      Process& process = *used[i].second;
      int number = static_cast<int>(i);
      if (used.size() == 1 && !own_) number = rank_in_file_name(file_).value_or(number);
      if (const auto named = rank_in_name(process.name)) number = *named;
      if (raw_.rank) number = static_cast<int>(std::clamp<std::int64_t>(*raw_.rank, 0, kMostRanks));
      take_rank(number, process);
    }
  }

  /// An optimizer's step alone is no pipeline.
  bool has_action(const SpansOfThreads& threads) const {
    return std::any_of(threads.begin(), threads.end(), [&](const auto& of_thread) {
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

  void take_rank(int number, Process& process) {
    std::vector<std::string> lanes;
    std::vector<TraceSpan> spans = spans_of(process, &lanes);
    const auto add = [&](int step, const TraceSpan& span) {
      TraceRank& rank = steps_[step][number];
      rank.rank = number;
      if (rank.lanes.size() < lanes.size()) rank.lanes = lanes;
      rank.spans.push_back(span);
    };
    if (own_) {
      for (const TraceSpan& span : spans) add(0, span);
      return;
    }
    const StepsOfSlices steps = steps_of_slices(spans, std::move(process.marks));
    whole_.steps_are_marked = steps.are_marked;
    if (!process.launched.empty()) {
      process.around.operators.clear();
      for (const Kernel& kernel : process.launched) {
        if (!kernel.communicates) process.around.operators.push_back(kernel.ran);
      }
      process.around.on_device = true;
      whole_.stray_transfers +=
          move_to_device(spans, process.launched, process.around.receives, raw_.hosts_run_ahead);
    }
    for (std::size_t i = 0; i < spans.size(); ++i) {
      if (steps.step_of[i] != StepsOfSlices::kNoStep) add(steps.step_of[i], spans[i]);
    }
    const SliceSurroundings around = in_order(std::move(process.around));
    for (auto& [step, ranks] : steps_) {
      const auto found = ranks.find(number);
      if (found != ranks.end()) separate_waits(found->second, around);
    }
  }

  /// By start; `lanes` gets a name for each thread.
  static std::vector<TraceSpan> spans_of(const Process& process, std::vector<std::string>* lanes) {
    std::vector<std::tuple<std::int64_t, std::size_t, std::string>> tids;
    for (const auto& [tid, spans] : process.spans) {
      const auto order = process.thread_order.find(tid);
      tids.emplace_back(order == process.thread_order.end() ? 0 : order->second, tid.size(), tid);
    }
    std::sort(tids.begin(), tids.end());
    std::vector<TraceSpan> result;
    std::uint32_t lane = 0;
    for (const auto& [order, length, tid] : tids) {
      const auto name = process.thread_names.find(tid);
      if (lanes != nullptr)
        lanes->push_back(name == process.thread_names.end() ? "thread " + tid : name->second);
      for (TraceSpan span : process.spans.at(tid)) {
        span.lane = lane;
        result.push_back(span);
      }
      ++lane;
    }
    std::stable_sort(result.begin(), result.end(), [](const auto& a, const auto& b) {
      return std::tie(a.start_ns, a.end_ns) < std::tie(b.start_ns, b.end_ns);
    });
    return result;
  }

  TraceTimeline step_of(int number, std::map<int, TraceRank> ranks) {
    TraceTimeline step = whole_;
    step.step = number;
    for (auto& [rank, of_rank] : ranks) step.ranks.push_back(std::move(of_rank));
    for (TraceRank& rank : step.ranks) settle_overlaps(rank, file_);
    std::int64_t first = 0;
    if (!own_) {
      first = begin_ns(step.ranks.front());
      for (const TraceRank& rank : step.ranks) first = std::min(first, begin_ns(rank));
    }
    // A base out of range is ignored: all files of a job have the same one.
    const std::int64_t base = raw_.base_ns.value_or(0);
    step.base_ns = base < 0 || base > kMostTogether ? 0 : base;
    step.clock_ns = step.base_ns + first;
    step.world_size =
        static_cast<int>(std::clamp<std::int64_t>(raw_.world_size.value_or(0), 0, kMostRanks));
    for (TraceRank& rank : step.ranks) {
      shift(rank, -first);
      for (const TraceSpan& span : rank.spans) {
        if (span.kind == SpanKind::Stuck) continue;
        step.makespan_ns = std::max(step.makespan_ns, span.end_ns);
      }
    }
    // So that the times of all ranks together fit 64 bits.
    if (step.makespan_ns > kMostTogether / static_cast<std::int64_t>(step.ranks.size())) {
      throw InputError(file_, "/traceEvents",
                       "its actions take " + format_duration(Nanoseconds(step.makespan_ns)) +
                           "; expected a trace of one step");
    }
    return step;
  }

  RawTrace raw_;
  const std::string file_;
  TraceTimeline whole_;  // what all steps have in common
  bool own_ = false;
  std::int64_t time_scale_ = 1;  // times in the file are so many times the true ones
  std::map<std::string, Process> processes_;
  DeviceWork device_;
  std::map<int, std::map<int, TraceRank>> steps_;  // by number, then rank
};

/// The only one of several steps.
TraceTimeline only_one(std::vector<TraceTimeline> steps) {
  if (steps.size() == 1) return std::move(steps.front());
  throw InputError(steps.front().source, "",
                   "holds " + std::to_string(steps.size()) +
                       " steps; expected a trace of one (pipewright analyze chooses one of several "
                       "with --step)");
}

ChakraTrace read_chakra(const std::string& path) {
  UnpackedStream stream(path, kMostTraceBytes);
  const std::string bytes{std::istreambuf_iterator<char>(&stream), {}};
  const auto in_name = rank_of_chakra_file(path);
  return parse_chakra(bytes, path, in_name ? *in_name : rank_in_file_name(path).value_or(0));
}

}  // namespace

bool is_own(const TraceTimeline& trace) {
  const auto schema = trace.metadata.find("schema");
  return schema != trace.metadata.end() && schema->second.rfind(kOwnSchema, 0) == 0;
}

std::vector<TraceTimeline> parse_trace_steps(std::string_view bytes, const std::string& file) {
  if (is_sqlite(bytes)) return Collector(parse_nsight(bytes, file, is_of_use), file).run();
  UnpackedStream stream(bytes, file, kMostTraceBytes);
  return Collector(read_events(stream, file, is_of_use), file).run();
}

std::vector<std::vector<TraceTimeline>> chakra_steps(const std::vector<ChakraTrace>& ranks) {
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const auto other = std::find_if(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(r),
                                    [&](const ChakraTrace& o) { return o.rank == ranks[r].rank; });
    if (other == ranks.begin() + static_cast<std::ptrdiff_t>(r)) continue;
    throw InputError(ranks[r].file, "",
                     "is of rank " + std::to_string(ranks[r].rank) + ", as " + other->file +
                         " is; give one file of each rank, named as ASTRA-sim does: job.3.et");
  }
  std::vector<RawTrace> events = chakra_events(ranks, cell_of_slice_name);
  std::vector<std::vector<TraceTimeline>> steps;
  for (std::size_t r = 0; r < ranks.size(); ++r)
    steps.push_back(Collector(std::move(events[r]), ranks[r].file).run());
  return steps;
}

std::vector<std::vector<TraceTimeline>> read_chakra_steps(const std::vector<std::string>& paths) {
  std::vector<ChakraTrace> ranks;
  for (const std::string& path : paths) ranks.push_back(read_chakra(path));
  return chakra_steps(ranks);
}

std::vector<TraceTimeline> read_trace_steps(const std::string& path) {
  if (is_chakra_file(path)) return read_chakra_steps({path}).front();
  if (is_sqlite_file(path)) return Collector(read_nsight(path, is_of_use), path).run();
  UnpackedStream stream(path, kMostTraceBytes);
  return Collector(read_events(stream, path, is_of_use), path).run();
}

TraceTimeline parse_trace(std::string_view bytes, const std::string& file) {
  return only_one(parse_trace_steps(bytes, file));
}

TraceTimeline read_trace(const std::string& path) { return only_one(read_trace_steps(path)); }

}  // namespace pipewright::traces
