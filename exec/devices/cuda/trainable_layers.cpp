#include "exec/devices/cuda/trainable_layers.hpp"

#include "core/base/error.hpp"
#include "core/model/gpu_layers.hpp"

namespace pipewright::exec::cuda {

void require_layers(const Model& model) {
  const std::string fault = fault_on_gpus(model);
  if (!fault.empty()) throw InputError(fault + "; use --device cpu");
}

}  // namespace pipewright::exec::cuda
