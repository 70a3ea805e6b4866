// Which layers a GPU has operators for. Pure function.
#pragma once

#include <string>

#include "core/model/model.hpp"

namespace pipewright {

/// Why GPUs do not train the model yet, as a clause with the path of the first layer that they have
/// no operators for; "" if they do.
std::string fault_on_gpus(const Model& model);

}  // namespace pipewright
