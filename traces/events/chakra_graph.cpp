#include "traces/events/chakra_graph.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <queue>
#include <set>
#include <string>
#include <tuple>

#include "core/base/error.hpp"
#include "core/base/plain_text.hpp"

namespace pipewright::traces {
namespace {

/// The places of ids of one rank, whose nodes are sorted by id and begin at `first`.
std::vector<ChakraPlace> places_of(const std::vector<std::uint64_t>& ids, const ChakraTrace& trace,
                                   ChakraPlace first) {
  std::vector<ChakraPlace> places;
  for (const std::uint64_t id : ids) {
    const auto found = std::lower_bound(
        trace.nodes.begin(), trace.nodes.end(), id,
        [](const ChakraNode& node, std::uint64_t wanted) { return node.id < wanted; });
    places.push_back(first + static_cast<ChakraPlace>(found - trace.nodes.begin()));
  }
  return places;
}

bool has_times(const ChakraTrace& trace) {
  return std::any_of(trace.nodes.begin(), trace.nodes.end(),
                     [](const ChakraNode& node) { return node.start_ns > 0; });
}

void match_messages(ChakraGraph& graph) {
  using Envelope = std::tuple<std::int64_t, std::int64_t, std::int64_t>;  // from, to, tag
  std::map<Envelope, std::deque<ChakraPlace>> sent;
  const auto key_of = [&](ChakraPlace place) {
    const ChakraNode& node = *graph.nodes[place];
    const std::int64_t own = graph.trace(place).rank;
    return Envelope{node.source.value_or(node.kind == ChakraKind::Send ? own : -1),
                    node.target.value_or(node.kind == ChakraKind::Receive ? own : -1),
                    node.tag.value_or(0)};
  };
  for (ChakraPlace place = 0; place < graph.nodes.size(); ++place)
    if (graph.nodes[place]->kind == ChakraKind::Send) sent[key_of(place)].push_back(place);
  for (ChakraPlace place = 0; place < graph.nodes.size(); ++place) {
    if (graph.nodes[place]->kind != ChakraKind::Receive) continue;
    const auto found = sent.find(key_of(place));
    if (found == sent.end() || found->second.empty()) continue;
    graph.sender[place] = found->second.front();
    found->second.pop_front();
  }
}

/// Runs the nodes in the order of time.
class Clockwork {
 public:
  Clockwork(ChakraGraph& graph, const std::vector<ChakraEdge>& others) : graph_(graph) {
    const std::size_t count = graph.nodes.size();
    missing_.assign(count, 0);
    waiting_.resize(count);
    ready_.resize(graph.traces.size());
    busy_.resize(graph.traces.size());
    for (ChakraPlace place = 0; place < count; ++place) {
      for (const ChakraPlace need : graph.needs[place]) add(need, place);
      if (graph.sender[place] != kNoPlace) add(graph.sender[place], place);
    }
    for (const ChakraEdge& edge : others) add(edge.before, edge.after);
  }

  void run() {
    std::size_t ended = 0;
    for (ChakraPlace place = 0; place < graph_.nodes.size(); ++place)
      if (missing_[place] == 0) let_go(place);
    start_what_can();
    while (!running_.empty()) {
      now_ = std::get<0>(running_.top());
      while (!running_.empty() && std::get<0>(running_.top()) == now_) {
        const ChakraPlace place = std::get<1>(running_.top());
        running_.pop();
        end(place);
        ++ended;
      }
      start_what_can();
    }
    if (ended < graph_.nodes.size()) refuse_circle();
    // A Receive is there from when its own rank came to it.
    for (ChakraPlace place = 0; place < graph_.nodes.size(); ++place) {
      if (graph_.nodes[place]->kind != ChakraKind::Receive) continue;
      graph_.start_ns[place] = 0;
      for (const ChakraPlace need : graph_.needs[place])
        graph_.start_ns[place] = std::max(graph_.start_ns[place], graph_.end_ns[need]);
    }
  }

 private:
  enum Worker : std::uint8_t { kHost, kDevice, kNobody };

  void add(ChakraPlace before, ChakraPlace after) {
    waiting_[before].push_back(after);
    ++missing_[after];
  }

  Worker worker_of(ChakraPlace place) const {
    const ChakraNode& node = *graph_.nodes[place];
    if (node.kind != ChakraKind::Computation) return kNobody;
    return node.on_host ? kHost : kDevice;
  }

  void let_go(ChakraPlace place) {
    const Worker worker = worker_of(place);
    if (worker == kNobody) return start(place);
    const std::size_t rank = graph_.trace_of[place];
    ready_[rank][worker].insert(place);
    touched_.insert({rank, worker});
  }

  void start(ChakraPlace place) {
    const ChakraNode& node = *graph_.nodes[place];
    const bool is_message = node.kind == ChakraKind::Send || node.kind == ChakraKind::Receive;
    const std::int64_t took = is_message ? 0 : node.duration_ns;
    if (took > kMostTime - now_) {
      throw InputError(graph_.trace(place).file, chakra_node_text(node),
                       "ends more than 36 years after the first; expected a step's durations");
    }
    graph_.start_ns[place] = now_;
    graph_.end_ns[place] = now_ + took;
    running_.emplace(now_ + took, place);
  }

  void start_what_can() {
    for (const auto& [rank, worker] : touched_) {
      std::set<ChakraPlace>& ready = ready_[rank][worker];
      if (busy_[rank][worker] || ready.empty()) continue;
      busy_[rank][worker] = true;
      start(*ready.begin());
      ready.erase(ready.begin());
    }
    touched_.clear();
  }

  void end(ChakraPlace place) {
    if (const Worker worker = worker_of(place); worker != kNobody) {
      const std::size_t rank = graph_.trace_of[place];
      busy_[rank][worker] = false;
      touched_.insert({rank, worker});
    }
    for (const ChakraPlace next : waiting_[place])
      if (--missing_[next] == 0) let_go(next);
  }

  [[noreturn]] void refuse_circle() const {
    ChakraPlace place = 0;
    while (missing_[place] == 0) ++place;
    throw InputError(graph_.trace(place).file, chakra_node_text(*graph_.nodes[place]),
                     "can never begin, because what it needs waits for it in turn; give the traces "
                     "of a run that ended");
  }

  static constexpr std::int64_t kMostTime = std::int64_t{1} << 60;

  ChakraGraph& graph_;
  std::vector<std::size_t> missing_;                               // needs that have not ended
  std::vector<std::vector<ChakraPlace>> waiting_;                  // who needs it
  std::vector<std::array<std::set<ChakraPlace>, kNobody>> ready_;  // by rank and worker
  std::vector<std::array<bool, kNobody>> busy_;
  std::set<std::pair<std::size_t, Worker>> touched_;  // may have something to start
  using Ending = std::tuple<std::int64_t, ChakraPlace>;
  std::priority_queue<Ending, std::vector<Ending>, std::greater<>> running_;
  std::int64_t now_ = 0;
};

}  // namespace

ChakraGraph chakra_graph(const std::vector<ChakraTrace>& traces) {
  ChakraGraph graph;
  for (std::size_t t = 0; t < traces.size(); ++t) {
    const ChakraTrace& trace = traces[t];
    const ChakraPlace first = graph.nodes.size();
    graph.traces.push_back(&trace);
    for (const ChakraNode& node : trace.nodes) {
      graph.nodes.push_back(&node);
      graph.trace_of.push_back(t);
      const auto callers = places_of(node.control_needs, trace, first);
      graph.caller.push_back(callers.empty() ? kNoPlace : callers.front());
      graph.needs.push_back(places_of(node.data_needs, trace, first));
      graph.needs.back().insert(graph.needs.back().end(), callers.begin(), callers.end());
    }
    if (t > 0 && has_times(trace) != graph.is_timed) {
      throw InputError(trace.file, "",
                       "and " + traces.front().file +
                           ": one says when its nodes began (start_time_micros), the other does "
                           "not; give files of one kind");
    }
    graph.is_timed = has_times(trace);
  }
  graph.sender.assign(graph.nodes.size(), kNoPlace);
  match_messages(graph);
  return graph;
}

void time_nodes(ChakraGraph& graph, const std::vector<ChakraEdge>& others) {
  graph.start_ns.assign(graph.nodes.size(), 0);
  graph.end_ns.assign(graph.nodes.size(), 0);
  if (!graph.is_timed) return Clockwork(graph, others).run();
  for (ChakraPlace place = 0; place < graph.nodes.size(); ++place) {
    graph.start_ns[place] = graph.nodes[place]->start_ns;
    graph.end_ns[place] = graph.start_ns[place] + graph.nodes[place]->duration_ns;
  }
}

std::string chakra_node_text(const ChakraNode& node) {
  const std::string id = "node " + std::to_string(node.id);
  return node.name.empty() ? id : id + " (" + plain_text(node.name.substr(0, 40)) + ")";
}

}  // namespace pipewright::traces
