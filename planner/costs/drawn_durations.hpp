// Draws how long each computation of a Program takes, from how the measurements of a profile are
// spread: a simulation of such a draw is one of the steps that a run may turn out to have.
//
// Each layer of an action is drawn by itself. What drawing changes is the spread around the cost
// table: its costs stay the ones that are typical. A layer without measurements keeps to them.
// Immutable after construction; any number of threads may draw.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/costs/costs.hpp"
#include "core/plan/plan.hpp"
#include "core/plan/profile.hpp"
#include "core/program/program.hpp"

namespace pipewright::planner {

class DrawnDurations {
 public:
  /// Program and costs must outlive it. Of the profile's micro-batch sizes the nearest is taken.
  /// Throws InputError if the profile has no spreads, or other layers than the stages.
  DrawnDurations(const Program& program, const CostTable& costs, std::span<const StagePlan> stages,
                 const Profile& profile, int micro_batch_size);

  /// By instruction, in ns; 0 for transfer ends. The same seed gives the same durations.
  std::vector<std::int64_t> draw(std::uint64_t seed) const;

 private:
  const Program& program_;
  const CostTable& costs_;
  std::vector<StagePlan> stages_;
  ProfileClock clock_;
  std::vector<LayerSpread> layers_;
};

}  // namespace pipewright::planner
