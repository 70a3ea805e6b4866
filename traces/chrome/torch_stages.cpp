#include "traces/chrome/torch_stages.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "traces/chrome/read_trace.hpp"
#include "traces/chrome/slice_names.hpp"

namespace pipewright::traces {
namespace {

constexpr std::string_view kAutograd = "autograd";
constexpr std::string_view kTorchSend = "c10d::send", kTorchReceive = "c10d::recv_";
constexpr std::string_view kAnnotation = "user_annotation";

bool sends(const RawEvent& event) { return event.name == kTorchSend; }
bool receives(const RawEvent& event) { return event.name == kTorchReceive; }
bool is_message(const RawEvent& event) {
  return event.category == "cpu_op" && (sends(event) || receives(event));
}
bool is_of_optimizer(const RawEvent& event) { return event.name.starts_with("Optimizer."); }

std::int64_t end_of_event(const RawEvent& event) { return *event.ts_ns + *event.dur_ns; }
bool has_times(const RawEvent& event) {
  return event.phase == "X" && event.ts_ns && event.dur_ns && *event.dur_ns >= 0;
}

/// "F3" of ScheduleGPipe's "Forward 3".
std::string action_of_slice(const RawEvent& event) {
  if (!event.category.ends_with(kAnnotation)) return "";
  for (const auto& [word, letter] : {std::pair<std::string_view, const char*>{"Forward ", "F"},
                                     std::pair<std::string_view, const char*>{"Backward ", "B"}}) {
    if (!event.name.starts_with(word)) continue;
    const std::string_view number = std::string_view(event.name).substr(word.size());
    if (numbered("m" + std::string(number), 'm')) return letter + std::string(number);
  }
  return "";
}

void name_it(RawEvent& event, std::string name) {
  event.name = std::move(name);
  event.category = kAnnotation;  // no operator any more
}

void end_at(RawEvent& event, std::int64_t end_ns) { event.dur_ns = end_ns - *event.ts_ns; }

bool earlier(const RawEvent* a, const RawEvent* b) {
  return std::pair(*a->ts_ns, -*a->dur_ns) < std::pair(*b->ts_ns, -*b->dur_ns);
}

/// Events next to each other that are alike: a message has as many as it has tensors.
struct Run {
  enum class Kind : std::uint8_t { Operators, Autograd, Send, Receive, Border };
  Kind kind = Kind::Border;
  RawEvent* first = nullptr;
  std::int64_t end_ns = 0;
  std::string action;  // "F3", of the computation that it turns out to be
};
using Kind = Run::Kind;

/// The messages that stand together become one, of one action.
void name_messages(const Run& run, const std::string& stage, const std::string& action) {
  end_at(*run.first, run.end_ns);
  name_it(*run.first, stage + (run.kind == Kind::Send ? "SEND_" : "RECV_") + action);
}

class OneStage {
 public:
  OneStage(RawTrace& trace, int rank) : trace_(trace), stage_(std::to_string(rank)) {}

  bool run() {
    for (RawEvent& event : trace_.events) {
      if (!has_times(event)) continue;
      const auto cell = cell_of_slice_name(event.name);
      if (cell && has_stage(cell->action.kind)) return false;
      if (!action_of_slice(event).empty()) slices_.push_back(&event);
      if (is_message(event)) messages_.push_back(&event);
    }
    std::sort(messages_.begin(), messages_.end(), earlier);
    if (!slices_.empty()) {
      name_slices();
    } else if (!messages_.empty()) {
      take_runs();
      name_runs();
    }
    return named_;
  }

 private:
  /// ScheduleGPipe: a slice has the messages of its action, the receives first.
  void name_slices() {
    for (RawEvent* slice : slices_) {
      const std::string action = action_of_slice(*slice);
      const bool of_host = slice->category == kAnnotation;
      name_it(*slice, stage_ + action);
      if (!of_host) slice->category = "gpu_user_annotation";
      named_ = true;
      if (!of_host) continue;
      Run sent{.kind = Kind::Send, .first = nullptr, .end_ns = 0, .action = {}};
      Run received{.kind = Kind::Receive, .first = nullptr, .end_ns = 0, .action = {}};
      for (auto next = std::lower_bound(messages_.begin(), messages_.end(), slice, earlier);
           next != messages_.end() && *(*next)->ts_ns < end_of_event(*slice); ++next) {
        Run& run = sends(**next) ? sent : received;
        if (run.first == nullptr) run.first = *next;
        run.end_ns = end_of_event(**next);
      }
      if (received.first != nullptr) name_messages(received, stage_, action);
      if (sent.first == nullptr) continue;
      end_at(*slice, *sent.first->ts_ns);
      name_messages(sent, stage_, action);
    }
  }

  /// Of the thread that sends and receives; autograd may have one of its own.
  void take_runs() {
    const std::string &pid = messages_.front()->pid, &tid = messages_.front()->tid;
    std::vector<RawEvent*> events;
    for (RawEvent& event : trace_.events) {
      if (!has_times(event) || event.pid != pid) continue;
      if (event.tid == tid ? is_message(event) || is_border(event) || is_operator(event, false)
                           : event.name == kAutograd)
        events.push_back(&event);
    }
    std::sort(events.begin(), events.end(), earlier);
    std::int64_t end = INT64_MIN;  // of what has other events in it
    for (RawEvent* event : events) {
      if (*event->ts_ns < end) continue;
      if (!marked_step_number(*event)) end = end_of_event(*event);
      const Kind kind = is_border(*event)          ? Kind::Border
                        : sends(*event)            ? Kind::Send
                        : receives(*event)         ? Kind::Receive
                        : event->name == kAutograd ? Kind::Autograd
                                                   : Kind::Operators;
      if (runs_.empty() || runs_.back().kind != kind)
        runs_.push_back({.kind = kind, .first = event, .end_ns = {}, .action = {}});
      runs_.back().end_ns = end_of_event(*event);
    }
    runs_.push_back({});
  }

  static bool is_border(const RawEvent& event) {
    return marked_step_number(event).has_value() || is_of_optimizer(event);
  }

  void name_runs() {
    std::size_t begin = 0;
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      if (runs_[i].kind != Kind::Border) continue;
      if (name_computations(begin, i)) name_step(begin, i);
      begin = i + 1;
    }
  }

  Kind kind_at(std::size_t i, std::size_t begin, std::size_t end) const {
    return i < begin || i >= end ? Kind::Border : runs_[i].kind;
  }

  /// False if the runs [begin, end) are no step.
  bool name_computations(std::size_t begin, std::size_t end) {
    const auto is = [&](std::size_t i, Kind kind) { return kind_at(i, begin, end) == kind; };
    bool has_received = false, first_stage = false, last_stage = true;
    for (std::size_t i = begin; i < end; ++i) {
      has_received |= is(i, Kind::Receive);
      const bool made =
          is(i, Kind::Operators) && is(i + 1, Kind::Send) && !is(i - 1, Kind::Autograd);
      if (!made) continue;
      if (last_stage) first_stage = !has_received;
      last_stage = false;
    }
    int forwards = 0, backwards = 0;
    for (std::size_t i = begin; i < end; ++i) {
      if (is(i, Kind::Autograd)) runs_[i].action = "B" + std::to_string(backwards++);
      if (!is(i, Kind::Operators)) continue;
      const bool forward = last_stage
                               ? is(i + 1, Kind::Autograd)
                               : is(i + 1, Kind::Send) && (first_stage || is(i - 1, Kind::Receive));
      if (forward) runs_[i].action = "F" + std::to_string(forwards++);
      if (backwards > forwards) return false;
    }
    return forwards > 0 && forwards == backwards;
  }

  /// A send is of what was computed last, a receive of what is computed next.
  void name_step(std::size_t begin, std::size_t end) {
    std::string last;
    for (std::size_t i = begin; i < end; ++i) {
      const Run& run = runs_[i];
      if (!run.action.empty()) {
        last = run.action;
        add_slice(run, i > begin ? &runs_[i - 1] : nullptr);
      }
      if (run.kind == Kind::Send && !last.empty()) name_messages(run, stage_, last);
      if (run.kind != Kind::Receive) continue;
      const auto next = std::find_if(runs_.begin() + static_cast<std::ptrdiff_t>(i),
                                     runs_.begin() + static_cast<std::ptrdiff_t>(end),
                                     [](const Run& each) { return !each.action.empty(); });
      if (next != runs_.begin() + static_cast<std::ptrdiff_t>(end))
        name_messages(run, stage_, next->action);
    }
  }

  /// It begins where it began to wait for its input, as the runtime's slices do.
  void add_slice(const Run& run, const Run* before) {
    RawEvent slice = *run.first;
    name_it(slice, stage_ + run.action);
    slice.pid = messages_.front()->pid;
    slice.tid = messages_.front()->tid;
    slice.correlation.reset();
    if (before != nullptr && before->kind == Kind::Receive) slice.ts_ns = before->end_ns;
    end_at(slice, run.end_ns);
    trace_.events.push_back(std::move(slice));
    named_ = true;
  }

  RawTrace& trace_;
  const std::string stage_;
  std::vector<RawEvent*> slices_, messages_;
  std::vector<Run> runs_;
  bool named_ = false;
};

bool has_kind(const TraceRank& rank, ActionKind kind) {
  return std::any_of(rank.spans.begin(), rank.spans.end(),
                     [&](const TraceSpan& span) { return span.cell.action.kind == kind; });
}

}  // namespace

bool is_of_torch_stages(RawEvent& event) {
  if (event.category == "cpu_op" && event.name.starts_with("autograd::engine")) {
    event.name = kAutograd;
    return true;
  }
  return is_message(event) || is_of_optimizer(event) || !action_of_slice(event).empty();
}

bool name_torch_stages(RawTrace& trace, int rank) { return OneStage(trace, rank).run(); }

void number_torch_stages(TraceTimeline& trace) {
  if (!trace.stages_are_ranks || trace.ranks.size() < 2) return;
  const bool is_whole = !has_kind(trace.ranks.front(), ActionKind::RecvF) &&
                        !has_kind(trace.ranks.back(), ActionKind::SendF);
  if (!is_whole) return;
  int stage = 0;
  for (TraceRank& rank : trace.ranks) {
    const bool inside = stage > 0 && stage + 1 < static_cast<int>(trace.ranks.size());
    if (inside && (!has_kind(rank, ActionKind::RecvF) || !has_kind(rank, ActionKind::SendF))) {
      throw InputError(trace.source, "",
                       "and the files beside it are of several pipelines, for rank " +
                           std::to_string(rank.rank) +
                           " is the first or the last of one; give the files of one pipeline, not "
                           "of its replicas");
    }
    for (TraceSpan& span : rank.spans) {
      if (has_stage(span.cell.action.kind)) span.cell.action.stage = StageId(stage);
    }
    ++stage;
  }
}

}  // namespace pipewright::traces
