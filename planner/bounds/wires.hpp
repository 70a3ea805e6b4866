// The least times of messages between neighbouring stages: what a lower bound on the step knows of
// the network. Plain data; nanoseconds.
#pragma once

#include <cstdint>
#include <vector>

#include "core/order/comm_policy.hpp"

namespace pipewright::planner {

/// A message between two neighbouring stages. All 0 where one rank has both.
struct Wire {
  std::int64_t time = 0;    // at least, from the end of its computation to its arrival
  std::int64_t moving = 0;  // the part that messages going this way at the same time share
};

/// The messages of one replica, at the cut after stage 0, 1, …
struct Wires {
  std::vector<Wire> up, down;
};

/// How messages from one rank to another, in one direction, hold each other up: each waits until
/// the one before it has arrived, or they share those links that are shared.
enum class Sending : std::uint8_t { InTurn, Shared };
Sending sending_under(const CommPolicy& policy);

}  // namespace pipewright::planner
