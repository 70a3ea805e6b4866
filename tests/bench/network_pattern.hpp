// Traffic on a cluster's network, and what two simulators say of it: ours, and SimGrid where it is
// there (tests/bench/network_simgrid.cpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/cluster/cluster.hpp"
#include "core/costs/costs.hpp"

namespace pipewright::bench {

struct Transfer {
  enum class Kind : std::uint8_t { Message, AllReduce, AllToAll };
  Kind kind = Kind::Message;
  std::vector<int> ranks;  // of a message its two ends; of the others the members, as a ring
  std::int64_t bytes = 0;
  std::int64_t start_ns = 0;  // at the earliest
  std::vector<int> after;     // transfers that end before
};

struct Span {
  std::int64_t start = 0, end = 0;
};

struct Pattern {
  std::string name;
  CostTable costs;  // with routes
  int ranks = 0;
  std::vector<Transfer> transfers;
  std::vector<Span> ours;  // empty: to be simulated as flows
};

/// Single flows, many at once, collectives, mixtures; those of whole pipelines have been simulated.
std::vector<Pattern> network_patterns();

/// How latency is given to the other simulator: on the way, as it models it, or as a pause before
/// the bytes move.
enum class Latency : std::uint8_t { OnTheWay, Before };
/// Whether the other simulator was there when this was built.
bool has_simgrid();
/// In a process of its own. An ALL_REDUCE is 2(n-1) rounds of messages round the ring, an
/// ALL_TO_ALL n-1 rounds of exchanges.
std::vector<Span> simulated_by_simgrid(const Pattern& pattern, Latency latency);

}  // namespace pipewright::bench
