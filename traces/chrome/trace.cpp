#include "traces/chrome/trace.hpp"

#include <algorithm>
#include <array>

#include "core/base/int128.hpp"
#include "core/base/json.hpp"
#include "core/order/comm_policy.hpp"
#include "traces/analysis/bubbles.hpp"
#include "traces/analysis/tensor_ends.hpp"
#include "traces/chrome/events.hpp"
#include "traces/chrome/gpu_threads.hpp"
#include "traces/chrome/gzip.hpp"
#include "traces/chrome/memory_steps.hpp"
#include "traces/chrome/trace_threads.hpp"

namespace pipewright::traces {
namespace {

// Colours by name for chrome://tracing; only names that all its versions know, for one unknown name
// makes it refuse the file. Perfetto does not look at them.
std::string_view color_of(const Instruction& in) {
  if (in.has(Instruction::kPair)) return "rail_response";
  switch (in.kind) {
    case ActionKind::F:
      return "thread_state_runnable";
    case ActionKind::B:
      return "thread_state_running";
    case ActionKind::I:
      return "background_memory_dump";
    case ActionKind::W:
      return "thread_state_uninterruptible";
    case ActionKind::Opt:
      return "thread_state_iowait";
    case ActionKind::Unshard:
    case ActionKind::Reshard:
    case ActionKind::ReduceGrad:
    case ActionKind::ReduceNorm:
    case ActionKind::ReduceTied:
      return "rail_idle";
    default:
      return is_group_collective(in.kind) ? "rail_idle" : "generic_work";
  }
}
constexpr std::string_view kWaitColor = "thread_state_sleeping";
constexpr std::string_view kStuckColor = "terrible";

constexpr std::array<std::string_view, kBubbleCauses> kBubbleColors = {"thread_state_sleeping",
                                                                       "thread_state_sleeping",
                                                                       "thread_state_unknown",
                                                                       "bad",
                                                                       "generic_work",
                                                                       "startup",
                                                                       "terrible"};

constexpr std::array<std::string_view, 13> kOwnKeys = {
    "schema", "tool",          "version",     "title", "timeline", "ranks",     "stages",
    "policy", "micro_batches", "makespan_ns", "costs", "finished", "time_scale"};

/// Rounded half up, in integers, so that every platform prints the same digits.
std::int64_t whole_percent(std::int64_t part, std::int64_t whole) {
  const Int128 all = std::max<std::int64_t>(1, whole);
  return static_cast<std::int64_t>((Int128{part} * 200 + all) / (all * 2));
}

// chrome://tracing compares times rounded to microseconds when it nests slices: a shorter one that
// follows another at once is taken for a part of it, is drawn below it, and an arrow to it is lost.
constexpr std::int64_t kShortestSeen = 1000;

/// 1000 where even the longest computation is shorter than 10 us: the times are then units of a
/// thought experiment (`--cost F=1,B=2`) rather than those of a machine, and a picture of them
/// needs microseconds.
std::int64_t time_scale_of(const Program& program, const Timeline& timeline) {
  constexpr std::int64_t kMachine = 10'000, kScale = 1000;
  std::int64_t longest = 0;
  for (InstructionId id = 0; id < program.code.size(); ++id) {
    if (program.code[id].is_communication() || timeline.end[id] == kNotEnded) continue;
    longest = std::max(longest, timeline.end[id] - timeline.start[id]);
  }
  const bool small = longest > 0 && longest < kMachine;
  // Beyond an hour a thousandfold would leave few digits for a viewer's doubles.
  return small && timeline.makespan_ns < 3'600'000'000'000 ? kScale : 1;
}

class Writer {
 public:
  Writer(const Program& program, const Timeline& timeline, const CostTable& costs,
         const TraceInfo& info)
      : program_(program),
        timeline_(timeline),
        costs_(costs),
        info_(info),
        figures_(figures_of(program, timeline, costs)),
        threads_(trace_threads(program, timeline)),
        gpu_threads_(gpu_threads(program.ranks(), info.work)),
        bubbles_(explain_bubbles(program, timeline)),
        tensor_ends_(tensor_ends_of(program)),
        finished_(std::find(timeline.end.begin(), timeline.end.end(), kNotEnded) ==
                  timeline.end.end()),
        end_ns_(trace_end_ns(timeline, !finished_)),
        time_scale_(time_scale_of(program, timeline)),
        events_(2 * program.code.size() + info.work.size(), time_scale_) {}

  std::string run() {
    for (int r = 0; r < program_.ranks(); ++r) name_rank(r);
    if (!info_.phases.empty()) write_host();
    for (int r = 0; r < program_.ranks(); ++r) write_slices(r);
    for (int r = 0; r < program_.ranks(); ++r) write_gpu_work(r);
    write_bubbles();
    write_arrows();
    for (int r = 0; r < program_.ranks(); ++r) write_counters(r);
    write_metadata();
    return events_.finish();
  }

 private:
  const std::vector<TraceThread>& threads_of(int rank) const {
    return threads_.ranks[static_cast<std::size_t>(rank)];
  }
  TracePlace bubble_place(int rank) const {
    return {rank + 1, static_cast<std::int64_t>(threads_of(rank).size()) + 1};
  }

  void name_rank(int rank) {
    const RankFigures& figures = figures_.ranks[static_cast<std::size_t>(rank)];
    const std::int64_t pid = rank + 1;
    events_.name({pid, 1}, "process_name", "name", "rank " + std::to_string(rank));
    events_.index({pid, 1}, "process_sort_index", rank);
    std::string labels = "busy " +
                         std::to_string(whole_percent(figures.busy_ns, timeline_.makespan_ns)) +
                         "%,peak " + std::to_string(figures.peak_activations);
    if (time_scale_ != 1) labels += ",1 ns shown as 1 us";
    events_.name({pid, 1}, "process_labels", "labels", labels);
    const auto& on_gpu = gpu_threads_of(rank);
    const auto shift = static_cast<std::int64_t>(on_gpu.size());
    for (std::size_t t = 0; t < threads_of(rank).size(); ++t) {
      const TracePlace place{pid, static_cast<std::int64_t>(t) + 1};
      name_thread(place, threads_of(rank)[t].name, place.tid + (t > 0 ? shift : 0));
    }
    const TracePlace bubbles = bubble_place(rank);
    name_thread(bubbles, "bubble", bubbles.tid + shift);
    for (std::size_t t = 0; t < on_gpu.size(); ++t)  // right below the actions
      name_thread(gpu_place(rank, t), on_gpu[t].name, static_cast<std::int64_t>(t) + 2);
  }

  const std::vector<GpuThread>& gpu_threads_of(int rank) const {
    return gpu_threads_[static_cast<std::size_t>(rank)];
  }
  TracePlace gpu_place(int rank, std::size_t thread) const {
    return {rank + 1, bubble_place(rank).tid + 1 + static_cast<std::int64_t>(thread)};
  }

  /// Told from actions by having none: what has launched it stands in another argument.
  void write_gpu_work(int rank) {
    for (std::size_t t = 0; t < gpu_threads_of(rank).size(); ++t) {
      for (const GpuWork* piece : gpu_threads_of(rank)[t].work) {
        const bool is_kernel = piece->kind == GpuWork::Kind::Kernel;
        const bool is_copy = piece->kind == GpuWork::Kind::Copy;
        events_.begin_slice(gpu_place(rank, t),
                            is_kernel ? "kernel"
                            : is_copy ? "gpu_memcpy"
                                      : "gpu_memset",
                            is_kernel ? std::string_view(piece->name)
                            : is_copy ? "copy"
                                      : "clear",
                            {}, piece->start_ns, piece->end_ns);
        if (piece->instruction != kNoInstruction)
          events_.arg("launched_by", program_.text(piece->instruction));
        if (piece->bytes > 0) events_.arg("bytes", piece->bytes);
        events_.close_slice();
      }
    }
  }

  void write_host() {
    const std::int64_t pid = program_.ranks() + 1;
    events_.name({pid, 1}, "process_name", "name", "host");
    events_.index({pid, 1}, "process_sort_index", program_.ranks());
    name_thread({pid, 1}, "step");
    name_thread({pid, 2}, "phases of the command, not to scale");
    write_host_slices({pid, 1}, parts_of_step(program_, timeline_));
    write_host_slices({pid, 2}, scaled_phases(info_.phases, end_ns_));
  }

  void write_host_slices(TracePlace place, const std::vector<HostSlice>& slices) {
    for (const HostSlice& slice : slices) {
      events_.begin_slice(place, "phase", slice.name, {}, slice.start_ns, slice.end_ns);
      events_.arg("duration_ns", slice.true_ns);
      events_.close_slice();
    }
  }

  void name_thread(TracePlace place, std::string_view name) { name_thread(place, name, place.tid); }
  void name_thread(TracePlace place, std::string_view name, std::int64_t index) {
    events_.name(place, "thread_name", "name", name);
    events_.index(place, "thread_sort_index", index);
  }

  void write_slices(int rank) {
    for (std::size_t t = 0; t < threads_of(rank).size(); ++t) {
      const TracePlace place{rank + 1, static_cast<std::int64_t>(t) + 1};
      std::int64_t previous_end = 0;
      for (const Slice& slice : threads_of(rank)[t].slices) {
        write_slice(place, slice, previous_end);
        previous_end = slice.end_ns;
      }
    }
  }

  void write_slice(TracePlace place, const Slice& slice, std::int64_t previous_end) {
    const InstructionId id = slice.instruction;
    const Instruction& in = program_.code[id];
    const Cell cell = program_.cell(id);
    const Action* of = program_.action_of_part(id);
    Instruction shown = in;  // a computation that is a part, in the colour of its action
    if (in.kind == ActionKind::Part) shown.kind = of->kind;
    name_.clear();
    if (slice.stuck) name_ = "stuck ";
    if (slice.moving_ns > slice.start_ns) {
      name_ = "wait ";
      append_name(id);
      events_.begin_slice(place, "wait", name_, kWaitColor, slice.start_ns, slice.moving_ns);
      events_.close_slice();
      name_.clear();
    }
    append_name(id);
    const bool transfer = is_transfer(in.kind);
    const bool together = in.in_collective() || is_call(in.kind);
    const std::string_view category = slice.stuck ? "stuck"
                                      : transfer  ? "transfer"
                                      : together  ? "collective"
                                                  : "compute";
    events_.begin_slice(place, category, name_, slice.stuck ? kStuckColor : color_of(shown),
                        slice.moving_ns, slice.end_ns);
    events_.arg("action", program_.text(id));
    if (of != nullptr) events_.arg("part_of", to_string(*of));
    if (has_stage(in.kind)) events_.arg("stage", in.stage);
    if (has_micro_batch(in.kind)) events_.arg("micro_batch", in.micro_batch);
    if (cell.action.version >= 0) events_.arg("version", cell.action.version);
    if (transfer) write_transfer_args(id);
    const std::int64_t waited = transfer || together ? slice.moving_ns - timeline_.start[id]
                                                     : slice.start_ns - previous_end;
    if (waited > 0 && !slice.stuck) events_.arg("waited_ns", waited);
    events_.close_slice();
  }

  void append_name(InstructionId id) {
    if (is_call(program_.code[id].kind) || program_.action_of_part(id) != nullptr) {
      name_ += program_.text(id);
    } else {
      append_slice_name(program_.cell(id), name_);
    }
  }

  void write_transfer_args(InstructionId id) {
    const Instruction& in = program_.code[id];
    if (in.route == kNoRoute) return;
    const Route& route = program_.routes[in.route];
    events_.arg("peer", (is_send(in.kind) ? route.destination : route.source).value);
    const Bytes bytes = costs_.message_bytes(route);
    if (bytes.value > 0) events_.arg("bytes", bytes.value);
  }

  void write_bubbles() {
    for (const Bubble& bubble : bubbles_.bubbles) {
      events_.begin_slice(bubble_place(bubble.rank.value), "bubble", to_string(bubble.cause),
                          kBubbleColors[static_cast<std::size_t>(bubble.cause)], bubble.start_ns,
                          bubble.end_ns);
      if (bubble.waiting != kNoInstruction) events_.arg("before", program_.text(bubble.waiting));
      if (bubble.waits_for != kNoInstruction) {
        events_.arg("waits_for", program_.text(bubble.waits_for));
        events_.arg("of_rank", program_.rank_of(bubble.waits_for).value);
      }
      events_.close_slice();
    }
  }

  /// An arrow for each transfer, from the computation that makes what it carries to the one that
  /// uses it: these have a slice of their own under every policy, while a send may take no time.
  /// Of one that has parts, its last or its first. Where one of them is missing (a fragment) or too
  /// short, the transfer end itself stands in; without either there is no arrow.
  void write_arrows() {
    std::int64_t next = 1;
    for (InstructionId id = 0; id < program_.code.size(); ++id) {
      const Instruction& in = program_.code[id];
      if (!is_send(in.kind) || in.link == kNoInstruction) continue;
      const InstructionId tail = anchor(last_seen(tensor_ends_.producer[id], in), id);
      const InstructionId head = anchor(first_seen(tensor_ends_.consumer[id], in), in.link);
      if (tail == kNoInstruction || head == kNoInstruction) continue;
      name_.clear();
      append_name(id);
      events_.arrow_tail(place_of(tail), next, name_, timeline_.end[tail]);
      events_.arrow_head(place_of(head), next, name_, visible_start(head));
      ++next;
    }
  }

  InstructionId anchor(InstructionId computation, InstructionId transfer_end) const {
    for (const InstructionId id : {computation, transfer_end}) {
      if (is_seen(id)) return id;
    }
    return kNoInstruction;
  }

  bool is_seen(InstructionId id) const {
    return id != kNoInstruction && timeline_.end[id] != kNotEnded &&
           (timeline_.end[id] - visible_start(id)) * time_scale_ >= kShortestSeen;
  }

  /// The computation, or what is seen last of its parts, which do its work and stand before it; of
  /// a pair those of the action that has to do with the send.
  InstructionId last_seen(InstructionId computation, const Instruction& send) const {
    if (computation == kNoInstruction || is_seen(computation)) return computation;
    for (InstructionId id = computation; id > 0 && program_.action_of_part(id - 1) != nullptr;) {
      --id;
      if (is_part_of_transfer(id, send) && is_seen(id)) return id;
    }
    return computation;
  }

  InstructionId first_seen(InstructionId computation, const Instruction& send) const {
    if (computation == kNoInstruction) return computation;
    InstructionId first = computation;
    for (InstructionId id = computation; id > 0 && program_.action_of_part(id - 1) != nullptr;) {
      --id;
      if (is_part_of_transfer(id, send) && is_seen(id)) first = id;
    }
    return first;
  }

  bool is_part_of_transfer(InstructionId id, const Instruction& send) const {
    const Action& a = *program_.action_of_part(id);
    return program_.code[id].kind == ActionKind::Part &&
           a.micro_batch.value == static_cast<std::int32_t>(send.micro_batch) &&
           (a.kind == ActionKind::F) == (send.kind == ActionKind::SendF);
  }

  std::int64_t visible_start(InstructionId id) const {
    if (!program_.code[id].is_communication()) return timeline_.start[id];
    return std::clamp(timeline_.moving[id], timeline_.start[id], timeline_.end[id]);
  }

  TracePlace place_of(InstructionId id) const {
    return {program_.rank_of(id).value + 1, static_cast<std::int64_t>(threads_.thread_of[id]) + 1};
  }

  void write_counters(int rank) {
    const RankId id(rank);
    const std::int64_t constant = constant_bytes(program_, costs_, id);
    const auto write = [&](std::int64_t at, const MemoryStep& step) {
      events_.counter(rank + 1, "activations", at, "live", step.activations);
      if (costs_.memory.empty()) return;
      events_.counter(rank + 1, "memory", at, "constant bytes", constant, "activation bytes",
                      step.bytes);
      if (!program_.asynchronous) return;
      events_.counter(rank + 1, "older weights", at, "bytes", step.version_bytes);
    };
    const std::vector<MemoryStep> steps = memory_steps(program_, timeline_, costs_, id);
    for (const MemoryStep& step : steps) write(step.at_ns, step);
    // Once more at the end, because viewers draw a value up to the next one only.
    if (steps.back().at_ns < end_ns_) write(end_ns_, steps.back());
  }

  void write_metadata() {
    events_.end();
    events_.entry("schema", "pipewright.trace/1");
    events_.entry("tool", "pipewright");
    events_.entry("version", PIPEWRIGHT_VERSION);
    events_.entry("title", info_.title);
    events_.entry("timeline", info_.kind == TraceInfo::Kind::Simulated ? "simulated" : "measured");
    events_.entry("finished", finished_ ? "yes" : "no");
    events_.entry("ranks", program_.ranks());
    events_.entry("stages", program_.stages);
    events_.entry("micro_batches", program_.micro_batches);
    events_.entry("makespan_ns", timeline_.makespan_ns);
    events_.entry("time_scale", time_scale_);
    events_.entry("policy", name_of(program_.policy));
    events_.entry("costs", costs_.source);
    for (const auto& [key, value] : info_.metadata) {
      const bool own = std::find(kOwnKeys.begin(), kOwnKeys.end(), key) != kOwnKeys.end();
      if (!own) events_.entry(key, value);
    }
  }

  const Program& program_;
  const Timeline& timeline_;
  const CostTable& costs_;
  const TraceInfo& info_;
  const Figures figures_;
  const TraceThreads threads_;
  const std::vector<std::vector<GpuThread>> gpu_threads_;  // by rank
  const BubbleReport bubbles_;
  const TensorEnds tensor_ends_;
  const bool finished_;
  const std::int64_t end_ns_;
  const std::int64_t time_scale_;
  ChromeEvents events_;
  std::string name_;  // kept between events for its memory
};

}  // namespace

std::string chrome_trace(const Program& program, const Timeline& timeline, const CostTable& costs,
                         const TraceInfo& info) {
  return Writer(program, timeline, costs, info).run();
}

void write_chrome_trace(const std::filesystem::path& path, const Program& program,
                        const Timeline& timeline, const CostTable& costs, const TraceInfo& info) {
  const std::string text = chrome_trace(program, timeline, costs, info);
  write_file(path, path.extension() == ".gz" ? gzip(text) : text);
}

}  // namespace pipewright::traces
