// Draws how long each computation of a Program takes, from the spread of a profile's measurements.
// Simulating such a draw gives one of the steps that a run may turn out to have.
//
// Each layer of an action is drawn by itself. A draw adds the spread around the cost table: the
// table's costs stay the typical ones, and a layer without measurements always takes its cost.
// Ranks that divide layers wait for one another at every part, and were measured so: the devices of
// a block take the same draws.
// Immutable after construction; any number of threads may draw.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "core/costs/costs.hpp"
#include "core/plan/plan.hpp"
#include "core/plan/profile.hpp"
#include "core/program/program.hpp"

namespace pipewright::planner {

class DrawnDurations {
 public:
  /// Program and costs must outlive it. Takes the nearest of the profile's micro-batch sizes, and
  /// whole layers where it has none that are divided so. Throws InputError if
  /// the profile has no spreads, or other layers than the stages.
  DrawnDurations(const Program& program, const CostTable& costs, std::span<const StagePlan> stages,
                 const Profile& profile, int micro_batch_size, const StageDivision& division = {},
                 int replicas = 1);

  /// By instruction, in ns; 0 for transfer ends. The same seed gives the same durations.
  std::vector<std::int64_t> draw(std::uint64_t seed) const;

 private:
  /// Drawn over typical: of what one instruction computes, and of each computation of a rank, and
  /// each part of one, in order.
  double draw_ratio(RankId rank, std::span<const Action> actions, std::mt19937_64& random) const;
  std::vector<double> draw_ratios(RankId rank, std::mt19937_64& random) const;

  const Program& program_;
  const CostTable& costs_;
  std::vector<StagePlan> stages_;
  ProfileClock clock_;
  std::vector<LayerSpread> layers_;
};

}  // namespace pipewright::planner
