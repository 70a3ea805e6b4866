// Random orders and policies for the property tests: deterministic for a seed, on every machine.
#pragma once

#include <cstdint>
#include <random>
#include <string>

#include "tests/reference/order.hpp"
#include "tests/reference/policy.hpp"

namespace pipewright::reference {

/// mt19937_64 with draws that, unlike those of <random>'s distributions, are the same in every
/// library.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}
  /// From 0 to n - 1.
  int below(int n) { return static_cast<int>(engine_() % static_cast<std::uint64_t>(n)); }
  int between(int least, int most) { return least + below(most - least + 1); }
  bool chance(int percent) { return below(100) < percent; }

 private:
  std::mt19937_64 engine_;
};

struct RandomOptions {
  int most_ranks = 5, most_micro_batches = 5, most_chunks = 3;
  bool transfers = true;    // write transfer ends into some orders, and shuffle them
  bool broken = true;       // now and then swap, drop, double or move actions
  bool pairs = true;        // overlapped pairs
  bool idle = true;         // empty cells
  bool bookkeeping = true;  // UNSHARD, RESHARD, REDUCE_GRAD, OPT
  bool replicas = true;     // placements that look at the micro-batch
  bool waits = true;        // WAIT_SEND_F, WAIT_SEND_B, WAIT_REDUCE_GRAD
  bool batches = true;      // written transfer ends in one cell
  bool versions = true;     // asynchronous orders: OPT and REDUCE_GRAD inside, named versions
};

/// An order; `whole` is false once it was broken (it may still be whole by luck).
struct RandomOrder {
  Order order;
  std::string what;  // in words, for a failing test: "p=3 v=2 m=4 v-shape, transfers shuffled,
                     // dropped 1RECV_F2"
  bool broken = false;
};

[[nodiscard]] RandomOrder random_order(Dice& dice, const RandomOptions& options = {});
[[nodiscard]] Policy random_policy(Dice& dice);
/// Some of them zero everywhere. Costs of transfers depend on the producing stage and kind (bytes);
/// latency is one for all.
[[nodiscard]] Costs random_costs(Dice& dice, const Order& order);
/// "stream pair deferred even-odd SEND_F=eager:2 SEND_B=rendezvous".
[[nodiscard]] std::string to_string(const Policy& policy);

}  // namespace pipewright::reference
