#include "core/program/lowering_passes.hpp"

#include <algorithm>
#include <array>

#include "core/base/large_pages.hpp"

namespace pipewright::lowering {
namespace {

constexpr std::size_t kComputations = static_cast<std::size_t>(ActionKind::B) + 1;
constexpr std::size_t kMostPeers = 16;  // those of a rank are gone through one by one
/// Rows that stand a power of two apart would share the same few places of a cache.
constexpr std::size_t kPaddedActions = 64 / sizeof(CompactAction);
constexpr std::size_t kPaddedEntries = 64 / sizeof(std::uint32_t);

/// The stage that makes what an action takes, and the one that takes what it makes; -1: none.
struct Neighbours {
  int before = -1, behind = -1;
};

Neighbours neighbours_of(ActionKind kind, int stage, int stages) {
  const int up = stage + 1 < stages ? stage + 1 : -1;
  if (kind == ActionKind::F) return {stage - 1, up};
  if (kind == ActionKind::I || kind == ActionKind::B) return {up, stage - 1};
  return {};
}

/// Reads the cells, once.
class Compacting {
 public:
  explicit Compacting(const Order& order)
      : order_(order),
        stages_(order.stages()),
        edges_from_(order.ranks.size()),
        in_common_(kComputations * static_cast<std::size_t>(stages_)) {
    out_.edges_into.resize(order.ranks.size());
  }

  std::optional<NumberedOrder> make() {
    std::size_t cells = 0;
    for (const auto& row : order_.ranks) cells += row.size();
    if (cells > INT32_MAX) return std::nullopt;
    out_.actions.reserve(cells + kPaddedActions * order_.ranks.size());
    use_large_pages(out_.actions);
    for (std::size_t r = 0; r < order_.ranks.size(); ++r) {
      out_.begin.push_back(out_.actions.size());
      last_ = {kNoEdge, kNoEdge};
      for (const Cell& cell : order_.ranks[r]) {
        if (!add(r, cell.action)) return std::nullopt;
        if (!cell.partner) continue;
        out_.actions.back().flags |= CompactAction::kFirst;
        if (cell.action.kind == ActionKind::Idle || cell.partner->kind == ActionKind::Idle ||
            !add(r, *cell.partner))
          return std::nullopt;
        --out_.instructions;
      }
      out_.end.push_back(out_.actions.size());
      out_.actions.resize(out_.actions.size() + kPaddedActions);
    }
    return place_arrivals() ? std::optional(std::move(out_)) : std::nullopt;
  }

 private:
  /// What a rank's actions of one kind and stage have in common.
  struct InCommon {
    std::int32_t rank = -1;  // of which this is known
    std::uint32_t edge = kNoEdge;
    std::uint8_t flags = 0;
  };

  bool add(std::size_t rank, const Action& a) {
    CompactAction& made = out_.actions.emplace_back();
    made.kind = a.kind;
    if (a.kind == ActionKind::Idle) return true;
    const int stage = a.stage.value;
    if (!is_compute(a.kind) || a.version >= 0 || stage < 0 || stage >= stages_ ||
        a.micro_batch.value < 0 || a.micro_batch.value >= order_.micro_batches)
      return false;
    InCommon& known =
        in_common_[static_cast<std::size_t>(a.kind) * static_cast<std::size_t>(stages_) +
                   static_cast<std::size_t>(stage)];
    if (known.rank != static_cast<std::int32_t>(rank) && !learn(rank, a, known)) return false;
    made.stage = static_cast<std::uint16_t>(stage);
    made.micro_batch = static_cast<std::uint32_t>(a.micro_batch.value);
    made.flags = known.flags;
    made.edge = known.edge;
    ++out_.instructions;
    receives_ += made.has(CompactAction::kReceives) ? 1 : 0;
    if (made.edge != kNoEdge) ++out_.edges[made.edge].count;
    return true;
  }

  /// False: the action stands on another rank than its placement says, or a rank has no place.
  bool learn(std::size_t rank, const Action& a, InCommon& known) {
    const auto own = static_cast<std::int32_t>(rank);
    const int stage = a.stage.value;
    if (rank_of(stage, a) != own) return false;
    known = {.rank = order_.placement.looks_at_micro_batch() ? -1 : own};
    const auto [before, behind] = neighbours_of(a.kind, stage, stages_);
    if (before >= 0) {
      const std::int32_t from = rank_of(before, a);
      if (!is_rank(from)) return false;
      known.flags = CompactAction::kNeeds;
      if (from != own) known.flags |= CompactAction::kReceives;
      if (from > own) known.flags |= CompactAction::kFromAbove;
    }
    if (behind < 0) return true;
    const std::int32_t to = rank_of(behind, a);
    if (!is_rank(to)) return false;
    if (to == own) return true;
    known.edge = edge_to(rank, to, a.kind == ActionKind::F ? 0 : 1);
    return known.edge != kNoEdge;
  }

  std::int32_t rank_of(int stage, const Action& a) const {
    return order_.placement.rank_of(StageId(stage), a.micro_batch).value;
  }

  /// Parts of orders have stages that no rank computes.
  bool is_rank(std::int32_t r) const {
    return r >= 0 && static_cast<std::size_t>(r) < order_.ranks.size();
  }

  /// kNoEdge: a rank has too many.
  std::uint32_t edge_to(std::size_t rank, std::int32_t to, std::size_t direction) {
    std::uint32_t& last = last_[direction];
    if (last != kNoEdge && out_.edges[last].destination == to) return last;
    for (const std::uint32_t known : edges_from_[rank]) {
      if (out_.edges[known].destination == to) return last = known;
    }
    auto& into = out_.edges_into[static_cast<std::size_t>(to)];
    if (edges_from_[rank].size() == kMostPeers || into.size() == kMostPeers) return kNoEdge;
    last = static_cast<std::uint32_t>(out_.edges.size());
    edges_from_[rank].push_back(last);
    into.push_back(last);
    out_.edges.push_back({.source = static_cast<std::int32_t>(rank), .destination = to});
    return last;
  }

  /// False if some of what is sent is not taken.
  bool place_arrivals() {
    std::size_t sends = 0;
    for (Edge& edge : out_.edges) {
      edge.begin = sends;
      sends += edge.count;
      edge.count = 0;
    }
    out_.instructions += 2 * sends;
    out_.arrivals = std::make_unique_for_overwrite<Arrival[]>(sends);
    use_large_pages(out_.arrivals.get(), sends * sizeof(Arrival));
    return sends == receives_;
  }

  const Order& order_;
  const int stages_;
  std::vector<std::vector<std::uint32_t>> edges_from_;  // by rank
  std::vector<InCommon> in_common_;                     // by kind and stage
  std::array<std::uint32_t, 2> last_ = {};  // edges of the rank at hand: of forwards, backwards
  std::size_t receives_ = 0;
  NumberedOrder out_;
};

/// Goes on with a rank until what it needs is missing; what makes that wakes it.
class Numbering {
  static constexpr std::size_t kAhead = 8;

 public:
  Numbering(const Order& order, NumberedOrder& out)
      : out_(out), ranks_(order.ranks.size()), awake_(order.ranks.size()) {
    out.stride =
        (static_cast<std::size_t>(order.micro_batches) / kPaddedEntries + 2) * kPaddedEntries;
    const std::size_t entries = static_cast<std::size_t>(order.stages()) * out.stride;
    for (auto* const table : {&out.activations, &out.gradients})
      assign_in_large_pages(*table, entries, std::uint32_t{0});
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      ranks_[r].next = out.begin[r];
      awake_[r] = static_cast<std::uint32_t>(r);
    }
  }

  bool run() {
    std::vector<std::uint32_t> round;
    while (!awake_.empty()) {
      round.swap(awake_);
      awake_.clear();
      for (const std::uint32_t r : round) {
        if (!go_on(r)) return false;
        // Other ranks come first; by the time this one goes on, what it reads is in the cache.
        __builtin_prefetch(out_.actions.data() + ranks_[r].next + kAhead, 1);
      }
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].next != out_.end[r]) return false;
    }
    return true;
  }

 private:
  struct Rank {
    std::size_t next = 0;
    std::uint32_t pass = 0;                    // of the last action taken
    const std::uint32_t* waits_for = nullptr;  // a place of the tables
  };

  /// False: the order is not as it must be.
  bool go_on(std::uint32_t r) {
    Rank& rank = ranks_[r];
    rank.waits_for = nullptr;
    for (const std::size_t end = out_.end[r]; rank.next != end; ++rank.next) {
      CompactAction& a = out_.actions[rank.next];
      std::uint32_t pass = rank.pass + 1;
      if (!find_input(rank, a, pass)) return true;
      if (a.has(CompactAction::kFirst)) {
        CompactAction& second = out_.actions[rank.next + 1];
        if (!find_input(rank, second, pass)) return true;
        if (!take(a, pass)) return false;
        ++rank.next;
        if (!take(second, pass)) return false;
      } else if (!take(a, pass)) {
        return false;
      }
      rank.pass = pass;
    }
    return true;
  }

  /// False: it is not made yet.
  bool find_input(Rank& rank, const CompactAction& a, std::uint32_t& pass) {
    if (!a.has(CompactAction::kNeeds)) return true;
    const std::uint32_t* made = a.kind == ActionKind::F ? &out_.activations[place(a) - out_.stride]
                                                        : &out_.gradients[place(a) + out_.stride];
    if (*made == 0) {
      rank.waits_for = made;
      return false;
    }
    pass = std::max(pass, *made + (a.has(CompactAction::kFromAbove) ? 1 : 0));
    return true;
  }

  bool take(CompactAction& a, std::uint32_t pass) {
    a.pass = pass;
    if (a.kind == ActionKind::Idle) return true;
    const std::size_t at = place(a);
    const bool forward = a.kind == ActionKind::F;
    if (a.kind == ActionKind::W) return out_.gradients[at] != 0;
    std::uint32_t& made = (forward ? out_.activations : out_.gradients)[at];
    if (made != 0 || (!forward && out_.activations[at] == 0)) return false;
    made = pass;
    if (a.edge == kNoEdge) return true;
    Edge& edge = out_.edges[a.edge];
    Arrival* const arrival = out_.arrivals.get() + edge.begin + edge.count++;
    *arrival = {pass, a.micro_batch, a.stage, forward ? ActionKind::SendF : ActionKind::SendB};
    __builtin_prefetch(arrival + kAhead, 1);
    if (ranks_[static_cast<std::size_t>(edge.destination)].waits_for == &made)
      awake_.push_back(static_cast<std::uint32_t>(edge.destination));
    return true;
  }

  std::size_t place(const CompactAction& a) const { return a.stage * out_.stride + a.micro_batch; }

  NumberedOrder& out_;
  std::vector<Rank> ranks_;
  std::vector<std::uint32_t> awake_;  // can go on
};

}  // namespace

std::optional<NumberedOrder> number_passes(const Order& order) {
  std::optional<NumberedOrder> made = Compacting(order).make();
  if (made && !Numbering(order, *made).run()) made.reset();
  return made;
}

}  // namespace pipewright::lowering
