#include "planner/plans/executable.hpp"

#include <algorithm>

#include "core/model/architecture_model.hpp"

namespace pipewright::planner {

std::vector<std::string> missing_everywhere(const Job& job, const ParallelSetup& parallel) {
  std::vector<std::string> missing;
  if (parallel.tensor > 1) missing.emplace_back("tensor parallelism");
  if (parallel.context > 1) missing.emplace_back("context parallelism");
  if (parallel.experts > 1) missing.emplace_back("expert parallelism");
  if (parallel.zero > 1) missing.push_back("ZeRO stage " + std::to_string(parallel.zero));
  if (job.architecture && !can_be_trained(*job.architecture))
    missing.push_back("the layers of " + job.architecture->name);
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
  return {
      {"cpu", {}},
      {"paced", {}},
      {"cuda",
       {Answer::IfThere, "the CUDA module and a GPU (pipewright doctor); not tried on one yet"}}};
}

}  // namespace pipewright::planner
