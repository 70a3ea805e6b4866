// What a run computes.
#pragma once

#include <cstdint>

namespace pipewright::exec {

/// Evaluate and Predict are forward only: the loss and the metrics of a data set, or the model's
/// outputs.
enum class RunMode : std::uint8_t { Train, Evaluate, Predict };

}  // namespace pipewright::exec
