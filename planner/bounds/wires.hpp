// What messages between neighbouring stages take at least: what a lower bound on the step knows of
// the network. Plain data; nanoseconds.
#pragma once

#include <cstdint>
#include <vector>

#include "core/order/comm_policy.hpp"

namespace pipewright::planner {

/// A message between two neighbouring stages. All 0 where one rank has both.
struct Wire {
  std::int64_t time = 0;    // from the end of what sends it to its arrival, at least
  std::int64_t moving = 0;  // of it, what messages share that go this way at the same time
};

/// Of one replica: at the cut behind stage 0, 1, …
struct Wires {
  std::vector<Wire> up, down;
};

/// How messages from one rank to another, in one direction, are in the way of each other: one waits
/// until the one before it is there, or they share links where these are shared.
enum class Sending : std::uint8_t { InTurn, Shared };
Sending sending_under(const CommPolicy& policy);

}  // namespace pipewright::planner
