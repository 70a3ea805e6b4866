// What decides the result of a run. Each process of a job gets these inputs on its own, so the
// processes compare them before they begin: a rank with another seed would train along, and nobody
// would know what was trained. Where results are written, how they are shown and how long a process
// waits may differ; so may the paths of files that hold the same.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/plan/plan.hpp"
#include "core/program/program.hpp"
#include "exec/devices/cpu/device.hpp"
#include "exec/transports/process/link.hpp"
#include "tools/running/training.hpp"

namespace pipewright::tools {

struct RunInput {
  std::string name;   // as the user knows it: a key of the plan, a flag without its hyphens
  std::string value;  // in words; of what is long its checksum
};
using RunInputs = std::vector<RunInput>;

/// Of every run: the order of the ranks' work, the policy, the costs, the number of the last step.
RunInputs inputs_of_run(const Program& program, const CostTable& costs, const std::string& device,
                        int steps, bool verify_payloads);
/// Those of a training too. `training` points to its data, read, and to its checkpoint.
RunInputs inputs_of_training(const Plan& plan, const Program& program,
                             const exec::cpu::Training& training, int steps, bool verify_payloads,
                             const std::optional<CudaRequest>& cuda);

/// Which of them differ, a line for each, with the ranks that have each value; "" if none does.
std::string inputs_difference(const std::vector<RunInputs>& by_rank);

/// Waits until all processes of the job have sent theirs. Throws InputError in all of them if two
/// differ.
void require_same_inputs(exec::mpi::Link& link, const RunInputs& own);

}  // namespace pipewright::tools
