// In what ways the devices of a pipeline rank differ. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "core/model/tensor_split.hpp"
#include "core/order/parts.hpp"

namespace pipewright {

/// "tp", "cp", "ep", "dp", nearest first, of these those with more than one device: replicas that
/// divide the experts lie side by side among the `replicas`, and "dp" has those that differ in
/// nothing else. Expert parallel ranks that are context parallel ones, too, have no axis, unless
/// whole experts are dealt out along both.
std::vector<MeshAxis> rank_axes(const StageDivision& ranks, int replicas);

/// The group that exchanges rows between experts: the axes along which these differ, joined by "+",
/// "ep" or "tp+ep" (docs/semantics.md §3.4); "" where all ranks have all.
std::string expert_group_name(const StageDivision& ranks);

}  // namespace pipewright
