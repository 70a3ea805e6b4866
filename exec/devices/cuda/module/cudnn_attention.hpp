// The table's attention (exec/devices/cuda/module_api.h): cuDNN's, which keeps no squares of
// scores. The library is opened when it is first asked for.
#pragma once

#include "exec/devices/cuda/module_api.h"

namespace pipewright::exec::cuda {

/// Sets the table's functions for it.
void offer_attention(pipewright_cuda& table);

}  // namespace pipewright::exec::cuda
