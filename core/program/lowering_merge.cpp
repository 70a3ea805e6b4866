// A whole Program from the passes of its order, one rank after the other: each list is its own
// actions and what arrives, merged by pass.
#include <algorithm>
#include <limits>
#include <unordered_map>

#include "core/base/large_pages.hpp"
#include "core/program/lowering.hpp"
#include "core/program/lowering_passes.hpp"

namespace pipewright::lowering {
namespace {

constexpr std::size_t kMostAddedToRank = 3;  // REDUCE_TIED, REDUCE_NORM, OPT
constexpr std::size_t kAhead = 24;
constexpr std::uint64_t kEnded = std::numeric_limits<std::uint64_t>::max();

/// When an action is taken, beside those of all ranks.
std::uint64_t moment(std::uint32_t pass, std::int64_t rank) {
  return (std::uint64_t{pass} << 32U) | static_cast<std::uint64_t>(rank);
}

class Merging {
 public:
  Merging(NumberedOrder& order, const Updates& updates, Program& program)
      : order_(order),
        updates_(updates),
        program_(program),
        send_flags_(flags_by_place(program.policy, ActionKind::SendF, false)),
        receive_flags_(flags_by_place(program.policy, ActionKind::RecvF, false)),
        lane_flags_(flags_by_place(program.policy, ActionKind::F, false)),
        flags_after_run_(flags_by_place(program.policy, ActionKind::F, true)),
        last_route_(2 * static_cast<std::size_t>(program.stages)) {}

  void run() {
    const std::size_t ranks = order_.begin.size();
    program_.code.reserve(order_.instructions + (updates_.wanted ? kMostAddedToRank * ranks : 0));
    use_large_pages(program_.code);
    program_.rank_begin.push_back(0);
    for (std::size_t r = 0; r < ranks; ++r) {
      list(r);
      program_.rank_begin.push_back(next_id());
    }
  }

 private:
  /// The arrivals of an edge that are not listed yet.
  struct Stream {
    const Arrival *next, *end;
    std::uint64_t moment;  // of the next one
    std::uint32_t edge;
  };

  InstructionId next_id() const { return static_cast<InstructionId>(program_.code.size()); }

  void list(std::size_t rank) {
    streams_.clear();
    for (const std::uint32_t e : order_.edges_into[rank]) {
      const Edge& edge = order_.edges[e];
      const Arrival* const first = order_.arrivals.get() + edge.begin;
      streams_.push_back({first, first + edge.count, moment(first->pass, edge.source), e});
    }
    after_run_ = has_gradients_ = false;
    for (std::size_t i = order_.begin[rank]; i < order_.end[rank]; ++i) {
      const CompactAction& a = order_.actions[i];
      receive_until(moment(a.pass, static_cast<std::int64_t>(rank)));
      if (a.kind == ActionKind::Idle) continue;
      const CompactAction* const second =
          a.has(CompactAction::kFirst) ? &order_.actions[++i] : nullptr;
      compute(a, second);
      send(a);
      if (second != nullptr) send(*second);
    }
    if (updates_.wanted && has_gradients_) update(rank);
  }

  void receive_until(std::uint64_t end) {
    while (true) {
      Stream* first = nullptr;
      std::uint64_t least = end;
      for (Stream& one : streams_) {
        if (one.moment >= least) continue;
        least = one.moment;
        first = &one;
      }
      if (first == nullptr) return;
      receive(*first->next, first->edge);
      const bool ended = ++first->next == first->end;
      first->moment = ended ? kEnded : moment(first->next->pass, order_.edges[first->edge].source);
    }
  }

  /// Where the end of a transfer that is listed first is kept for the other one.
  std::uint32_t& place_of(bool forward, std::size_t stage, std::uint32_t micro_batch) {
    return (forward ? order_.activations : order_.gradients)[stage * order_.stride + micro_batch];
  }

  /// To the other end of its transfer, which stands in a list before. The next ones of that list
  /// are a few instructions further.
  void link(Instruction& in, InstructionId id, InstructionId other) {
    in.link = other;
    Instruction* const there = program_.code.data() + other;
    there->link = id;
    __builtin_prefetch(there + kAhead, 1);
  }

  void receive(const Arrival& arrival, std::uint32_t e) {
    const bool forward = arrival.kind == ActionKind::SendF;
    const InstructionId id = next_id();
    std::uint32_t& place = place_of(forward, arrival.stage, arrival.micro_batch);
    const bool sent = order_.edges[e].source < order_.edges[e].destination;
    Instruction in;
    in.kind = forward ? ActionKind::RecvF : ActionKind::RecvB;
    in.flags = receive_flags_;
    in.stage = static_cast<std::uint16_t>(forward ? arrival.stage + 1 : arrival.stage - 1);
    in.micro_batch = arrival.micro_batch;
    in.route = route_of(forward, arrival.stage, e);
    if (sent) link(in, id, place);
    place = id;
    program_.code.push_back(in);
    after_run_ = true;
  }

  void send(const CompactAction& a) {
    if (a.edge == kNoEdge) return;
    const bool forward = a.kind == ActionKind::F;
    const InstructionId id = next_id();
    std::uint32_t& place = place_of(forward, a.stage, a.micro_batch);
    Instruction in;
    in.kind = forward ? ActionKind::SendF : ActionKind::SendB;
    in.flags = send_flags_;
    in.stage = a.stage;
    in.micro_batch = a.micro_batch;
    in.route = route_of(forward, a.stage, a.edge);
    if (order_.edges[a.edge].destination < order_.edges[a.edge].source) {
      link(in, id, place);
    } else {
      place = id;
    }
    program_.code.push_back(in);
    after_run_ = true;
  }

  /// The RECV of its input.
  InstructionId received(const CompactAction& a) {
    if (!a.has(CompactAction::kReceives)) return kNoInstruction;
    const bool forward = a.kind == ActionKind::F;
    return place_of(forward, forward ? a.stage - 1U : a.stage + 1U, a.micro_batch);
  }

  void compute(const CompactAction& a, const CompactAction* second) {
    has_gradients_ |= a.kind == ActionKind::W || a.kind == ActionKind::B || second != nullptr;
    Instruction& in = on_lane(a.kind);
    in.stage = a.stage;
    in.micro_batch = a.micro_batch;
    in.link = received(a);
    if (second == nullptr) return;
    in.flags |= Instruction::kPair;
    const InstructionId id = next_id() - 1, also = received(*second);
    program_.pairs.emplace_back(id, Action{.kind = second->kind,
                                           .stage = StageId(second->stage),
                                           .micro_batch = MicroBatchId(second->micro_batch)});
    if (also == kNoInstruction) return;
    in.flags |= Instruction::kExtraInput;
    program_.extra_inputs.emplace_back(id, also);
  }

  Instruction& on_lane(ActionKind kind) {
    Instruction& in = program_.code.emplace_back();
    in.kind = kind;
    in.flags = after_run_ ? flags_after_run_ : lane_flags_;
    after_run_ = false;
    return in;
  }

  void update(std::size_t rank) {
    if (!updates_.tied.empty()) {
      const auto own = program_.placement.stages_of(RankId(static_cast<std::int64_t>(rank)));
      if (std::find_first_of(own.begin(), own.end(), updates_.tied.begin(), updates_.tied.end()) !=
          own.end())
        on_lane(ActionKind::ReduceTied);
    }
    if (updates_.clips) on_lane(ActionKind::ReduceNorm);
    on_lane(ActionKind::Opt);
  }

  std::uint32_t route_of(bool forward, std::size_t stage, std::uint32_t e) {
    LastRoute& last = last_route_[2 * stage + (forward ? 1 : 0)];
    if (last.edge != e) last = {e, numbered_route(forward, stage, e)};
    return last.route;
  }
  /// Numbered by the first of its ends.
  std::uint32_t numbered_route(bool forward, std::size_t stage, std::uint32_t e) {
    const std::size_t chain = 2 * stage + (forward ? 1 : 0);
    const auto [known, is_new] = routes_.try_emplace(
        (std::uint64_t{e} << 32U) | chain, static_cast<std::uint32_t>(program_.routes.size()));
    if (is_new)
      program_.routes.push_back({.send_kind = forward ? ActionKind::SendF : ActionKind::SendB,
                                 .stage = StageId(static_cast<std::int64_t>(stage)),
                                 .source = RankId(order_.edges[e].source),
                                 .destination = RankId(order_.edges[e].destination)});
    return known->second;
  }

  struct LastRoute {
    std::uint32_t edge = kNoEdge, route = kNoRoute;
  };

  NumberedOrder& order_;
  const Updates& updates_;
  Program& program_;
  const std::uint8_t send_flags_, receive_flags_, lane_flags_, flags_after_run_;
  std::vector<Stream> streams_;                              // into the rank at hand
  bool after_run_ = false;                                   // of transfers
  bool has_gradients_ = false;                               // the rank at hand computes some
  std::vector<LastRoute> last_route_;                        // by kind and stage
  std::unordered_map<std::uint64_t, std::uint32_t> routes_;  // by edge, kind and stage
};

}  // namespace

bool lower_at_once(const Order& order, const Updates& updates, Program& program) {
  const CommPolicy& policy = program.policy;
  // Receives stand where they arrive, so that sends and receives of two ranks match one by one.
  if (policy.post == Post::Deferred || policy.run_order != RunOrder::AsLowered ||
      !order.parts.empty() || (updates.wanted && order.placement.looks_at_micro_batch()))
    return false;
  std::optional<NumberedOrder> numbered = number_passes(order);
  if (!numbered || numbered->instructions + kMostAddedToRank * order.ranks.size() >= kNoInstruction)
    return false;
  Merging(*numbered, updates, program).run();
  return true;
}

}  // namespace pipewright::lowering
