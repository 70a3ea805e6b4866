#include "exec/transports/nccl/run.hpp"

#include "core/base/error.hpp"
#include "exec/transports/nccl/transport.hpp"
#include "exec/transports/process/transport.hpp"

namespace pipewright::exec::nccl {
namespace {

void require_possible(const cuda::CudaTraining& training) {
  if (!training.hold_ns.empty())
    throw InputError("--slow-link holds copies on one GPU; leave out --transport nccl");
}

cuda::CudaResult run_over(NcclTransport& transport, const pipewright_cuda& cuda,
                          const Program& program, const CostTable& costs,
                          const cuda::CudaTraining& training, const RunOptions& options,
                          std::optional<int> gpu, const cpu::GroupOfProcesses& group_of = {}) {
  return run_on_cuda(
      cuda, program, costs, training, options,
      {transport, transport.times(),
       [&](RankId rank, cuda::Device& device) { transport.attach(rank, device); }, gpu, group_of});
}

}  // namespace

cuda::CudaResult run_on_nccl(const pipewright_cuda& cuda, const pipewright_nccl& nccl,
                             const Program& program, const CostTable& costs,
                             const cuda::CudaTraining& training, const RunOptions& options) {
  require_possible(training);
  if (cuda.gpus() < program.ranks())
    throw MachineError("NCCL takes a GPU for each rank: this plan has " +
                       std::to_string(program.ranks()) + " ranks, and this machine " +
                       std::to_string(cuda.gpus()) +
                       " GPUs; without --transport nccl several ranks share one");
  NcclTransport transport(nccl, program, costs);
  return run_over(transport, cuda, program, costs, training, options, std::nullopt);
}

cuda::CudaResult run_on_nccl(const pipewright_cuda& cuda, const pipewright_nccl& nccl,
                             const Program& program, const CostTable& costs,
                             const cuda::CudaTraining& training, const RunOptions& options,
                             mpi::Link& link, int gpu, const cpu::GroupOfProcesses& group_of) {
  require_possible(training);
  if (cuda.gpus() <= gpu)
    throw MachineError("NCCL takes a GPU for each rank: this process is number " +
                       std::to_string(gpu) + " of its machine, counted from 0, which has " +
                       std::to_string(cuda.gpus()) + " GPUs; start fewer on it");
  mpi::MpiTransport inner(program, local::real_messages(program, costs), link,
                          options.verify_payloads);
  NcclTransport transport(nccl, program, costs, inner);
  return run_over(transport, cuda, program, costs, training, options, gpu, group_of);
}

}  // namespace pipewright::exec::nccl
