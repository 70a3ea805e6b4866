// What the arrays of a training step take, by their layouts alone: which are held when, and the
// most at once.
#pragma once

#include "core/spmd/graph/training_steps.hpp"

namespace pipewright::spmd {

/// By step the arrays that nothing uses after it. What the next step begins with stays: tensors
/// that no operator makes, as they lie, and the loss.
std::vector<std::vector<std::size_t>> last_uses(const OperatorGraph& completed,
                                                const TrainingSteps& steps);

/// Bytes at most at once, of elements of four bytes as a run keeps them.
struct StepMemory {
  std::int64_t parameters = 0;  // with copies that are gathered for use
  std::int64_t gradients = 0;   // of parameters
  std::int64_t states = 0;      // of the optimizer
  std::int64_t all = 0;         // with activations and data

  bool operator==(const StepMemory&) const = default;
};
/// By place the larger.
StepMemory most_of(const StepMemory& one, const StepMemory& other);

/// Counts what one process holds while it walks the steps.
class HeldMemory {
 public:
  HeldMemory(const OperatorGraph& graph, const TrainingSteps& steps);

  void hold(std::size_t array, std::int64_t elements);
  void drop(std::size_t array, std::int64_t elements) { hold(array, -elements); }
  void keep_states(std::int64_t elements);
  const StepMemory& most() const { return most_; }

 private:
  void raise();

  const OperatorGraph& graph_;
  const TrainingSteps& steps_;
  StepMemory now_, most_;
};

/// Of the process that needs most, each by itself.
StepMemory memory_of(const OperatorGraph& completed, const TrainingSteps& steps);

}  // namespace pipewright::spmd
