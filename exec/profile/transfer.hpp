// The part of the profile that is about the runtime: messages between two ranks, and the time of an
// action that does nothing. Both run small Programs through run(), as a training step would.
#pragma once

#include <cstdint>

#include "core/base/units.hpp"

namespace pipewright::exec {

struct TransferTimes {
  Nanoseconds latency;
  double bytes_per_second = 0;
};

/// Medians; a message is written by its sender and read by its receiver, as stages do.
TransferTimes measure_transfers(int repeats);
Nanoseconds measure_action_overhead(int repeats);

}  // namespace pipewright::exec
