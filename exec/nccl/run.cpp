#include "exec/nccl/run.hpp"

#include "core/error.hpp"
#include "exec/nccl/transport.hpp"

namespace pipewright::exec::nccl {

RunResult run_on_nccl(const pipewright_cuda& cuda, const pipewright_nccl& nccl,
                      const Program& program, const CostTable& costs,
                      const cuda::CudaTraining& training, const RunOptions& options) {
  if (cuda.gpus() < program.ranks())
    throw MachineError("NCCL takes a GPU for each rank: this plan has " +
                       std::to_string(program.ranks()) + " ranks, and this machine " +
                       std::to_string(cuda.gpus()) +
                       " GPUs; without --transport nccl several ranks share one");
  if (!training.hold_ns.empty())
    throw InputError("--slow-link holds copies on one GPU; leave out --transport nccl");
  if (training.as_graph)
    throw InputError(
        "the host waits within a step until NCCL has taken its calls, so the step cannot be one "
        "CUDA graph; leave out --cuda-graph");
  NcclTransport transport(nccl, program, costs);
  return run_on_cuda(cuda, program, costs, training, options,
                     {transport, transport.times(),
                      [&](RankId rank, cuda::Device& device) { transport.attach(rank, device); }});
}

}  // namespace pipewright::exec::nccl
