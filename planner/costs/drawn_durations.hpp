// Draws how long each computation of a Program takes, from the spread of a profile's measurements.
// Simulating such a draw gives one of the steps that a run may turn out to have.
//
// Each layer of an action is drawn by itself. A draw adds the spread around the cost table: the
// table's costs stay the typical ones, and a layer without measurements always takes its cost.
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
  /// Program and costs must outlive it. Takes the nearest of the profile's micro-batch sizes.
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
