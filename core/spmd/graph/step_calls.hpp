// The collectives of a graph's training step as the calls of an order (docs/semantics.md §3.3), so
// that check says of a graph, before it runs, whether its ranks can hang.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/order/action.hpp"
#include "core/spmd/graph/training_steps.hpp"

namespace pipewright::spmd {

/// The call that a step of a reshard is, an exchange as an ALL_TO_ALL; nullopt of what each process
/// does by itself.
std::optional<ActionKind> kind_of_call(ReshardStep::Kind kind);

/// It takes logits, with classes in the last dimension, and labels.
bool is_loss_of_classes(const GraphOperator& one);

/// Where an operator divides the classes of logits, the processes that have those of the same rows:
/// they sum twice among themselves. Empty of any other operator.
std::vector<std::vector<int>> groups_of_classes(const OperatorGraph& completed,
                                                const GraphOperator& one);

/// An order as CSV: a row for each rank from 0 to the largest, and in it the calls that the rank
/// makes in one step. An exchange is an ALL_TO_ALL of all that are on either mesh; a group of one
/// rank calls nothing.
std::string calls_of(const OperatorGraph& completed, const TrainingSteps& steps);

}  // namespace pipewright::spmd
