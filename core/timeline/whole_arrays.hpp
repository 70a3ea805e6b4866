// What a rank holds whole of stages whose gradients, or weights, replicas divide among them
// (docs/semantics.md §3.2), along its compute lane: gradients from the first W or B behind a
// REDUCE_GRAD until the next has ended, weights from an UNSHARD to the RESHARD or OPT behind it.
#pragma once

#include <cstdint>
#include <vector>

#include "core/costs/costs.hpp"
#include "core/program/program.hpp"

namespace pipewright {

class WholeArrays {
 public:
  /// Both must outlive it.
  WholeArrays(const Program& program, const CostTable& costs);

  /// Of the rank's instructions, each in turn, before it runs and when it has ended; of a pair for
  /// both its actions. What the bytes held change by.
  std::int64_t before(ActionKind kind, int stage);
  std::int64_t after(const Instruction& in);

 private:
  enum class Gradients : std::uint8_t { Divided, Whole, OnTheirWay };
  struct Held {
    Gradients gradients = Gradients::Divided;
    bool weights = false;
  };

  std::int64_t let_go_of_reduced();
  std::int64_t let_go_of_gradients(std::size_t stage);
  std::int64_t let_go_of_weights(std::size_t stage);

  const std::vector<StageMemory>& memory_;
  const Sharding sharding_;
  const bool waits_later_;  // for a REDUCE_GRAD: the next W, B or OPT
  std::vector<Held> held_;  // by stage
};

}  // namespace pipewright
