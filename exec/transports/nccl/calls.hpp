// The calls of NCCL that each rank makes for a step, in the order in which its host makes them,
// with the events that order the streams. Plain data: `run --transport nccl --dry-run` prints it,
// exec/transports/nccl/read_back.hpp turns it into a Program again for check to judge, and the
// transport walks it. Its REDUCE_GRADs and UNSHARDs are over the array of all gradients, or
// weights, with its gaps for alignment (beside a reduce-scatter, an all-reduce of running
// statistics); it makes calls that follow one another on different communicators between an
// ncclGroupStart and End, which changes nothing but what they cost; and in a step whose gradients
// are looked at UNSHARDs gather these too. Nothing here needs a GPU.
//
// Where replicas hold different experts a REDUCE_GRAD sums what all have, and then, by a call of
// its own, the experts that several of them hold.
//
// A RING_SEND of several arrays is a send and a receive of each in one group.
//
// An ALL_TO_ALL is a group of a send to each other member and a receive from each, of as many rows
// as the router has chosen; `count` is what they are where rows go evenly. Where members do not
// know yet what comes, the same goes in front of it with the counts, and the host waits for these.
//
// A rank has a stream that computes and, under `stream`, one for each queue of docs/semantics.md
// §2.1 and one for its collectives. A call's stream first waits for the events in `waits_for`.
// An event may only be waited for once it was recorded (an event that never was counts as
// complete), so what a call waits for stands before it; where a list has a SEND before what it
// sends, the call comes later than the list has it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/costs/costs.hpp"
#include "core/order/action.hpp"
#include "core/order/parts.hpp"
#include "core/order/sharding.hpp"
#include "exec/transports/nccl/by_hosts.hpp"
#include "exec/transports/nccl/communicators.hpp"

namespace pipewright::exec::nccl {

enum class CallKind : std::uint8_t {
  Compute,  // no call of NCCL: what the compute stream does between them
  GroupStart,
  GroupEnd,
  Send,
  Recv,
  AllReduce,
  ReduceScatter,
  AllGather,
  AllToAll,  // to each member, and from each, as one group
  Broadcast,
  RingSend,  // to the next member, and from the one before, as one group
  Hosts,     // no call of NCCL: a collective that goes by way of the hosts
};
std::string_view to_string(CallKind kind);  // "ncclSend", …; "compute", "hosts"

struct Call {
  CallKind kind = CallKind::Compute;
  Cell cell;                                   // what it is for; of GroupStart and GroupEnd nothing
  InstructionId instruction = kNoInstruction;  // the same in the Program
  std::uint32_t communicator = kNoCommunicator;
  /// Of what the order says by name (a collective of a group, a transfer to a rank), and of each
  /// part of an action: what it says, and whose part it is.
  std::optional<pipewright::Part> part = {};
  std::optional<Action> part_of = {};
  /// A second call of the REDUCE_GRAD right before it, for the experts.
  bool of_experts = false;
  int peer = -1;             // Send, Recv: member index
  std::int64_t count = 0;    // elements, as NCCL counts them; 0: the size is not known
  int element_bytes = 4;     // float32; 8: float64
  std::uint32_t stream = 0;  // index into RankCalls::streams
  /// Places in RankCalls::calls, earlier ones, on other streams.
  std::vector<std::uint32_t> waits_for;
};

struct RankCalls {
  std::vector<std::string> streams;  // 0 computes
  std::vector<Call> calls;
  /// What makes it impossible to call everything before it is waited for. Such a step gets stuck.
  std::vector<std::string> problems;
};

struct StepCalls {
  CommunicatorPlan plan;
  std::vector<RankCalls> ranks;
  /// Axes along which consecutive ranks differ that are devices of one pipeline rank: groups are
  /// called like them.
  std::vector<MeshAxis> devices;
  Sharding sharding;  // what replicas divide, which says what each of a stage's sums is of
  int in_flight = 0;  // CommPolicy::in_flight; its waits are among `waits_for`
};

/// "0SEND_F1"; "ALL_REDUCE(tp:a:4x8:float32) of 0F0"; "0REDUCE_GRAD of experts".
std::string text_of(const Call& call);

/// `costs` gives the sizes. Throws InputError as communicators_of() does. O(instructions).
StepCalls calls_of(const Program& program, const CostTable& costs, const ByHosts& hosts = {});

}  // namespace pipewright::exec::nccl
