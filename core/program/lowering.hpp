// The steps of lower(), each in a file of its own (docs/semantics.md §1, §3, §4.1). Not part of the
// public interface.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <memory_resource>
#include <utility>
#include <vector>

#include "core/base/large_pages.hpp"
#include "core/order/order.hpp"
#include "core/program/program.hpp"

namespace pipewright::lowering {

/// A dense table over (stage, micro-batch).
template <class Value>
class ByTensor {
 public:
  ByTensor(int stages, int micro_batches, Value initial)
      : micro_batches_(static_cast<std::size_t>(micro_batches)) {
    assign_in_large_pages(values_, static_cast<std::size_t>(stages) * micro_batches_, initial);
  }
  const Value& at(std::int64_t stage, std::int64_t micro_batch) const {
    return values_[static_cast<std::size_t>(stage) * micro_batches_ +
                   static_cast<std::size_t>(micro_batch)];
  }
  Value& at(std::int64_t stage, std::int64_t micro_batch) {
    return values_[static_cast<std::size_t>(stage) * micro_batches_ +
                   static_cast<std::size_t>(micro_batch)];
  }

 private:
  std::size_t micro_batches_;
  std::vector<Value> values_;
};

/// The stage whose output a transfer end carries; not of calls.
inline int producing_stage(ActionKind kind, int stage) {
  if (kind == ActionKind::RecvF) return stage - 1;
  if (kind == ActionKind::RecvB) return stage + 1;
  return stage;
}
/// The stage that takes what a transfer end carries; not of calls.
inline int consuming_stage(ActionKind kind, int stage) {
  if (kind == ActionKind::SendF) return stage + 1;
  if (kind == ActionKind::SendB) return stage - 1;
  return stage;
}
inline bool carries_activation(ActionKind kind) {
  return kind == ActionKind::SendF || kind == ActionKind::RecvF;
}
/// The kind of SEND to which a transfer end belongs.
inline ActionKind send_kind(ActionKind kind) {
  if (is_call(kind)) return ActionKind::NamedSend;
  return carries_activation(kind) ? ActionKind::SendF : ActionKind::SendB;
}

/// Instructions of one rank before matching.
using Row = std::pmr::vector<Instruction>;

/// The rows of all ranks. For a pair, `link` is the index of its second
/// action in `partners`; for a transfer end of a batch, the number of the batch.
struct Draft {
  /// Empty rows with room for so many instructions each.
  explicit Draft(const std::vector<std::size_t>& sizes);

  std::unique_ptr<std::pmr::memory_resource> memory;  // of large rows
  std::vector<Row> ranks;
  std::vector<Action> partners;
  std::vector<std::vector<std::int32_t>>
      versions;  // beside `ranks`; empty where the order names none
};

/// What is added for the update (§1.1).
struct Updates {
  bool wanted = false;
  bool sharded = false;       // UNSHARD of replicated stages after it
  Sharding sharding;          // what else is divided, where they are sharded
  bool clips = false;         // REDUCE_NORM before every OPT
  bool early = false;         // each REDUCE_GRAD after the last W or B of its stage
  std::vector<StageId> tied;  // REDUCE_TIED before the OPT of the ranks that compute these
};

/// The parts of actions as instructions (§3.4).
class PartLists {
 public:
  /// Appends the parts to the Program's calls.
  PartLists(const Order& order, Program& program);
  /// Appends those of an action, or of a pair, to the Program's code.
  void append(const Action& action, const Action* partner, Program& program);

 private:
  using List = std::vector<Instruction>;
  const std::vector<List>& turns_of(const Action& action, Program& program);

  using Table = std::map<std::pair<std::int32_t, ActionKind>, std::vector<List>>;

  Table turns_;  // by stage and kind
  Table whole_;  // the one computation of actions without parts, beside one with parts in a pair
};

/// The steps 1, 2, 4 and 6 together, for an order of computations alone whose transfers match as
/// they are added, as the registry's do; there is nothing for 3 and 7. False, with the Program as
/// it was: the order or the policy is not like that. O(instructions), in two walks along the lists.
bool lower_at_once(const Order& order, const Updates& updates, Program& program);

/// What the kind of an instruction and its place alone say of its lane and start (§1.2, §2);
/// `after_run`: of transfers.
inline std::uint8_t flags_by_place(const CommPolicy& policy, ActionKind kind, bool after_run) {
  const bool transfer = is_transfer(kind);
  std::uint8_t flags = 0;
  if (!transfer || policy.issue == Issue::Inline) flags |= Instruction::kOnComputeLane;
  if (!transfer && after_run && policy.issue == Issue::Grouped) flags |= Instruction::kJoinsRun;
  if (is_recv(kind) && !is_call(kind) && policy.issue == Issue::Stream &&
      policy.post == Post::AtStart)
    flags |= Instruction::kAtStart;
  return flags;
}

/// What the steps ask of an order, found in one look at its cells.
struct OrderFacts {
  bool transfers = false;     // Order::has_transfers()
  bool versions = false;      // an action names one
  bool asynchronous = false;  // names_versions()
};
OrderFacts facts_of(const Order& order);

/// 1. Which instructions, in which order (§1.1).
Draft list_instructions(const Order& order, const OrderFacts& facts, const Updates& updates);
/// The rest of 1, once the order's own instructions and its transfers are listed.
void append_updates(const Order& order, const Updates& updates, Draft& draft);
/// By stage: whether REDUCE_GRADs, UNSHARDs and RESHARDs are to be added to a rank's list.
struct StagesOfRank {
  std::vector<std::uint8_t> reduce, gather;
};
/// Of append_updates(), where replicas divide gradients and weights.
void divide_among_replicas(std::size_t rank, const StagesOfRank& stages, const Updates& updates,
                           Draft& draft);
/// By rank the first one of its pipeline: ranks that compute a common micro-batch are of one.
std::vector<std::size_t> pipelines_of(const Draft& draft, std::size_t micro_batches);
/// Whether the two ranks compute the same kinds and stages one after another.
bool compute_alike(const Draft& draft, std::size_t one, std::size_t other);
/// 2. Where receives are posted and how runs are ordered (§1.2, §1.3). So many ranks in a row are
/// the devices of one.
void arrange(Draft& draft, const CommPolicy& policy, std::size_t devices);
/// 3. Which batches are one operation (§2.4), of those that Program::joined holds.
void join_batches(Program& program);
/// 4. Routes, and the partner of each transfer end (§4.1).
void match_transfers(Program& program);
/// 5. What connections, and buffers without a copy, ask for (§2.2).
void connect_ranks(Program& program);
/// 6. What each instruction waits for beyond its place in the lane (§3).
void find_inputs(Program& program);
/// 7. The same of parts and of the actions behind them (§3.4).
void chain_parts(Program& program);

}  // namespace pipewright::lowering
