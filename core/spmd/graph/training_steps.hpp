// A completed graph as a training step: what every process computes and moves, in one order that
// all of them walk. Forward as the completion says; then against that direction. An operator's
// gradient is computed where the operator is, from parts as it took them: along a dimension of the
// mesh that divides the operator but not an input, that input's gradient is a partial sum (decision
// 46). Gradients in one layout are added before they move, once, to how their tensor lies.
#pragma once

#include "core/spmd/graph/completion.hpp"

namespace pipewright::spmd {

/// A tensor, or its gradient, in a layout on a mesh of the graph's: each process has its part.
struct TrainingArray {
  std::size_t tensor = 0;
  std::size_t mesh = 0;
  Layout layout = {};
  bool is_gradient = false;
};

using ArrayPlace = std::optional<std::size_t>;  // among TrainingSteps::arrays

/// What goes into the array of a gradient is added to it; all of them begin as zeros.
struct TrainingStep {
  enum class Kind {
    Forward,   // operator `at`: inputs to outputs
    Backward,  // of operator `at`: from gradients of its outputs to those of its inputs
    Move,      // one array to another, by `plan`
    Update,    // of the parameter in inputs[0] by the gradient in gradients[0]
  };
  Kind kind = Kind::Forward;
  std::size_t at = 0;
  /// The operator that is computed, or for which a Move is there; none of what updates parameters.
  std::optional<std::size_t> turn = {};
  std::vector<ArrayPlace> inputs = {}, outputs = {};  // a Move has one each
  /// Of a Backward, by place of the outputs and of the inputs; none where nobody has or wants one.
  std::vector<ArrayPlace> of_outputs = {}, gradients = {};
  /// Of a Backward: of the mean that processes take of an output together each has so much.
  std::vector<double> shares = {};
  ReshardPlan plan = {};
};

struct TrainingSteps {
  std::vector<TrainingArray> arrays;
  std::vector<TrainingStep> steps;
  std::vector<std::size_t> lying;     // by tensor: the array in which it lies
  std::vector<ArrayPlace> gradients;  // by tensor, as it lies
  std::size_t loss = 0;               // a tensor
};

/// The tensor of this name; without a name the one that has one element and that nobody takes.
/// Throws InputError with the names.
std::size_t loss_of(const OperatorGraph& graph, const std::optional<std::string>& name);

/// `loss` has one element. Throws InputError, with the name: a tensor that lies as partial values;
/// an output whose parts become one in a way that has no gradient here; no parameter that the loss
/// depends on.
TrainingSteps training_steps(const OperatorGraph& completed, std::size_t loss);
/// In another order of the operators, each after those that it takes from.
TrainingSteps training_steps(const OperatorGraph& completed, std::size_t loss,
                             std::vector<std::size_t> order);

/// All arrays that a step reads or writes.
std::vector<std::size_t> arrays_of(const TrainingStep& step);

/// Bytes that the busiest process moves in one step, all moves together.
std::int64_t bytes_of(const TrainingSteps& steps);

}  // namespace pipewright::spmd
