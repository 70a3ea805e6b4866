// A policy in words.
#pragma once

#include <string>
#include <string_view>

#include "core/order/comm_policy.hpp"

namespace pipewright {

/// "torch-gloo (stream, edge, early, rendezvous)". `name` where it comes from a preset that calls
/// have changed.
std::string policy_text(const CommPolicy& policy, std::string_view name = "");

}  // namespace pipewright
