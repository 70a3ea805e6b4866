// What `spmd run` shows of a training: losses and the comparison with one rank, what moved, memory,
// and the time of a step beside the expected one.
#pragma once

#include <optional>

#include "core/spmd/graph/training_steps.hpp"
#include "exec/spmd/graph_training.hpp"
#include "tools/commands/spmd/graph_program.hpp"

namespace pipewright::tools {

struct Trained {
  spmd::OperatorGraph graph;  // completed
  spmd::TrainingSteps steps;
  std::optional<GraphProgram> pipeline;
  std::string cluster;     // of the expected time
  double expected_ns = 0;  // of a step there
  exec::graphs::GraphTraining divided, serial;
};

/// Whether losses, gradients and parameters are as close to those of one rank as sums in another
/// order are.
bool agrees(const Trained& trained);

void print_training(const Trained& trained, Session& session);
Json to_json(const Trained& trained);

}  // namespace pipewright::tools
