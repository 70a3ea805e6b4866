// Cuts where ranks that differ in speed have several stages each: even by rank, not by stage. Pure
// functions.
#pragma once

#include <vector>

#include "core/order/placement.hpp"
#include "planner/partition/partition.hpp"

namespace pipewright::planner {

/// What stages are told apart by when layers are cut: the kind of rank of each, of those that
/// `costs` knows, and where these differ and a rank has several stages, the rank.
struct CutShape {
  std::vector<int> kind_of_stage;
  std::vector<int> rank_of_stage;  // empty: no matter

  auto operator<=>(const CutShape&) const = default;
};
CutShape cut_shape(const LayerCosts& costs, const Placement& placement);

/// A cut with a smaller largest sum of a rank's stages, then a smaller sum of squares of these,
/// then of the stages: from `partition` on, as long as taking a layer from a stage of a busiest
/// rank and giving one to another stage (the borders between them move by one) makes it so, always
/// the best such step. Not exact: what it ends with cannot be improved by one step. Needs a shape
/// with rank_of_stage.
Partition rank_evened(Partition partition, const LayerCosts& costs, const CutShape& shape);

}  // namespace pipewright::planner
