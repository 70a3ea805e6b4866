// Finding NCCL: the other half of libpipewright_cuda.so (exec/transports/nccl/module_api.h), and
// through it the machine's libnccl.so.2. Both stay loaded until the process ends. Any thread.
#pragma once

#include <string>

#include "exec/transports/nccl/module_api.h"

namespace pipewright::exec::nccl {

/// Throws MachineError that says what is missing and what to do. Does not ask for a GPU.
const pipewright_nccl& load_nccl();

/// "2.28.9" for 22809.
std::string version_text(int version);

/// Throws RunError with NCCL's words if the result is an error; in progress is none.
void require(const pipewright_nccl& nccl, int result, const std::string& what);

}  // namespace pipewright::exec::nccl
