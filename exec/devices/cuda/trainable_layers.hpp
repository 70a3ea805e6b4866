// Which layers a GPU has operators for.
#pragma once

#include "core/model/model.hpp"

namespace pipewright::exec::cuda {

/// Throws InputError that names the first layer, and the ones inside it, that no GPU trains yet.
void require_layers(const Model& model);

}  // namespace pipewright::exec::cuda
