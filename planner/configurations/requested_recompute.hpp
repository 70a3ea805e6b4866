// What a job lets be computed again: for all stages alike, and stage by stage. Pure functions.
#pragma once

#include <vector>

#include "core/plan/job.hpp"
#include "planner/estimate/parallel_space.hpp"

namespace pipewright::planner {

struct AskedRecompute {
  std::vector<LayerRecompute> for_all;  // alike for all stages; empty with ByStage::Only alone
  ParallelSpace::ByStage by_stage = ParallelSpace::ByStage::No;
  /// training.recompute says it; nothing is chosen, and setups have LayerRecompute::None.
  bool fixed_by_training = false;

  bool admits(LayerRecompute recompute) const;
};

/// For a job that is estimated: open unless strategy.recompute or else training.recompute says it.
/// Throws InputError for a training.recompute that lists layers.
AskedRecompute estimated_recompute(const Job& job);

/// For a job that is planned layer by layer: what training.recompute says, unless
/// strategy.recompute has values or says "auto" with nothing in training.
AskedRecompute layered_recompute(const Job& job);

}  // namespace pipewright::planner
