#include "traces/events/chakra_events.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>

#include "core/base/error.hpp"

namespace pipewright::traces {
namespace {

struct Hull {
  std::int64_t start_ns = 0, end_ns = -1;  // empty

  bool empty() const { return end_ns < start_ns; }
  void add(std::int64_t start, std::int64_t end) {
    start_ns = empty() ? start : std::min(start_ns, start);
    end_ns = std::max(end_ns, end);
  }
};

/// What of an action's nodes gives its time, the best first.
enum Part : std::uint8_t { kOnDevice, kOnHost, kAny, kParts };

class EventWriter {
 public:
  EventWriter(const ChakraGraph& graph, const ChakraActions& actions)
      : graph_(graph), actions_(actions), events_(graph.traces.size()) {}

  std::vector<RawTrace> run() {
    for (std::size_t t = 0; t < events_.size(); ++t) {
      events_[t].rank = graph_.traces[t]->rank;
      if (!graph_.is_timed) {
        events_[t].metadata["times"] =
            "the files tell no times: each action begins as soon as what it needs has ended, and "
            "messages take no time";
      }
    }
    add_actions();
    add_messages();
    for (std::size_t t = 0; t < events_.size(); ++t) {
      if (!events_[t].events.empty()) continue;
      throw InputError(graph_.traces[t]->file, "",
                       "holds no action of a pipeline, as other ranks' files do; give the files "
                       "of one pipeline");
    }
    return std::move(events_);
  }

 private:
  void add_actions() {
    struct Parts {
      std::size_t trace = 0;
      Hull of[kParts];
    };
    std::vector<Parts> parts(actions_.cells.size());
    for (ChakraPlace place = 0; place < graph_.nodes.size(); ++place) {
      const std::size_t action = actions_.of[place];
      if (action == ChakraActions::kNone || tells_no_time(place) || outlasts_its_send(place))
        continue;
      parts[action].trace = graph_.trace_of[place];
      parts[action].of[part_of(place)].add(graph_.start_ns[place], graph_.end_ns[place]);
    }
    bool has_durations = false;
    for (std::size_t a = 0; a < parts.size(); ++a) {
      const auto best = std::find_if(std::begin(parts[a].of), std::end(parts[a].of),
                                     [](const Hull& hull) { return !hull.empty(); });
      if (best == std::end(parts[a].of)) continue;
      has_durations |= best->end_ns > best->start_ns;
      const bool receives = is_recv(actions_.cells[a].action.kind);
      add(parts[a].trace, to_string(actions_.cells[a]),
          receives && !graph_.is_timed ? Hull{best->start_ns, best->start_ns} : *best);
    }
    if (!has_durations) {
      throw InputError(graph_.traces.front()->file, "",
                       "has no computation with a duration; expected duration_micros, without "
                       "which a COMP_NODE has only operations for a roofline (num_ops)");
    }
  }

  /// A node without times among those that have them, such as an operator that the profiler did not
  /// see.
  bool tells_no_time(ChakraPlace place) const {
    return graph_.is_timed && graph_.start_ns[place] == 0 && graph_.end_ns[place] == 0;
  }

  /// What a back end shows of a send beneath the call ("gloo:send") may end long after the message
  /// has come.
  bool outlasts_its_send(ChakraPlace place) const {
    const ChakraPlace caller = graph_.caller[place];
    return caller != kNoPlace && graph_.nodes[place]->kind == ChakraKind::Computation &&
           is_send(actions_.cells[actions_.of[place]].action.kind) &&
           graph_.end_ns[place] > graph_.end_ns[caller];
  }

  Part part_of(ChakraPlace place) const {
    const ChakraNode& node = *graph_.nodes[place];
    const ActionKind kind = actions_.cells[actions_.of[place]].action.kind;
    const bool computes = is_compute(kind) || kind == ActionKind::Opt;
    const bool message = node.kind == ChakraKind::Send || node.kind == ChakraKind::Receive;
    const bool counts = computes            ? node.kind == ChakraKind::Computation
                        : is_transfer(kind) ? message
                                            : node.kind == ChakraKind::Collective;
    if (!counts) return kAny;
    return node.on_host ? kOnHost : kOnDevice;
  }

  /// A message is named after the action that makes or needs it, unless its node or who called that
  /// is.
  void add_messages() {
    computed_until_.resize(events_.size());
    for (ChakraPlace place = 0; place < graph_.nodes.size(); ++place) {
      if (graph_.nodes[place]->kind == ChakraKind::Computation)
        computed_until_[graph_.trace_of[place]].push_back(graph_.end_ns[place]);
    }
    for (auto& ends : computed_until_) std::sort(ends.begin(), ends.end());
    std::set<ChakraPlace> taken;
    for (ChakraPlace place = 0; place < graph_.nodes.size(); ++place) {
      const ChakraKind kind = graph_.nodes[place]->kind;
      if (kind == ChakraKind::Computation && actions_.of[place] != ChakraActions::kNone) {
        for (const ChakraPlace receive : messages_into(graph_, place))
          if (taken.insert(receive).second) add_message(receive, place);
      }
      if (kind != ChakraKind::Send) continue;
      const ChakraPlace source = source_of_message(graph_, place);
      if (source != kNoPlace) add_message(place, source);
    }
  }

  void add_message(ChakraPlace message, ChakraPlace computation) {
    const std::size_t action = actions_.of[computation];
    if (action == ChakraActions::kNone || actions_.of[message] != ChakraActions::kNone) return;
    const Cell& cell = actions_.cells[action];
    if (cell.partner) return;  // of which of the two is not known
    const bool forward = cell.action.kind == ActionKind::F;
    if (!forward && cell.action.kind != ActionKind::B && cell.action.kind != ActionKind::I) return;
    const bool sends = graph_.nodes[message]->kind == ChakraKind::Send;
    Action end = cell.action;
    end.kind = sends ? (forward ? ActionKind::SendF : ActionKind::SendB)
                     : (forward ? ActionKind::RecvF : ActionKind::RecvB);
    const Hull hull{graph_.start_ns[message], graph_.end_ns[message]};
    const std::size_t trace = graph_.trace_of[message];
    if (sends || graph_.is_timed) return add(trace, to_string(end), hull);
    // Where messages take no time a receive only waits, until it is needed: its rank comes to it
    // behind the computation before.
    const auto& ends = computed_until_[trace];
    const auto next = std::upper_bound(ends.begin(), ends.end(), graph_.start_ns[computation]);
    const std::int64_t before = next == ends.begin() ? hull.start_ns : *std::prev(next);
    const std::int64_t start = std::max(hull.start_ns, before);
    add(trace, to_string(end), {start, start});
  }

  void add(std::size_t trace, std::string name, const Hull& hull) {
    RawEvent event;
    event.phase = "X";
    event.name = std::move(name);
    event.pid = event.tid = std::to_string(graph_.traces[trace]->rank);
    event.ts_ns = hull.start_ns;
    event.dur_ns = hull.end_ns - hull.start_ns;
    event.position = events_[trace].events.size();
    events_[trace].events.push_back(std::move(event));
  }

  const ChakraGraph& graph_;
  const ChakraActions& actions_;
  std::vector<RawTrace> events_;
  std::vector<std::vector<std::int64_t>> computed_until_;  // by rank: ends, ascending
};

}  // namespace

std::vector<RawTrace> chakra_events(const std::vector<ChakraTrace>& traces,
                                    CellOfName cell_of_name) {
  ChakraGraph graph = chakra_graph(traces);
  ChakraActions actions = named_actions(graph, cell_of_name);
  time_nodes(graph, needs_between(graph, actions));
  if (actions.cells.empty()) actions = recovered_actions(graph);
  return EventWriter(graph, actions).run();
}

}  // namespace pipewright::traces
