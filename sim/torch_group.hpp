// Over which communicators PyTorch's pipelining sends, by its release and the process group that it
// was given. The one place where a release has its preset. Pure functions.
#pragma once

#include <compare>
#include <string>
#include <string_view>

namespace pipewright::sim {

/// {2, 13} of "2.13.0+cpu".
struct TorchVersion {
  int major = 0, minor = 0;

  auto operator<=>(const TorchVersion&) const = default;
};

/// A release whose pipelining was read or run: 2.9 to 2.15. Throws InputError for any other.
TorchVersion known_torch_version(std::string_view release);

/// The group of a pipeline's stages, as PyTorch describes it.
struct TorchGroup {
  std::string release;         // torch.__version__
  std::string backend;         // of the stages' device: "gloo", "nccl"
  bool eager = false;          // init_process_group() was given a device_id
  bool per_direction = false;  // a communicator for activations, one for gradients (from 2.14 on)
  bool per_edge = false;       // one for each directed edge (from 2.15 on)
};

/// The preset under which a list of actions runs there (core/order/comm_policy.hpp). Throws
/// InputError for a release, a back end, or a set-up of a release that nobody has looked at.
std::string_view torch_preset(const TorchGroup& group);

}  // namespace pipewright::sim
