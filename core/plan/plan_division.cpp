// How the ranks of a plan divide the layers of its stages.
#include "core/model/expert_fold.hpp"
#include "core/plan/plan.hpp"
#include "core/plan/rank_axes.hpp"

namespace pipewright {

StageDivision Plan::division() const {
  const int tensor = mesh.size("tp");
  return division_with_experts({.tensor = tensor,
                                .rows = sequence_parallel && tensor > 1,
                                .context = mesh.size("cp"),
                                .ring = ring},
                               expert_parallel, expert_tensor_parallel);
}

std::vector<MeshAxis> axes_of(const Plan& plan) {
  if (plan.replicas_are_ranks) return rank_axes({.tensor = plan.mesh.size("tp")}, 1);
  return rank_axes(plan.division(), plan.replicas());
}

}  // namespace pipewright
