// Training on several GPUs of this machine, one a rank, with NCCL between them.
#pragma once

#include "exec/devices/cuda/run.hpp"
#include "exec/transports/nccl/module_api.h"
#include "exec/transports/process/link.hpp"

namespace pipewright::exec::nccl {

/// As run_on_cuda(). Throws MachineError if there are fewer GPUs than ranks (NCCL 2.28 lets a GPU
/// have one), InputError where NCCL cannot give the Program's policy. The Program must be one that
/// check calls ok.
cuda::CudaResult run_on_nccl(const pipewright_cuda& cuda, const pipewright_nccl& nccl,
                             const Program& program, const CostTable& costs,
                             const cuda::CudaTraining& training, const RunOptions& options = {});

/// The same, a rank a process of the job: this one's lives on that GPU of its machine. All of them
/// call it alike; each gets the whole result of a run that finishes. A comparison with a serial run
/// is made by each process of its own stages, and the worst of all counts. `group_of` makes the
/// groups of those that divide layers, for what they sum by way of the hosts.
cuda::CudaResult run_on_nccl(const pipewright_cuda& cuda, const pipewright_nccl& nccl,
                             const Program& program, const CostTable& costs,
                             const cuda::CudaTraining& training, const RunOptions& options,
                             mpi::Link& link, int gpu, const cpu::GroupOfProcesses& group_of = {});

}  // namespace pipewright::exec::nccl
