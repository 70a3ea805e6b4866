// In what ways the devices of a pipeline rank differ. Pure function.
#pragma once

#include <vector>

#include "core/order/parts.hpp"

namespace pipewright {

/// "tp", "cp", "ep", "dp", nearest first, of these those with more than one device: `experts`
/// replicas that divide the experts lie side by side among the `replicas`, and "dp" has those that
/// differ in nothing else. Expert parallel ranks that are context parallel ones, too, have no axis.
std::vector<MeshAxis> rank_axes(int tensor, int context, int experts, int replicas);

}  // namespace pipewright
