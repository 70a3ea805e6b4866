// The cost table resolved for one Program: what the engine looks up for each instruction.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/costs/costs.hpp"
#include "core/program/program.hpp"

namespace pipewright::sim {

class Durations {
 public:
  /// `own`, if not empty: the duration of each instruction in ns, instead of the table's. It must
  /// outlive this. plain() and pair() ignore it, so it is for callers of compute() alone.
  Durations(const Program& program, const CostTable& costs, std::span<const std::int64_t> own = {});

  /// Of a computation, in ns.
  std::int64_t compute(InstructionId id) const {
    if (!own_.empty()) return own_[id];
    if (!program_.part_of.empty()) return slow(id);
    const Instruction& in = program_.code[id];
    if (in.kind == ActionKind::Opt) {
      return update_ns_[static_cast<std::size_t>(program_.rank_of(id).value)];
    }
    return in.has(Instruction::kPair) ? slow(id) : plain(in);
  }
  /// The same when the caller knows that it is neither a pair nor OPT.
  std::int64_t plain(const Instruction& in) const {
    if (costs_.actions != nullptr) return costs_.compute_time(action_of(in)).value;
    return by_kind_[static_cast<std::size_t>(in.kind) * stages_ + in.stage];
  }
  /// Of an overlapped pair: its first action, and the second one from Program::pairs.
  std::int64_t pair(const Instruction& first, const Action& second) const {
    if (costs_.overlapped_pair.value > 0 || !costs_.pairs.empty() || costs_.actions != nullptr)
      return costs_.compute_time(action_of(first), &second).value;
    return plain(first) + by_kind_[static_cast<std::size_t>(second.kind) * stages_ +
                                   static_cast<std::size_t>(second.stage.value)];
  }
  std::int64_t slow(InstructionId id) const { return costs_.duration(program_, id).value; }

  /// By collective.
  const std::vector<std::int64_t>& collective_ns() const { return collective_ns_; }
  /// By route: latency + bytes / bandwidth; the message's bytes.
  const std::vector<std::int64_t>& route_ns() const { return route_ns_; }
  const std::vector<std::int64_t>& route_bytes() const { return route_bytes_; }

 private:
  static Action action_of(const Instruction& in) {
    return {.kind = in.kind,
            .stage = StageId(in.stage),
            .micro_batch = MicroBatchId(static_cast<std::int64_t>(in.micro_batch))};
  }

  const Program& program_;
  const CostTable& costs_;
  std::span<const std::int64_t> own_;
  std::size_t stages_;                   // one at least: calls stand at stage 0
  std::vector<std::int64_t> by_kind_;    // kind * stages + stage
  std::vector<std::int64_t> update_ns_;  // by rank
  std::vector<std::int64_t> route_ns_, route_bytes_, collective_ns_;
};

}  // namespace pipewright::sim
