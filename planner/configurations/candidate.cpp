#include "planner/configurations/candidate.hpp"

#include "planner/base/number_text.hpp"
#include "planner/configurations/stage_replicas.hpp"
#include "planner/estimate/parallel_space.hpp"

namespace pipewright::planner {

std::string describe(const Candidate& candidate) {
  const ParallelSetup& parallel = candidate.parallel;
  std::string text = candidate.schedule + " on " + count_of(parallel.pipeline, "rank");
  const int devices = parallel.tensor * parallel.context;  // of a rank
  if (devices > 1) text += " of " + std::to_string(devices) + " devices each";
  if (parallel.chunks > 1) text += " with " + std::to_string(parallel.chunks) + " chunks each";
  if (!parallel.stage_replicas.empty())
    text += ", stages on " + replicas_text(parallel.stage_replicas);
  if (parallel.data > 1) text += " in " + std::to_string(parallel.data) + " replicas";
  text += ", " + std::to_string(parallel.micro_batches) +
          (parallel.micro_batches == 1 ? " micro-batch of " : " micro-batches of ") +
          std::to_string(parallel.micro_batch_size);
  if (devices > 1) text += ", tp " + std::to_string(parallel.tensor);
  if (parallel.context > 1) text += ", cp " + std::to_string(parallel.context);
  if (parallel.ring) text += ", p2p";
  if (parallel.experts > 1) text += ", ep " + std::to_string(parallel.experts);
  if (parallel.expert_tensor() != parallel.tensor)
    text += ", etp " + std::to_string(parallel.expert_tensor());
  text += recompute_text(parallel.recompute);
  if (parallel.sequence_parallel) text += ", sequence parallel";
  if (parallel.zero > 0 && candidate.parallel.data * parallel.context > 1)
    text += ", " + zero_text(parallel);
  return text + order_text(parallel.order);
}

}  // namespace pipewright::planner
