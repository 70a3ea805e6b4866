#include "planner/plans/executable.hpp"

#include <algorithm>

#include "core/model/architecture_model.hpp"
#include "core/model/context_split.hpp"
#include "core/model/gpu_layers.hpp"
#include "core/model/tensor_split.hpp"

namespace pipewright::planner {

std::vector<std::string> missing_everywhere(const Job& job, const ParallelSetup& parallel) {
  const auto estimated = estimated_architecture(job);
  std::vector<std::string> missing;
  // Its times are of sums after every micro-batch, which the executor does not make.
  if (parallel.zero > 1 && estimated)
    missing.push_back("ZeRO stage " + std::to_string(parallel.zero));
  if (!job.strategy.matmul_dtype.empty())
    missing.push_back("products in " + job.strategy.matmul_dtype);
  if (job.architecture && !can_be_trained(*job.architecture))
    missing.push_back("the layers of " + job.architecture->name);
  if (job.architecture && job.architecture->lora.is_used()) missing.push_back("LoRA");
  // The estimate divides each expert among them; the executor's layers hold whole ones (decision
  // 34).
  const bool divides_each = parallel.expert_tensor() == parallel.tensor;
  if (parallel.tensor > 1 && divides_each && estimated && estimated->experts.count > 0)
    missing.push_back("experts that " + std::to_string(parallel.tensor) +
                      " tensor parallel ranks divide");
  if (missing.empty() && !tensor_fault(job.model, parallel.tensor).empty())
    missing.push_back("layers of this model for tp " + std::to_string(parallel.tensor));
  if (missing.empty() && parallel.sequence_parallel &&
      !sequence_fault(job.model, parallel.tensor).empty())
    missing.push_back("rows of this model for sequence parallelism with tp " +
                      std::to_string(parallel.tensor));
  const std::string cp = "cp " + std::to_string(parallel.context);
  if (missing.empty() && !context_fault(job.model, parallel.context).empty())
    missing.push_back("sequences of this model for " + cp);
  StageDivision gathered = parallel.division();
  gathered.ring = false;
  if (missing.empty() && !context_fault(job.model, parallel.division()).empty())
    missing.push_back(parallel.ring && context_fault(job.model, gathered).empty()
                          ? "keys of this model that go round " + cp
                          : "rows of this model for " + cp +
                                " beside sequence parallelism with tp " +
                                std::to_string(parallel.tensor));
  if (missing.empty() && !parallel.expert_tensor_fault().empty())
    missing.push_back("experts of ep " + std::to_string(parallel.experts) + " and etp " +
                      std::to_string(parallel.expert_tensor()) + " beside tp " +
                      std::to_string(parallel.tensor));
  if (missing.empty() && !expert_fault(job.model, parallel.division()).empty())
    missing.push_back("layers of this model for ep " + std::to_string(parallel.experts));
  return missing;
}

std::map<std::string, Executable> executable_on_devices(const Job& job,
                                                        const ParallelSetup& parallel) {
  using Answer = Executable::Answer;
  std::string list;
  for (const std::string& what : missing_everywhere(job, parallel))
    list += (list.empty() ? "" : ", ") + what;
  if (!list.empty()) {
    const Executable refused{Answer::No, "not in the executor: " + list};
    return {{"cpu", refused}, {"paced", {}}, {"cuda", refused}};
  }
  const std::string not_on_gpus = fault_on_gpus(job.model);
  if (!not_on_gpus.empty())
    return {
        {"cpu", {}}, {"paced", {}}, {"cuda", {Answer::No, "not in the executor: " + not_on_gpus}}};
  return {{"cpu", {}},
          {"paced", {}},
          {"cuda", {Answer::IfThere, "the CUDA module and a GPU (pipewright doctor)"}}};
}

bool cpus_run(const Plan& plan) {
  const auto found = plan.executable.find("cpu");
  return found != plan.executable.end() && found->second == Executable{};
}

}  // namespace pipewright::planner
