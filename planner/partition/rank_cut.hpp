// Cuts where ranks that differ in speed have several stages each: even by rank, not by stage. Pure
// functions.
#pragma once

#include <vector>

#include "core/order/placement.hpp"
#include "planner/partition/partition.hpp"

namespace pipewright::planner {

/// What a cut of the layers depends on: for each stage the kind of its rank, as `costs` knows them,
/// and, where kinds differ and a rank has several stages, the rank.
struct CutShape {
  std::vector<int> kind_of_stage;
  std::vector<int> rank_of_stage;  // empty: no matter

  auto operator<=>(const CutShape&) const = default;
};
CutShape cut_shape(const LayerCosts& costs, const Placement& placement);

/// Evens a cut by rank: a smaller largest sum of a rank's stages, then a smaller sum of squares of
/// these sums, then of the stages. Begins with `partition`. A step takes a layer from a stage of a
/// busiest rank and gives one to another stage (the borders between them move by one); the best
/// step is taken as long as one improves the cut. Not exact: what it ends with cannot be improved
/// by one step. Needs a shape with rank_of_stage.
Partition rank_evened(Partition partition, const LayerCosts& costs, const CutShape& shape);

}  // namespace pipewright::planner
