// The cost table resolved for one Program: what the engine looks up for each instruction.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/costs/costs.hpp"
#include "core/costs/factor.hpp"
#include "core/program/program.hpp"

namespace pipewright::sim {

/// What a simulation takes in place of what the table says; what is empty is the table's.
struct OwnTimes {
  /// By instruction, in ns. Those of transfer ends and of members of collectives are not looked at.
  std::span<const std::int64_t> compute_ns = {};
  std::span<const std::int64_t> collective_ns = {};  // by collective of the Program
  /// By route of the Program: what multiplies the latency of its messages and their bytes on the
  /// way (not those that credit counts).
  std::span<const Factor> messages = {};
};

class Durations {
 public:
  /// What `own` refers to must outlive this.
  Durations(const Program& program, const CostTable& costs, const OwnTimes& own = {});

  /// Of a computation, in ns.
  std::int64_t compute(InstructionId id) const {
    if (!own_.compute_ns.empty()) return own_.compute_ns[id];
    if (!program_.part_of.empty()) return slow(id);
    const Instruction& in = program_.code[id];
    if (in.kind == ActionKind::Opt) {
      return update_ns_[static_cast<std::size_t>(program_.rank_of(id).value)];
    }
    return in.has(Instruction::kPair) ? slow(id) : plain(id, in);
  }
  /// The same when the caller knows that it is neither a pair nor OPT, nor has parts.
  std::int64_t plain(InstructionId id, const Instruction& in) const {
    if (by_action_) return of_action(id, in);
    return by_kind_[static_cast<std::size_t>(in.kind) * stages_ + in.stage];
  }
  /// Of an overlapped pair: its first action, and the second one from Program::pairs.
  std::int64_t pair(InstructionId id, const Instruction& first, const Action& second) const {
    if (!own_.compute_ns.empty()) return own_.compute_ns[id];
    if (costs_.overlapped_pair.value > 0 || !costs_.pairs.empty() || costs_.actions != nullptr)
      return costs_.compute_time(action_of(first), &second).value;
    return plain(id, first) + by_kind_[static_cast<std::size_t>(second.kind) * stages_ +
                                       static_cast<std::size_t>(second.stage.value)];
  }
  std::int64_t slow(InstructionId id) const { return costs_.duration(program_, id).value; }

  /// By collective.
  const std::vector<std::int64_t>& collective_ns() const { return collective_ns_; }
  /// By route: latency + bytes / bandwidth; the message's bytes.
  const std::vector<std::int64_t>& route_ns() const { return route_ns_; }
  const std::vector<std::int64_t>& route_bytes() const { return route_bytes_; }
  Factor messages_of(std::uint32_t route) const {
    return own_.messages.empty() ? Factor{} : own_.messages[route];
  }

 private:
  static Action action_of(const Instruction& in) {
    return {.kind = in.kind,
            .stage = StageId(in.stage),
            .micro_batch = MicroBatchId(static_cast<std::int64_t>(in.micro_batch))};
  }

  std::int64_t of_action(InstructionId id, const Instruction& in) const {
    return own_.compute_ns.empty() ? costs_.compute_time(action_of(in)).value : own_.compute_ns[id];
  }

  const Program& program_;
  const CostTable& costs_;
  OwnTimes own_;
  bool by_action_;  // not by kind and stage alone
  std::size_t stages_;
  std::vector<std::int64_t> by_kind_;    // kind * stages + stage
  std::vector<std::int64_t> update_ns_;  // by rank
  std::vector<std::int64_t> route_ns_, route_bytes_, collective_ns_;
};

}  // namespace pipewright::sim
