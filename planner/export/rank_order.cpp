#include "planner/export/rank_order.hpp"

namespace pipewright::planner {

void note_rank_order(const Plan& plan, const std::string& tool, bool inside, const std::string& fix,
                     ExportedPlan& result) {
  if (plan.replicas_are_ranks && plan.mesh.size("cp") > 1 && plan.mesh.size("pp") > 1)
    result.notes.push_back("the plan numbers ranks with context parallel ones a pipeline apart, " +
                           tool + " with them side by side");
  if (plan.mesh.size("pp") == 1 || plan.mesh.size("dp") == 1) return;
  if (plan.mesh.has_pipeline_inside_data() == inside) return;
  const std::string ours = inside ? "the pipeline outermost" : "replicas outermost";
  const std::string theirs = inside ? "replicas outermost" : "the pipeline outermost";
  result.notes.push_back("the plan numbers ranks with " + ours + ", " + tool + " with " + theirs +
                         ": " + fix);
}

}  // namespace pipewright::planner
