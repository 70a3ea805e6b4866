#include "traces/events/chakra_actions.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "core/base/error.hpp"

namespace pipewright::traces {
namespace {

/// Everything that `place` needs, back to the next computations and messages that come in.
std::vector<ChakraPlace> origins_of(const ChakraGraph& graph, ChakraPlace place) {
  std::vector<ChakraPlace> origins, open = graph.needs[place];
  std::set<ChakraPlace> seen(open.begin(), open.end());
  while (!open.empty()) {
    const ChakraPlace at = open.back();
    open.pop_back();
    const ChakraKind kind = graph.nodes[at]->kind;
    if (kind == ChakraKind::Computation || kind == ChakraKind::Receive) {
      origins.push_back(at);
      continue;
    }
    for (const ChakraPlace need : graph.needs[at])
      if (seen.insert(need).second) open.push_back(need);
  }
  return origins;
}

enum class Phase : std::uint8_t { Unsaid, Forward, Backward, Update };

/// What a name says, in whatever case.
Phase phase_in(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : static_cast<char>(c);
  });
  constexpr std::array<std::pair<std::string_view, Phase>, 6> kWords = {
      {{"bwd", Phase::Backward},
       {"backward", Phase::Backward},
       {"optimizer", Phase::Update},
       {"update", Phase::Update},
       {"fwd", Phase::Forward},
       {"forward", Phase::Forward}}};
  for (const auto& [word, phase] : kWords)
    if (name.find(word) != name.npos) return phase;
  return Phase::Unsaid;
}

/// What a rank computes in a row for one micro-batch of one stage.
struct Stretch {
  std::size_t trace = 0;
  Phase phase = Phase::Unsaid;
  std::vector<ChakraPlace> nodes;                                           // by time
  std::size_t before = ChakraActions::kNone, after = ChakraActions::kNone;  // by a message
  std::size_t turn = ChakraActions::kNone;  // of the last stage's forward: its backward
};

class Recovery {
 public:
  explicit Recovery(const ChakraGraph& graph) : graph_(graph) {
    for (const ChakraNode* node : graph.nodes) {
      const Phase phase = phase_in(node->name);
      says_phases_ |= node->kind == ChakraKind::Computation &&
                      (phase == Phase::Forward || phase == Phase::Backward);
    }
  }

  ChakraActions run() {
    actions_.of.assign(graph_.nodes.size(), ChakraActions::kNone);
    sort_computations();
    find_messages();
    cut();
    link();
    for (std::size_t t = 0; t < graph_.traces.size(); ++t) turn_around(t);
    follow_all();
    return std::move(actions_);
  }

 private:
  static constexpr std::size_t kNone = ChakraActions::kNone;

  void sort_computations() {
    computations_.resize(graph_.traces.size());
    for (ChakraPlace place = 0; place < graph_.nodes.size(); ++place) {
      if (graph_.nodes[place]->kind == ChakraKind::Computation)
        computations_[graph_.trace_of[place]].push_back(place);
    }
    for (auto& of_rank : computations_) {
      std::stable_sort(of_rank.begin(), of_rank.end(), [&](ChakraPlace a, ChakraPlace b) {
        return std::tie(graph_.start_ns[a], graph_.end_ns[a]) <
               std::tie(graph_.start_ns[b], graph_.end_ns[b]);
      });
    }
  }

  /// Which computation takes each message first, and which gives it.
  void find_messages() {
    for (ChakraPlace place = 0; place < graph_.nodes.size(); ++place) {
      const ChakraKind kind = graph_.nodes[place]->kind;
      if (kind == ChakraKind::Send) giver_[place] = source_of_message(graph_, place);
      if (kind == ChakraKind::Receive && graph_.sender[place] == kNoPlace) {
        throw InputError(graph_.trace(place).file, chakra_node_text(*graph_.nodes[place]),
                         "takes a message that no rank sends (comm_src, comm_dst, comm_tag); give "
                         "the files of all ranks of one pipeline");
      }
    }
    for (const auto& of_rank : computations_) {
      for (const ChakraPlace place : of_rank)
        for (const ChakraPlace receive : messages_into(graph_, place))
          taker_.try_emplace(receive, place);
    }
    for (const auto& [receive, place] : taker_) takes_.insert(place);
    for (const auto& [send, place] : giver_) gives_.insert(place);
  }

  void cut() {
    for (std::size_t t = 0; t < graph_.traces.size(); ++t) {
      bool ended = true;
      for (const ChakraPlace place : computations_[t]) {
        const Phase phase = phase_in(graph_.nodes[place]->name);
        const bool another = !ended && phase != Phase::Unsaid &&
                             stretches_.back().phase != Phase::Unsaid &&
                             phase != stretches_.back().phase;
        if (ended || another || !says_phases_ || takes_.contains(place))
          stretches_.push_back({.trace = t, .nodes = {}});
        if (phase != Phase::Unsaid) stretches_.back().phase = phase;
        stretches_.back().nodes.push_back(place);
        actions_.of[place] = stretches_.size() - 1;
        ended = gives_.contains(place);
      }
    }
  }

  void link() {
    for (const auto& [receive, taker] : taker_) {
      const ChakraPlace giver = giver_.at(graph_.sender[receive]);
      if (giver == kNoPlace) refuse(actions_.of[taker], "takes a message that nothing made");
      const std::size_t from = actions_.of[giver], to = actions_.of[taker];
      Stretch& source = stretches_[from];
      Stretch& target = stretches_[to];
      if (source.after != kNone && source.after != to) refuse(from, "gives messages to several");
      if (target.before != kNone && target.before != from) refuse(to, "takes messages of several");
      source.after = to;
      target.before = from;
    }
  }

  /// Where a rank's stretches begin a micro-batch, or its backward, and where its forward ends.
  void turn_around(std::size_t trace) {
    std::set<std::size_t> ends, begins;
    bool is_first = false;
    for (std::size_t p = 0; p < stretches_.size(); ++p) {
      const Stretch& stretch = stretches_[p];
      if (stretch.trace != trace || (stretch.before == kNone) == (stretch.after == kNone)) continue;
      const bool begins_here = stretch.before == kNone;
      if (ends.empty() && begins.empty())
        is_first = begins_here && stretch.phase != Phase::Backward;
      (begins_here ? begins : ends).insert(p);
    }
    if (!is_first) return turn_each(begins, std::move(ends));
    for (const std::size_t p : begins) {
      if (stretches_[p].phase == Phase::Backward || !needed_of(p, ends).empty())
        refuse(p, "goes on with what a message brought to the same rank");
      firsts_.push_back(p);
    }
  }

  /// Each backward to its forward: by what it needs, else in turn, those that need the fewest
  /// first.
  void turn_each(const std::set<std::size_t>& backwards, std::set<std::size_t> forwards) {
    std::vector<std::pair<std::size_t, std::vector<std::size_t>>> order;
    for (const std::size_t b : backwards) order.emplace_back(b, needed_of(b, forwards));
    std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
      return a.second.size() - 1 < b.second.size() - 1;  // none: last
    });
    for (const auto& [backward, needed] : order) {
      if (forwards.empty()) refuse(backward, "is a backward without a forward");
      const auto found = std::find_if(needed.begin(), needed.end(),
                                      [&](std::size_t f) { return forwards.contains(f); });
      const std::size_t forward = found == needed.end() ? *forwards.begin() : *found;
      stretches_[forward].turn = backward;
      forwards.erase(forward);
    }
  }

  /// Which of these stretches a stretch needs, besides the one right before it: it may only come
  /// behind that.
  std::vector<std::size_t> needed_of(std::size_t stretch, const std::set<std::size_t>& of) const {
    std::set<std::size_t> needed;
    for (const ChakraPlace origin : origins_of(graph_, stretches_[stretch].nodes.front())) {
      const std::size_t other = actions_.of[origin];
      if (other + 1 != stretch && of.contains(other)) needed.insert(other);
    }
    return {needed.begin(), needed.end()};
  }

  void follow_all() {
    is_on_a_way_.assign(stretches_.size(), false);
    actions_.cells.assign(stretches_.size(), Cell{});
    if (firsts_.empty())
      refuse(0, "neither begins nor goes on with a micro-batch that another rank ends");
    for (const std::size_t first : firsts_) {
      const std::vector<std::size_t> way = way_from(first);
      const bool turns = std::any_of(way.begin(), way.end(),
                                     [&](std::size_t p) { return stretches_[p].turn != kNone; });
      const std::size_t stages = turns ? way.size() / 2 : way.size();
      const std::vector<std::size_t> ranks = ranks_of(way);
      if (ranks_.empty()) ranks_ = ranks;
      const bool there_and_back = std::equal(ranks.begin(), ranks.end(), ranks.rbegin());
      if (!turns && ranks.size() > 2 && there_and_back)
        refuse(way[way.size() / 2], "computes forward and backward of a micro-batch in one");
      if (ranks != ranks_ || (turns && (!there_and_back || ranks.size() % 2 != 0)))
        refuse(first, "begins another way through the ranks than the rest, or none back");
      name_way(way, stages, micro_batch_of(first));
    }
    for (std::size_t p = 0; p < stretches_.size(); ++p) {
      if (is_on_a_way_[p]) continue;
      if (stretches_[p].before != kNone || stretches_[p].after != kNone)
        refuse(p, "goes on with what no rank has begun");
      actions_.cells[p].action = {.kind = ActionKind::Opt, .stage = {}, .micro_batch = {}};
    }
  }

  std::vector<std::size_t> way_from(std::size_t first) {
    std::vector<std::size_t> way;
    for (std::size_t p = first; p != kNone;) {
      if (is_on_a_way_[p]) refuse(p, "is on the way of two micro-batches");
      is_on_a_way_[p] = true;
      way.push_back(p);
      p = stretches_[p].after != kNone ? stretches_[p].after : stretches_[p].turn;
    }
    return way;
  }

  std::vector<std::size_t> ranks_of(const std::vector<std::size_t>& way) const {
    std::vector<std::size_t> ranks;
    for (const std::size_t p : way) ranks.push_back(stretches_[p].trace);
    return ranks;
  }

  /// They count anew behind an update.
  int micro_batch_of(std::size_t first) {
    for (; next_ < first; ++next_) {
      const Stretch& stretch = stretches_[next_];
      const bool updates = stretch.before == kNone && stretch.after == kNone;
      if (updates && stretch.trace == stretches_[first].trace) micro_batches_ = 0;
    }
    return micro_batches_++;
  }

  void name_way(const std::vector<std::size_t>& way, std::size_t stages, int micro_batch) {
    for (std::size_t k = 0; k < way.size(); ++k) {
      const bool forward = k < stages;
      const Phase phase = stretches_[way[k]].phase;
      if (phase != Phase::Unsaid && phase != (forward ? Phase::Forward : Phase::Backward))
        refuse(way[k], "has a name that says otherwise than the way of its micro-batch");
      actions_.cells[way[k]].action = {
          .kind = forward ? ActionKind::F : ActionKind::B,
          .stage = StageId(static_cast<int>(forward ? k : way.size() - 1 - k)),
          .micro_batch = MicroBatchId(micro_batch)};
    }
  }

  [[noreturn]] void refuse(std::size_t stretch, const std::string& why) const {
    if (stretches_.empty()) {
      throw InputError(graph_.traces.front()->file, "",
                       "holds no computation; expected COMP_NODEs of a pipeline");
    }
    const ChakraPlace place = stretches_[stretch].nodes.front();
    throw InputError(graph_.trace(place).file, chakra_node_text(*graph_.nodes[place]),
                     why +
                         "; expected the forwards and backwards of a pipeline, tied by "
                         "COMM_SEND_NODEs and COMM_RECV_NODEs, or nodes named after actions "
                         "(\"0F3\": stage 0, forward, micro-batch 3)");
  }

  const ChakraGraph& graph_;
  bool says_phases_ = false;
  std::vector<std::vector<ChakraPlace>> computations_;  // by rank, by time
  std::map<ChakraPlace, ChakraPlace> giver_, taker_;    // by Send; by Receive
  std::set<ChakraPlace> takes_, gives_;                 // computations
  std::vector<Stretch> stretches_;                      // ranks one after the other, by time
  std::vector<std::size_t> firsts_;                     // forwards of the first stage
  std::vector<bool> is_on_a_way_;                       // by stretch
  std::vector<std::size_t> ranks_;                      // along the way of every micro-batch
  std::size_t next_ = 0;                                // stretch
  int micro_batches_ = 0;                               // of the step so far
  ChakraActions actions_;
};

}  // namespace

std::vector<ChakraPlace> messages_into(const ChakraGraph& graph, ChakraPlace place) {
  std::vector<ChakraPlace> messages = origins_of(graph, place);
  std::erase_if(messages, [&](ChakraPlace origin) {
    return graph.nodes[origin]->kind != ChakraKind::Receive;
  });
  return messages;
}

ChakraPlace source_of_message(const ChakraGraph& graph, ChakraPlace send) {
  ChakraPlace latest = kNoPlace;
  for (const ChakraPlace origin : origins_of(graph, send)) {
    if (graph.nodes[origin]->kind != ChakraKind::Computation) continue;
    if (latest == kNoPlace || graph.end_ns[origin] >= graph.end_ns[latest]) latest = origin;
  }
  return latest;
}

ChakraActions named_actions(const ChakraGraph& graph, CellOfName cell_of_name) {
  ChakraActions actions;
  const std::size_t count = graph.nodes.size();
  constexpr std::size_t kOpen = ChakraActions::kNone - 1;
  actions.of.assign(count, kOpen);
  for (ChakraPlace place = 0; place < count; ++place) {
    const auto cell = cell_of_name(graph.nodes[place]->name);
    // "SEND" and "ALL_REDUCE" are names of calls, and here of any message.
    if (!cell || (!has_stage(cell->action.kind) && cell->action.kind != ActionKind::Opt)) continue;
    actions.of[place] = actions.cells.size();
    actions.cells.push_back(*cell);
  }
  if (std::none_of(actions.cells.begin(), actions.cells.end(),
                   [](const Cell& cell) { return is_compute(cell.action.kind); }))
    return {};
  for (ChakraPlace place = 0; place < count; ++place) {
    std::vector<ChakraPlace> callers;
    ChakraPlace at = place;
    while (at != kNoPlace && actions.of[at] == kOpen) {
      actions.of[at] = ChakraActions::kNone;  // ends the way of callers in a circle
      callers.push_back(at);
      at = graph.caller[at];
    }
    const std::size_t action = at == kNoPlace ? ChakraActions::kNone : actions.of[at];
    for (const ChakraPlace caller : callers) actions.of[caller] = action;
  }
  return actions;
}

ChakraActions recovered_actions(const ChakraGraph& graph) { return Recovery(graph).run(); }

std::vector<ChakraEdge> needs_between(const ChakraGraph& graph, const ChakraActions& actions) {
  if (actions.cells.empty()) return {};
  struct Extent {
    ChakraPlace first = kNoPlace, last = kNoPlace;
  };
  std::vector<Extent> extents(actions.cells.size());
  for (ChakraPlace place = 0; place < graph.nodes.size(); ++place) {
    const std::size_t action = actions.of[place];
    if (action == ChakraActions::kNone || graph.nodes[place]->kind != ChakraKind::Computation)
      continue;
    if (extents[action].first == kNoPlace) extents[action].first = place;
    extents[action].last = place;
  }
  // A gradient, stage, micro-batch, and which of several steps.
  using WhichTensor = std::tuple<bool, int, int, int>;
  std::map<WhichTensor, std::size_t> makers;
  std::map<std::tuple<bool, int, int>, int> made, taken;
  const auto each = [&](auto take) {
    for (std::size_t a = 0; a < actions.cells.size(); ++a) {
      const Cell& cell = actions.cells[a];
      if (extents[a].first == kNoPlace) continue;
      const auto take_one = [&](const Action& action) {
        const bool gradient = action.kind == ActionKind::B || action.kind == ActionKind::I;
        if (action.kind == ActionKind::F || gradient) take(a, action, gradient);
      };
      take_one(cell.action);
      if (cell.partner) take_one(*cell.partner);
    }
  };
  each([&](std::size_t a, const Action& action, bool gradient) {
    const int stage = action.stage.value, micro_batch = action.micro_batch.value;
    makers[{gradient, stage, micro_batch, made[{gradient, stage, micro_batch}]++}] = a;
  });
  std::vector<ChakraEdge> edges;
  each([&](std::size_t a, const Action& action, bool gradient) {
    const int source = action.stage.value + (gradient ? 1 : -1);
    const int micro_batch = action.micro_batch.value;
    const auto found =
        makers.find({gradient, source, micro_batch, taken[{gradient, source, micro_batch}]++});
    if (found == makers.end()) return;
    const ChakraEdge edge{extents[found->second].last, extents[a].first};
    if (graph.trace_of[edge.before] != graph.trace_of[edge.after]) edges.push_back(edge);
  });
  return edges;
}

}  // namespace pipewright::traces
