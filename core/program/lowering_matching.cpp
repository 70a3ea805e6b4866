#include "core/program/lowering.hpp"

#include <algorithm>
#include <array>
#include <unordered_map>

namespace pipewright::lowering {
namespace {

constexpr std::int32_t kUnmatched = -1;

class Matching {
 public:
  explicit Matching(Program& program)
      : program_(program),
        last_route_(2 * static_cast<std::size_t>(program.stages) + 2, kNoRoute) {}

  void run() {
    const bool by_tag =
        program_.policy.issue == Issue::Stream && program_.policy.channel == Channel::Tag;
    for (int r = 0; r < program_.ranks(); ++r) {
      for (InstructionId id = program_.rank_begin[static_cast<std::size_t>(r)];
           id < program_.rank_begin[static_cast<std::size_t>(r) + 1]; ++id) {
        if (is_transfer(program_.code[id].kind)) find_route(RankId(r), program_.code[id]);
      }
    }
    if (by_tag) {
      match_by_tag();
    } else {
      match_by_position();
    }
  }

 private:
  void find_route(RankId rank, Instruction& in) {
    const bool activation = carries_activation(in.kind);
    const int producer = producing_stage(in.kind, in.stage);
    const int peer_stage = is_send(in.kind) ? consuming_stage(in.kind, in.stage) : producer;
    const RankId peer =
        peer_stage < 0 || peer_stage >= program_.stages
            ? RankId(kUnmatched)
            : program_.placement.rank_of(StageId(peer_stage), MicroBatchId(in.micro_batch));
    const Route wanted{.send_kind = activation ? ActionKind::SendF : ActionKind::SendB,
                       .stage = StageId(producer),
                       .source = is_send(in.kind) ? rank : peer,
                       .destination = is_send(in.kind) ? peer : rank};
    const std::size_t chain = 2 * static_cast<std::size_t>(producer) + (activation ? 1 : 0);
    // A rank's transfers of a stage mostly go to the same peer.
    std::uint32_t& last = last_route_[chain];
    const bool is_last = last != kNoRoute && program_.routes[last].source == wanted.source &&
                         program_.routes[last].destination == wanted.destination;
    if (!is_last) {
      const auto [known, is_new] =
          routes_.try_emplace(Ends{chain, wanted.source.value, wanted.destination.value},
                              static_cast<std::uint32_t>(program_.routes.size()));
      if (is_new) program_.routes.push_back(wanted);
      last = known->second;
    }
    in.route = last;
  }

  void join(InstructionId send, InstructionId receive) {
    Instruction& s = program_.code[send];
    Instruction& r = program_.code[receive];
    s.link = receive;
    r.link = send;
    const bool same = carries_activation(s.kind) == carries_activation(r.kind) &&
                      producing_stage(r.kind, r.stage) == s.stage && s.micro_batch == r.micro_batch;
    if (!same) {
      s.flags |= Instruction::kMismatch;
      r.flags |= Instruction::kMismatch;
    }
  }

  void match_by_tag() {
    // The first unmatched SEND of each tensor, by class.
    std::array<ByTensor<InstructionId>, 2> sends = {
        ByTensor<InstructionId>(program_.stages, program_.micro_batches, kNoInstruction),
        ByTensor<InstructionId>(program_.stages, program_.micro_batches, kNoInstruction)};
    const auto slot = [&](const Instruction& in) -> InstructionId& {
      return sends[carries_activation(in.kind) ? 1 : 0].at(producing_stage(in.kind, in.stage),
                                                           in.micro_batch);
    };
    for (InstructionId id = 0; id < program_.code.size(); ++id) {
      const Instruction& in = program_.code[id];
      if (is_send(in.kind) && slot(in) == kNoInstruction) slot(in) = id;
    }
    for (InstructionId id = 0; id < program_.code.size(); ++id) {
      const Instruction& in = program_.code[id];
      if (!is_recv(in.kind) || producing_stage(in.kind, in.stage) >= program_.stages) continue;
      InstructionId& send = slot(in);
      if (send == kNoInstruction || program_.code[send].link != kNoInstruction) continue;
      join(send, id);
    }
  }

  void match_by_position() {
    struct Meeting {
      std::vector<InstructionId> sends, receives;
    };
    /// What one communicator carries from rank to rank: single operations, and joined batches.
    struct PositionEdge {
      std::int32_t destination;
      bool gradients;  // apart from activations, under Channel::Direction
      std::array<Meeting, 2> meetings;
    };
    const bool by_direction =
        program_.policy.issue == Issue::Stream && program_.policy.channel == Channel::Direction;
    // Edges by source rank; a rank has few peers.
    std::vector<std::vector<PositionEdge>> edges(static_cast<std::size_t>(program_.ranks()));
    std::vector<PositionEdge*> of_route;
    const auto edge = [&](const Route& route) -> PositionEdge* {
      if (route.source.value < 0 || route.destination.value < 0) return nullptr;
      const bool gradients = by_direction && route.send_kind == ActionKind::SendB;
      for (PositionEdge& known : edges[static_cast<std::size_t>(route.source.value)]) {
        if (known.destination == route.destination.value && known.gradients == gradients)
          return &known;
      }
      return nullptr;
    };
    for (const Route& route : program_.routes) {
      if (route.source.value < 0 || route.destination.value < 0 || edge(route) != nullptr) continue;
      edges[static_cast<std::size_t>(route.source.value)].push_back(
          {route.destination.value, by_direction && route.send_kind == ActionKind::SendB, {}});
    }
    for (const Route& route : program_.routes) of_route.push_back(edge(route));
    const bool apart = program_.has_group_queues();
    for (InstructionId id = 0; id < program_.code.size(); ++id) {
      const Instruction& in = program_.code[id];
      if (in.route == kNoRoute || of_route[in.route] == nullptr) continue;
      const bool in_group = apart && program_.batch_of(id) != kNoBatch;
      Meeting& meeting = of_route[in.route]->meetings[in_group ? 1 : 0];
      (is_send(in.kind) ? meeting.sends : meeting.receives).push_back(id);
    }
    for (const auto& list : edges) {
      for (const PositionEdge& known : list) {
        for (const auto& [sends, receives] : known.meetings) {
          const std::size_t count = std::min(sends.size(), receives.size());
          for (std::size_t k = 0; k < count; ++k) join(sends[k], receives[k]);
        }
      }
    }
  }

  struct Ends {
    std::size_t chain = 0;  // kind and stage
    std::int64_t source = 0, destination = 0;

    bool operator==(const Ends&) const = default;
  };
  struct HashOfEnds {
    std::size_t operator()(const Ends& ends) const {
      std::uint64_t hash = ends.chain;
      for (const std::int64_t rank : {ends.source, ends.destination})
        hash = (hash ^ static_cast<std::uint64_t>(rank)) * 0x9E3779B97F4A7C15U;
      return hash ^ (hash >> 32U);
    }
  };

  Program& program_;
  std::vector<std::uint32_t> last_route_;  // by kind and stage
  std::unordered_map<Ends, std::uint32_t, HashOfEnds> routes_;
};

}  // namespace

void match_transfers(Program& program) { Matching(program).run(); }

}  // namespace pipewright::lowering
