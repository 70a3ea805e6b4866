// What the actions, messages and collectives of a Program take, as numbers that changes can be made
// to: the Program is lowered once, and every what-if is another set of these numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/costs/costs.hpp"
#include "core/program/program.hpp"
#include "sim/engine.hpp"
#include "sim/what_if/change.hpp"
#include "traces/analysis/median_elsewhere.hpp"

namespace pipewright::sim {

/// An F, I, W, B, OPT, or an overlapped pair with a time of its own. A pair without is two of them,
/// one of them may be several instructions (its parts).
struct TimedAction {
  Cell cell;
  RankId rank;

  bool is_pair() const { return cell.partner.has_value(); }
};

struct Times {
  std::vector<std::int64_t> actions_ns;      // by TimedProgram::actions()
  std::vector<std::int64_t> collectives_ns;  // by collective of the Program
  std::vector<Factor> messages;              // by route of the Program

  bool operator==(const Times&) const = default;
};

/// Which of the ranks, stages or micro-batches an action is of; -1: of none.
int number_of(WhatOf of, const TimedAction& action);
/// Whether the change is of it; one of Stages or MicroBatches is of no single one.
bool concerns(const Change& change, const TimedAction& action);
bool concerns(const Change& change, const Route& route);

/// Immutable; any number of threads may ask it. The Program and the table must outlive it.
class TimedProgram {
 public:
  TimedProgram(const Program& program, const CostTable& costs);

  const Program& program() const { return program_; }
  const std::vector<TimedAction>& actions() const { return actions_; }
  /// As the table has them.
  const Times& times() const { return times_; }
  bool messages_take_time() const { return messages_take_time_; }
  /// That the instruction is, or is a part of: none, one, or the two of a pair.
  struct Of {
    std::uint32_t first = kNone, second = kNone;
  };
  static constexpr std::uint32_t kNone = 0xffffffff;
  Of actions_of(InstructionId id) const { return of_[id]; }

  /// By action, with these times: what is compared with a median elsewhere.
  std::vector<traces::PlacedTime> placed_times(std::span<const std::int64_t> ns) const;

  /// Why the change says nothing about this Program: "there is no rank 9; …". "" where it does.
  std::string fault_of(const Change& change) const;
  /// Makes it, a change without fault, to what earlier ones have left.
  void apply(const Change& change, Times& times) const;

  Result simulate(const Times& times) const;

 private:
  void add_instruction(InstructionId id);
  std::uint32_t add(const Cell& cell, RankId rank, Nanoseconds time);
  std::uint32_t add_part(InstructionId id);
  template <class Visit>
  void for_each_of(const Change& change, Visit visit) const;
  void even_out(WhatOf of, Times& times) const;

  const Program& program_;
  const CostTable& costs_;
  std::vector<TimedAction> actions_;
  Times times_;
  std::vector<Of> of_;  // by instruction
  bool messages_take_time_ = false;
  RankId rank_;                      // whose instructions are being added
  std::vector<std::uint32_t> open_;  // its actions of which parts were added, and not yet the end
};

}  // namespace pipewright::sim
