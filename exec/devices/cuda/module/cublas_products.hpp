// The table's products (exec/devices/cuda/module_api.h): cuBLAS, and cuBLASLt where a product
// brings more with it.
#pragma once

#include "exec/devices/cuda/module_api.h"

namespace pipewright::exec::cuda {

/// Sets the table's functions for them.
void offer_products(pipewright_cuda& table);

}  // namespace pipewright::exec::cuda
