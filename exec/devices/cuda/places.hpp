// Where rows lie in their sequences (pipewright_cuda_places), for the kernels of positions.
#pragma once

#include <cstddef>

#include "exec/base/host_device.hpp"
#include "exec/devices/cuda/module_api.h"

namespace pipewright::exec::cuda {

/// Of the rows of its sample that the rank has, which one row `row` is.
PIPEWRIGHT_HOST_DEVICE inline std::size_t row_of_sample(const pipewright_cuda_places& places,
                                                        std::size_t row) {
  return (static_cast<std::size_t>(places.first_row) + row) %
         static_cast<std::size_t>(places.sequence);
}

/// The place in the sequence of such a row.
PIPEWRIGHT_HOST_DEVICE inline std::size_t place_of(const pipewright_cuda_places& places,
                                                   std::size_t of_sample) {
  const auto half = static_cast<std::size_t>(places.sequence / 2);
  return of_sample < half ? static_cast<std::size_t>(places.begins[0]) + of_sample
                          : static_cast<std::size_t>(places.begins[1]) + (of_sample - half);
}

}  // namespace pipewright::exec::cuda
