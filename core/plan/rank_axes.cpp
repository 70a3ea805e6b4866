#include "core/plan/rank_axes.hpp"

#include "core/order/devices.hpp"

namespace pipewright {

std::vector<MeshAxis> rank_axes(const StageDivision& ranks, int replicas) {
  const bool stand_apart = ranks.context > 1 && !ranks.folds_experts();
  const int experts = stand_apart || replicas % ranks.experts != 0 ? 1 : ranks.experts;
  std::vector<MeshAxis> axes = {{std::string(kTensorAxis), ranks.tensor},
                                {std::string(kContextAxis), ranks.context},
                                {std::string(kExpertAxis), experts},
                                {"dp", replicas / experts}};
  std::erase_if(axes, [](const MeshAxis& axis) { return axis.devices == 1; });
  return axes;
}

std::string expert_group_name(const StageDivision& ranks) {
  std::string name;
  const auto add = [&](std::string_view axis, bool differ) {
    if (differ) name += (name.empty() ? "" : "+") + std::string(axis);
  };
  add(kTensorAxis, ranks.folds_experts() && ranks.tensor > 1);
  add(kContextAxis, ranks.experts_differ_along_context() && ranks.context > 1);
  add(kExpertAxis, ranks.experts > 1);
  return name;
}

}  // namespace pipewright
