// What the process's GPUs do, one by one, by CUPTI's activity API.
#pragma once

#include "exec/devices/cuda/module_api.h"

namespace pipewright::exec::cuda {

/// Fills the table's functions of activities.
void offer_activities(pipewright_cuda& table);

}  // namespace pipewright::exec::cuda
