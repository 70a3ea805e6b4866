// Which models a GPU trains.
#pragma once

#include <string>

#include "core/base/error.hpp"
#include "core/model/gpu_layers.hpp"

namespace pipewright::exec::cuda {

/// Throws InputError with the path of the first layer that no GPU trains yet.
inline void require_layers(const Model& model) {
  const std::string fault = fault_on_gpus(model);
  if (!fault.empty()) throw InputError(fault + "; use --device cpu");
}

}  // namespace pipewright::exec::cuda
