// One computation, one end of a transfer or one call (core/order/call.hpp), and its text form in
// PyTorch's grammar: "2F0", "1SEND_B3", "4F0@3" (weight version 3).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/units.hpp"

namespace pipewright {

enum class ActionKind : std::uint8_t {
  F,          // forward of a stage
  I,          // gradient of the stage's inputs
  W,          // gradient of the stage's weights
  B,          // I and W fused
  SendF,      // activation to the next stage; written on the producing stage
  RecvF,      // activation from the previous stage; written on the consuming stage
  SendB,      // gradient to the previous stage
  RecvB,      // gradient from the next stage
  WaitSendF,  // until that SEND_F has ended; written on the sending stage
  WaitSendB,  // until that SEND_B has ended
  // From here on without a micro-batch.
  Unshard,         // gather the stage's sharded weights
  Reshard,         // drop them again
  ReduceGrad,      // reduce the stage's gradients over its replicas
  WaitReduceGrad,  // until that REDUCE_GRAD has ended
  Opt,             // update of all weights of the rank (no stage, no micro-batch)
  ReduceNorm,      // norm of the gradients of all ranks (no stage, no micro-batch)
  ReduceTied,      // sum of the gradients of weights that stages share (no stage, no micro-batch)
  // Calls (docs/semantics.md §3.3).
  AllReduce,
  AllGather,
  ReduceScatter,
  AllToAll,
  Broadcast,
  RingSend,   // each member to the next one, the last to the first
  NewGroup,   // a collective of all ranks
  HostSync,   // until all that the rank has issued has ended
  NamedSend,  // "SEND": to the rank that it names
  NamedRecv,
  Part,  // a computation of an action that consists of parts (§3.4): a Program holds it, no order
  Idle,  // an empty cell of an order: it takes a turn in lowering and is then dropped; no Program
         // holds it
};
inline constexpr int kActionKinds = 29;

/// One bit a kind: these questions are asked for each instruction.
constexpr std::uint32_t kind_bit(ActionKind k) { return 1U << static_cast<unsigned>(k); }
static_assert(kActionKinds <= 32);
inline constexpr std::uint32_t kSends =
    kind_bit(ActionKind::SendF) | kind_bit(ActionKind::SendB) | kind_bit(ActionKind::NamedSend);
inline constexpr std::uint32_t kRecvs =
    kind_bit(ActionKind::RecvF) | kind_bit(ActionKind::RecvB) | kind_bit(ActionKind::NamedRecv);
constexpr bool is_send(ActionKind k) { return (kind_bit(k) & kSends) != 0; }
constexpr bool is_recv(ActionKind k) { return (kind_bit(k) & kRecvs) != 0; }
constexpr bool is_transfer(ActionKind k) { return (kind_bit(k) & (kSends | kRecvs)) != 0; }
/// An Action of such a kind has the number of its Call as micro-batch.
constexpr bool is_call(ActionKind k) {
  return k >= ActionKind::AllReduce && k <= ActionKind::NamedRecv;
}
/// A transfer end between neighbouring stages.
constexpr bool is_pipeline_transfer(ActionKind k) {
  return k >= ActionKind::SendF && k <= ActionKind::RecvB;
}
/// A call of the ranks of a group.
constexpr bool is_group_collective(ActionKind k) {
  return k >= ActionKind::AllReduce && k <= ActionKind::RingSend;
}
/// F, I, W or B: the kinds that a schedule orders.
constexpr bool is_compute(ActionKind k) { return k <= ActionKind::B; }
/// Holds up the computations behind it until a SEND or REDUCE_GRAD of its rank has ended.
constexpr bool is_wait_for_send(ActionKind k) {
  return k == ActionKind::WaitSendF || k == ActionKind::WaitSendB;
}
constexpr bool is_wait(ActionKind k) {
  return is_wait_for_send(k) || k == ActionKind::WaitReduceGrad;
}
/// What a wait waits for.
constexpr ActionKind awaited_kind(ActionKind wait) {
  if (wait == ActionKind::WaitReduceGrad) return ActionKind::ReduceGrad;
  return wait == ActionKind::WaitSendF ? ActionKind::SendF : ActionKind::SendB;
}
/// A collective of all ranks that have one, whatever they compute.
constexpr bool is_of_all(ActionKind k) {
  return k == ActionKind::ReduceNorm || k == ActionKind::ReduceTied;
}
constexpr bool has_stage(ActionKind k) { return k < ActionKind::Opt; }
constexpr bool has_micro_batch(ActionKind k) { return k <= ActionKind::WaitSendB; }

/// "F", "SEND_F", "REDUCE_GRAD", …
std::string_view to_string(ActionKind kind);

struct Action {
  ActionKind kind = ActionKind::F;
  StageId stage;
  MicroBatchId micro_batch;   // a call's number; else 0 where has_micro_batch() is false
  std::int32_t version = -1;  // weight version (docs/semantics.md §3.1); -1: none is named

  bool operator==(const Action&) const = default;
};
/// The version is a name of the weights and not of the action.
inline bool same_action(const Action& a, const Action& b) {
  return a.kind == b.kind && a.stage == b.stage && a.micro_batch == b.micro_batch;
}

/// One cell of an order: an action, an overlapped pair of two, or a member of a batch of transfer
/// ends, which is written as one cell and held as several.
struct Cell {
  Action action;
  std::optional<Action> partner;
  bool batched = false;  // in one batch with the cell behind it

  bool operator==(const Cell&) const = default;
};

/// Of a call its kind alone; the order and the Program have its text.
std::string to_string(const Action& action);
/// "(0F7;7B3)OVERLAP_F_B" for a pair.
std::string to_string(const Cell& cell);

/// Reads one cell that is no batch and no call; nullopt where the text is not one. Spaces around
/// every part are allowed.
std::optional<Cell> parse_cell(std::string_view text);

}  // namespace pipewright
