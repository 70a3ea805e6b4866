// Ranges of host threads for profilers, by NVTX.
#pragma once

#include "exec/devices/cuda/module_api.h"

namespace pipewright::exec::cuda {

/// Fills the table's functions of ranges.
void offer_ranges(pipewright_cuda& table);

}  // namespace pipewright::exec::cuda
