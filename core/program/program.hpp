// The Program: an order with its communication and its policy, as check, sim
// and exec read it (docs/semantics.md). Plain data, immutable after lower();
// any number of threads may read it.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/order/action.hpp"
#include "core/order/call.hpp"
#include "core/order/comm_policy.hpp"
#include "core/order/parts.hpp"
#include "core/order/placement.hpp"
#include "core/order/sharding.hpp"

namespace pipewright {

/// Position of an instruction in Program::code.
using InstructionId = std::uint32_t;
inline constexpr InstructionId kNoInstruction = std::numeric_limits<InstructionId>::max();
inline constexpr std::uint32_t kNoRoute = std::numeric_limits<std::uint32_t>::max();
inline constexpr std::uint32_t kNoBatch = std::numeric_limits<std::uint32_t>::max();

/// 16 bytes, because a large Program holds tens of millions of them.
struct Instruction {
  /// Bits of `flags`.
  static constexpr std::uint8_t kPair = 1;  // overlapped: the second action is in Program::pairs
  static constexpr std::uint8_t kExtraInput =
      2;  // Program::extra_inputs has rows for this instruction
  static constexpr std::uint8_t kMismatch =
      4;  // a transfer end whose partner is for another tensor
  static constexpr std::uint8_t kOnComputeLane = 8;
  static constexpr std::uint8_t kAtStart = 16;  // a RECV issued at time 0
  static constexpr std::uint8_t kJoinsRun =
      32;  // grouped: waits for every member of the run right before it
  static constexpr std::uint8_t kNotPassed = 64;  // behind the place where its host stands (§2.2)
  static constexpr std::uint8_t kRendezvous = 128;  // a SEND that is never eager (§2.2, §4.3)

  ActionKind kind = ActionKind::F;
  std::uint8_t flags = 0;
  std::uint16_t stage = 0;
  std::uint32_t micro_batch = 0;  // of a call its number in Program::calls
  /// Computation: the RECV on this rank that brings its input (of a pair: of
  /// its first action). Wait: what it waits for. Transfer end: its partner. kNoInstruction: none.
  InstructionId link = kNoInstruction;
  /// Transfer end: its route. Member of a collective: the index of that. Else kNoRoute.
  std::uint32_t route = kNoRoute;

  bool has(std::uint8_t flag) const { return (flags & flag) != 0; }
  /// A member of Program::collectives[route].
  bool in_collective() const { return route != kNoRoute && !is_transfer(kind); }
  /// A transfer end or a member of a collective: it waits for other ranks and is no computation.
  bool is_communication() const { return route != kNoRoute || is_transfer(kind); }
};

/// What a transfer's cost depends on. One entry for each (kind, producing
/// stage, source rank, destination rank) that occurs; for each size of a SEND that names its peer.
struct Route {
  ActionKind send_kind = ActionKind::SendF;  // SendF, SendB or NamedSend
  StageId stage;                             // the producing stage; 0 of a NamedSend
  RankId source, destination;
  std::int64_t named_bytes = 0;  // of a NamedSend
};

/// What a part of an action takes (§3.4): of the action's cost what lies between two sums of
/// weights; of a call from 0 to its weight.
struct PartWork {
  StageId stage;
  ActionKind kind = ActionKind::F;
  std::int64_t before = 0, up_to = 0, of_all = 1;
  bool beside = false;  // a call: the part behind it does not wait for it
};

/// REDUCE_GRADs, or UNSHARDs, of the replicas of a stage, or REDUCE_NORMs, or REDUCE_TIEDs, or
/// calls of a group, that start and end together (docs/semantics.md §3.2, §3.3).
struct Collective {
  struct Member {
    RankId rank;
    InstructionId instruction = kNoInstruction;
  };
  ActionKind kind = ActionKind::ReduceGrad;  // of calls that differ the first member's
  StageId stage;                             // 0 where the kind is of none
  bool sharded = false;  // the stage has UNSHARDs: each replica owns a part of its parameters
  /// REDUCE_GRAD of a sharded stage: the members, one group after another, sum inside each group
  /// what every one of them keeps, and then the parts of all groups.
  int groups = 1;
  std::vector<Member> members;  // by rank; two or more, unless some are missing
  int block = 1;  // of so many consecutive ranks the first counts for its time (§3.5)
  // Of calls alone:
  std::vector<RankId> missing = {};  // ranks of the group that have no such call
  bool differ = false;               // members are not for the same
  std::int64_t call_bytes = 0;       // the largest member's
  int devices = 1;                   // that each member stands for (§3.4)
  int stride = 1;                    // from one of these devices to the next
  PartWork given = {};               // of the largest weight; none: up_to is 0

  bool can_start() const { return missing.empty() && !differ; }
  std::int64_t size() const { return static_cast<std::int64_t>(members.size()) * devices; }
};

/// Where the host of a rank stops for ever (§2.2): the first end of a connection whose other side
/// never comes.
struct HostStand {
  InstructionId at = kNoInstruction;         // kNoInstruction: the host passes the whole list
  InstructionId waits_for = kNoInstruction;  // the other rank's first end; kNoInstruction: none
};

struct Program {
  /// Instructions of rank r, in program order: code[rank_begin[r]] …
  /// code[rank_begin[r+1] - 1].
  std::vector<Instruction> code;
  std::vector<InstructionId> rank_begin;
  std::vector<Route> routes;
  std::vector<Collective> collectives;  // by stage, kind, turn; then calls, by group and turn
  std::vector<Call> calls;              // by number; those of the order, then parts
  std::vector<PartWork> works;          // of the last calls, which are parts
  /// Whose part an instruction is, sorted by instruction; parts stand right before their action, or
  /// the pair that it is one of.
  std::vector<std::pair<InstructionId, Action>> part_of;
  std::vector<MeshAxis> mesh;     // of the devices that a rank stands for (§3.4)
  std::vector<MeshAxis> devices;  // that consecutive ranks are (§3.5)
  Sharding sharding;              // what replicas divide among them (§3.2)
  /// Second action of each overlapped pair, sorted by instruction.
  std::vector<std::pair<InstructionId, Action>> pairs;
  /// Inputs beyond Instruction::link that program order alone does not give,
  /// (instruction, input), sorted; of the same rank.
  std::vector<std::pair<InstructionId, InstructionId>> extra_inputs;
  /// Weight version by instruction, of a pair that of its first action; -1: none is named. Empty
  /// where no action names one.
  std::vector<std::int32_t> versions;
  /// Transfer ends of batches that are one operation under the policy (§2.4), sorted, with the
  /// number of their batch; of one rank, one behind the other. Empty where there is none.
  std::vector<std::pair<InstructionId, std::uint32_t>> joined;

  CommPolicy policy;
  Placement placement;
  int stages = 0;
  int micro_batches = 0;
  bool fragment = false;
  /// The order held no transfer end: all of them are lowering's.
  bool transfers_added = false;
  /// Computations name weight versions: what OPT and REDUCE_GRAD take stands before them (§3.1).
  bool asynchronous = false;
  /// By rank; empty where every host passes its whole list.
  std::vector<HostStand> host_stands;

  bool has_collectives() const { return !collectives.empty(); }
  int ranks() const { return static_cast<int>(rank_begin.size()) - 1; }
  RankId rank_of(InstructionId id) const;
  std::span<const Instruction> rank_code(RankId rank) const {
    return {code.data() + rank_begin[static_cast<std::size_t>(rank.value)],
            code.data() + rank_begin[static_cast<std::size_t>(rank.value) + 1]};
  }
  /// The instruction as the cell it came from ("0SEND_F1",
  /// "(0F7;7B3)OVERLAP_F_B").
  Cell cell(InstructionId id) const;
  std::string text(InstructionId id) const;
  const Call& call(const Instruction& in) const { return calls[in.micro_batch]; }
  std::span<const std::pair<InstructionId, InstructionId>> extra_inputs_of(InstructionId id) const;
  /// nullptr where it is no part.
  const Action* action_of_part(InstructionId id) const;
  /// An action, or a pair, that stands right after its parts.
  bool ends_parts(InstructionId id) const;
  /// Of an instruction that is a part.
  const PartWork& work(const Instruction& in) const {
    return works[in.micro_batch - (calls.size() - works.size())];
  }
  /// The number of its batch in `joined`; kNoBatch: it is an operation of its own.
  std::uint32_t batch_of(InstructionId id) const;
  /// Whether joined batches have a communicator apart from single operations (§2.4).
  bool has_group_queues() const {
    return policy.batches == Batches::Mixed && policy.issue == Issue::Stream &&
           policy.channel != Channel::Rank;
  }
};

/// The lanes of a Program: the compute lane of each rank, the queue of each transfer end that is
/// not on it (docs/semantics.md §2.1), the collective lane of the members that are not on it, and
/// the lines of calls (§3.3).
/// Lanes of a rank are numbered by the place of their first instruction, the compute lane being 0.
/// Built on demand, O(instructions).
struct LaneTable {
  std::vector<std::uint32_t> lane_of;  // by instruction
  std::vector<RankId> rank_of_lane;    // by lane; lanes are sorted by rank, then number
  std::vector<std::uint32_t>
      rank_lane_begin;  // lanes of rank r: [rank_lane_begin[r], rank_lane_begin[r+1])
  std::vector<InstructionId> instructions;  // of lane l, in order: [lane_begin[l], lane_begin[l+1])
  std::vector<std::uint32_t> lane_begin;

  std::uint32_t count() const { return static_cast<std::uint32_t>(rank_of_lane.size()); }
  std::span<const InstructionId> instructions_of(std::uint32_t lane) const {
    return {instructions.data() + lane_begin[lane], instructions.data() + lane_begin[lane + 1]};
  }
  int number_of(std::uint32_t lane) const {
    return static_cast<int>(lane -
                            rank_lane_begin[static_cast<std::size_t>(rank_of_lane[lane].value)]);
  }
};
LaneTable lane_table(const Program& program);

/// Transfer ends and members of collectives of a rank, those that stand in queues, in the order in
/// which they are issued: RECVs under at-start first, then program order.
std::vector<InstructionId> issue_order(const Program& program, RankId rank);
/// For display: "compute", "to 2", "from 1", "peer 3", "comm", "activations", "gradients",
/// "2SEND_F0", "mixed batches", "collectives".
std::string lane_name(const Program& program, const LaneTable& table, std::uint32_t lane);

/// True if it holds no I, W, B, SEND_B and RECV_B.
bool is_forward_only(const Program& program);

}  // namespace pipewright
