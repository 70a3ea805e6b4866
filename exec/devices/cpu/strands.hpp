// The actions of a rank that are under way in parts (docs/semantics.md §3.4): each runs up to where
// the ranks that divide its stage have to bring something together, and goes on when they have. Of
// a pair both actions are under way. One thread at a time, the rank's.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "core/order/devices.hpp"
#include "core/program/program.hpp"
#include "exec/base/task.hpp"
#include "exec/collectives/group.hpp"
#include "exec/layers/rank_groups.hpp"

namespace pipewright::exec::cpu {

/// The ranks that divide this rank's stages, along each axis; null where none do.
struct GroupsOfRank {
  std::unique_ptr<collectives::Group> tensor, experts, context;

  /// Of those along tp and cp.
  collectives::Group& along(std::string_view axis) const {
    return axis == kTensorAxis ? *tensor : *context;
  }
};

class Strands {
 public:
  Strands(const Program& program, GroupsOfRank groups)
      : program_(program), groups_(std::move(groups)) {}

  /// The action begins, and runs up to its first pause.
  void begin(const Action& action, Task<void> task, RankGroups& stage);
  /// It goes on to its next pause, or its end. Bug if it has not begun.
  void go_on(const Action& action);
  bool is_under_way(const Action& action) const { return find(action) != nullptr; }
  /// Its last part is done; throws what it has thrown.
  void finish(const Action& action);

  /// A call that is a part is about to be issued. Bug if its action waits for something else, or
  /// nothing: the parts are those of the model's layers (exec/devices/cpu/training_fit.hpp).
  void issue(InstructionId call);
  /// It has ended: all members are there.
  void bring_together(InstructionId call);
  // For a device whose arrays do not lie on the host, in the place of these two:
  /// What a call is for, and where.
  struct Paused {
    Wanted wanted;
    RankGroups& stage;
  };
  /// Null of a call beside the pipeline, which brings nothing.
  std::optional<Paused> begin_call(InstructionId call);
  /// Its action may go on.
  std::optional<Paused> end_call(InstructionId call);

  const GroupsOfRank& groups() const { return groups_; }

 private:
  struct Strand {
    Action action;
    Task<void> task;
    RankGroups* stage = nullptr;
    PausePoint::Paused paused;
    std::deque<Wanted> beside;  // issued; the computations of the action go on meanwhile
  };

  const Strand* find(const Action& action) const;
  Strand& at(const Action& action);
  void note_pause(Strand& strand);
  const Strand* strand_of_call(InstructionId call) const;

  const Program& program_;
  GroupsOfRank groups_;
  std::vector<Strand> strands_;
};

}  // namespace pipewright::exec::cpu
