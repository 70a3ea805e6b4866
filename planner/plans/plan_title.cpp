#include "planner/plans/plan_title.hpp"

namespace pipewright::planner {

std::string title_of(const Plan& plan) {
  std::string title = plan.schedule.name + ": p=" + std::to_string(plan.ranks()) +
                      " m=" + std::to_string(plan.micro_batches);
  const auto add = [&](const std::string& name, int size, int least) {
    if (size > least) title += " " + name + "=" + std::to_string(size);
  };
  add("v", plan.schedule.chunks, 1);
  add("dp", plan.replicas(), 1);
  for (const char* dimension : {"tp", "cp"}) add(dimension, plan.mesh.size(dimension), 1);
  add("zero", plan.sharding_stage, 0);
  return title + ", model " + plan.model.name;
}

}  // namespace pipewright::planner
