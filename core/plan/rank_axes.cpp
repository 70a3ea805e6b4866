#include "core/plan/rank_axes.hpp"

namespace pipewright {

std::vector<MeshAxis> rank_axes(int tensor, int context, int experts, int replicas) {
  if (context > 1 || replicas % experts != 0) experts = 1;
  std::vector<MeshAxis> axes = {
      {"tp", tensor}, {"cp", context}, {"ep", experts}, {"dp", replicas / experts}};
  std::erase_if(axes, [](const MeshAxis& axis) { return axis.devices == 1; });
  return axes;
}

}  // namespace pipewright
