// The numbers by which rotary positions turn, for whoever turns.
#pragma once

#include "exec/layers/ops.hpp"

namespace pipewright::exec::cpu {

/// turns[sequence][head_width]: of each row the cosines of all pairs, then the sines. In double, so
/// that every machine's rounding gives the same floats.
void fill_turns(const RotaryShape& shape, float* turns);

}  // namespace pipewright::exec::cpu
