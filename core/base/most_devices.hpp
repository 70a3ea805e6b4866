// How many devices a cluster, a mesh and its degrees may have: what every reader of them refuses
// beyond.
#pragma once

namespace pipewright {

inline constexpr int kMostDevices = 1 << 20;

}  // namespace pipewright
