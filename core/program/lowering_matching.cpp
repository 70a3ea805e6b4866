#include "core/program/lowering.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>

namespace pipewright::lowering {
namespace {

constexpr std::int32_t kUnmatched = -1;
constexpr std::size_t kNoMeeting = SIZE_MAX;
constexpr std::size_t kOthersAhead = 24;

class Matching {
 public:
  explicit Matching(Program& program)
      : program_(program),
        apart_(program.has_group_queues()),
        last_route_(2 * static_cast<std::size_t>(program.stages) + 2, kNoRoute),
        edges_from_(static_cast<std::size_t>(program.ranks())) {}

  void run() {
    const bool by_tag =
        program_.policy.issue == Issue::Stream && program_.policy.channel == Channel::Tag;
    for (int r = 0; r < program_.ranks(); ++r) {
      for (InstructionId id = program_.rank_begin[static_cast<std::size_t>(r)];
           id < program_.rank_begin[static_cast<std::size_t>(r) + 1]; ++id) {
        Instruction& in = program_.code[id];
        if (!is_transfer(in.kind)) continue;
        find_route(RankId(r), in);
        if (!by_tag) meet(id, in);
      }
    }
    if (by_tag) match_by_tag();
  }

 private:
  void find_route(RankId rank, Instruction& in) {
    if (is_call(in.kind)) return find_named_route(rank, in);
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

  void find_named_route(RankId rank, Instruction& in) {
    const Call& call = program_.call(in);
    const bool sends = is_send(in.kind);
    const Route wanted{.send_kind = ActionKind::NamedSend,
                       .stage = {},
                       .source = sends ? rank : call.peer,
                       .destination = sends ? call.peer : rank,
                       .named_bytes = bytes_of(call)};
    const auto [known, is_new] =
        named_routes_.try_emplace({wanted.source, wanted.destination, wanted.named_bytes},
                                  static_cast<std::uint32_t>(program_.routes.size()));
    if (is_new) program_.routes.push_back(wanted);
    in.route = known->second;
  }

  bool carry_the_same(const Instruction& s, const Instruction& r) const {
    if (is_call(s.kind) || is_call(r.kind)) {
      return is_call(s.kind) && is_call(r.kind) &&
             difference(program_.call(s), program_.call(r)).empty();
    }
    return carries_activation(s.kind) == carries_activation(r.kind) &&
           producing_stage(r.kind, r.stage) == s.stage && s.micro_batch == r.micro_batch;
  }

  void join(InstructionId send, InstructionId receive) {
    Instruction& s = program_.code[send];
    Instruction& r = program_.code[receive];
    s.link = receive;
    r.link = send;
    if (!carry_the_same(s, r)) {
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
      if (in.kind != ActionKind::SendF && in.kind != ActionKind::SendB) continue;
      if (slot(in) == kNoInstruction) slot(in) = id;
    }
    for (InstructionId id = 0; id < program_.code.size(); ++id) {
      Instruction& in = program_.code[id];
      if (in.kind != ActionKind::RecvF && in.kind != ActionKind::RecvB) continue;
      if (producing_stage(in.kind, in.stage) >= program_.stages) continue;
      const InstructionId send = slot(in);
      if (send == kNoInstruction || program_.code[send].link != kNoInstruction) continue;
      in.link = send;  // of one tensor, so they carry the same
      program_.code[send].link = id;
    }
    match_by_name();
  }

  /// The k-th SEND of a name from rank to rank meets the k-th such RECV.
  void match_by_name() {
    struct Named {
      std::vector<InstructionId> sends, receives;
    };
    std::map<std::tuple<RankId, RankId, std::string>, Named> named;
    for (InstructionId id = 0; !program_.calls.empty() && id < program_.code.size(); ++id) {
      const Instruction& in = program_.code[id];
      if (!is_call(in.kind) || !is_transfer(in.kind)) continue;
      const Route& route = program_.routes[in.route];
      Named& ends = named[{route.source, route.destination, program_.call(in).data}];
      (is_send(in.kind) ? ends.sends : ends.receives).push_back(id);
    }
    for (const auto& [name, ends] : named) {
      const std::size_t count = std::min(ends.sends.size(), ends.receives.size());
      for (std::size_t k = 0; k < count; ++k) join(ends.sends[k], ends.receives[k]);
    }
  }

  /// The ends of one communicator from rank to rank whose other ends have not been seen yet, in
  /// order; of one side.
  struct Meeting {
    std::vector<InstructionId> waiting;  // from `first` on
    std::size_t first = 0;
    bool sends = false;
  };
  /// What goes from a rank to another one.
  struct PositionEdge {
    std::int64_t destination;
    ActionKind carries;   // each kind of SEND by itself, under Channel::Direction
    std::size_t meeting;  // of single operations; that of joined batches is the next one
  };

  /// The k-th SEND meets the k-th RECV.
  void meet(InstructionId id, const Instruction& in) {
    while (meeting_of_route_.size() < program_.routes.size())
      meeting_of_route_.push_back(meeting_of(program_.routes[meeting_of_route_.size()]));
    std::size_t at = meeting_of_route_[in.route];
    if (at == kNoMeeting) return;
    if (apart_ && program_.batch_of(id) != kNoBatch) ++at;
    Meeting& meeting = meetings_[at];
    const bool sends = is_send(in.kind), none_waits = meeting.first == meeting.waiting.size();
    if (none_waits || meeting.sends == sends) {
      meeting.sends = sends;
      meeting.waiting.push_back(id);
      return;
    }
    const InstructionId other = meeting.waiting[meeting.first++];
    // The next ones of that list are a few instructions further.
    __builtin_prefetch(program_.code.data() + other + kOthersAhead, 1);
    sends ? join(id, other) : join(other, id);
  }

  /// kNoMeeting: an end of it is on no rank.
  std::size_t meeting_of(const Route& route) {
    if (route.source.value < 0 || route.destination.value < 0) return kNoMeeting;
    const bool by_direction =
        program_.policy.issue == Issue::Stream && program_.policy.channel == Channel::Direction;
    auto& edges = edges_from_[static_cast<std::size_t>(route.source.value)];
    for (const PositionEdge& known : edges) {
      const bool carries = !by_direction || known.carries == route.send_kind;
      if (known.destination == route.destination.value && carries) return known.meeting;
    }
    edges.push_back({route.destination.value, route.send_kind, meetings_.size()});
    meetings_.resize(meetings_.size() + 2);
    return edges.back().meeting;
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
  const bool apart_;                                   // joined batches meet only each other
  std::vector<std::uint32_t> last_route_;              // by kind and stage
  std::vector<std::vector<PositionEdge>> edges_from_;  // by source; a rank has few peers
  std::vector<Meeting> meetings_;
  std::vector<std::size_t> meeting_of_route_;
  std::unordered_map<Ends, std::uint32_t, HashOfEnds> routes_;
  std::map<std::tuple<RankId, RankId, std::int64_t>, std::uint32_t> named_routes_;  // by size
};

}  // namespace

void match_transfers(Program& program) { Matching(program).run(); }

}  // namespace pipewright::lowering
