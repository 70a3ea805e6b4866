// One step of AdamW for some elements, on the CPU (exec/layers/optimizer.hpp has its factors).
#pragma once

#include <cstddef>

#include "exec/layers/optimizer.hpp"

namespace pipewright::exec {

void adam_step(const AdamFactors& f, std::size_t n, const float* gradient, float* mean,
               float* square, float* value);

}  // namespace pipewright::exec
