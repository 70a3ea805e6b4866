// Two functions of one's own in a graph that four processes train: a Swish whose slope is learned,
// and a sum of squares of which each process has its part. The graph says how they take and make
// their tensors (PaddlePaddle's in_placements and out_placements): what lies otherwise is brought
// there, a P(sum) is summed where it is needed, and the gradient of the slope, which the processes
// along dp share, is summed over them. The run is compared with one on a single process.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/spmd/graph/completion.hpp"
#include "core/spmd/graph/graph_json.hpp"
#include "exec/spmd/graph_training.hpp"

using namespace pipewright;
using exec::graphs::LocalCall;

namespace {

constexpr const char* kGraph = R"graph({
  "schema": "pipewright.graph/1",
  "meshes": {"devices": {"shape": [2, 2], "dim_names": ["dp", "tp"], "ranks": [0, 1, 2, 3]}},
  "tensors": {
    "x": {"shape": [8, 16], "type": "float32", "annotation": {"placements": ["S0", "R"]}},
    "w": {"shape": [16, 32], "type": "float32", "role": "parameter",
          "annotation": {"placements": ["R", "S1"]}},
    "hidden": {"shape": [8, 32], "type": "float32"},
    "slope": {"shape": [32], "type": "float32", "role": "parameter"},
    "active": {"shape": [8, 32], "type": "float32"},
    "energy": {"shape": [], "type": "float32"}
  },
  "operators": [
    {"name": "up", "rule": "matmul", "inputs": ["x", "w"], "outputs": ["hidden"]},
    {"name": "activate", "rule": "local_map", "attributes": ["learned_swish"],
     "inputs": [["hidden", "slope"]], "outputs": [["active"]],
     "annotation": {"inputs": [{"placements": ["S0", "S1"]}, {"placements": ["R", "S0"]}],
                    "outputs": [{"placements": ["S0", "S1"]}]}},
    {"name": "measure", "rule": "local_map", "attributes": ["sum_of_squares"],
     "inputs": [["active"]], "outputs": [["energy"]],
     "annotation": {"inputs": [{"placements": ["S0", "S1"]}],
                    "outputs": [{"placements": ["P(sum)", "P(sum)"]}]}}
  ]
})graph";

float logistic(float x) { return 1 / (1 + std::exp(-x)); }

// y = x s(b x), where s is the logistic function and b has an element for each column.
void swish(const LocalCall& call) {
  const auto &x = call.inputs[0]->values, &slope = call.inputs[1]->values;
  auto& y = call.outputs[0]->values;
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = x[i] * logistic(slope[i % slope.size()] * x[i]);
}

// dy/dx = s + b x s (1 - s); dy/db = x² s (1 - s), added up over the rows that the process has
void swish_back(const LocalCall& call) {
  const auto &x = call.inputs[0]->values, &slope = call.inputs[1]->values;
  const auto& dy = call.of_outputs[0]->values;
  for (std::size_t i = 0; i < dy.size(); ++i) {
    const float b = slope[i % slope.size()], s = logistic(b * x[i]), turn = x[i] * s * (1 - s);
    if (call.gradients[0] != nullptr) call.gradients[0]->values[i] += dy[i] * (s + b * turn);
    if (call.gradients[1] != nullptr) {
      call.gradients[1]->values[i % slope.size()] += dy[i] * x[i] * turn;
    }
  }
}

void squares(const LocalCall& call) {
  for (const float x : call.inputs[0]->values) call.outputs[0]->values[0] += x * x;
}

void squares_back(const LocalCall& call) {
  const auto& x = call.inputs[0]->values;
  const float dy = call.of_outputs[0]->values[0];
  for (std::size_t i = 0; i < x.size(); ++i) call.gradients[0]->values[i] += 2 * x[i] * dy;
}

exec::graphs::GraphTraining trained(const spmd::OperatorGraph& graph,
                                    const exec::graphs::GraphTrainingOptions& options) {
  const std::size_t loss = spmd::loss_of(graph, "energy");
  return exec::graphs::train_graph(graph, spmd::training_steps(graph, loss), options);
}

}  // namespace

int main() {
  const Json json = parse_json(kGraph, "graph");
  spmd::OperatorGraph graph = spmd::read_graph(JsonCursor(json, "graph"));
  graph.optimizer.learning_rate = 0.01;

  exec::graphs::GraphTrainingOptions options;
  options.steps = 20;
  options.functions["learned_swish"] = {swish, swish_back};
  options.functions["sum_of_squares"] = {squares, squares_back};

  const auto divided = trained(spmd::completed(graph).graph, options);
  const auto serial = trained(exec::graphs::on_one_rank(graph), options);
  double most = 0;
  for (const auto& [name, values] : divided.parameters) {
    most = std::max(most, exec::graphs::difference(values, serial.parameters.at(name)).relative);
  }
  std::printf("energy %.4f, after %d steps %.4f\n", divided.losses.front(), options.steps,
              divided.losses.back());
  const bool agrees = most <= 1e-6;
  std::printf("parameters %s those of one process within 1e-6 of the largest\n",
              agrees ? "equal" : "DIFFER from");
  return agrees && divided.losses.back() < divided.losses.front() / 2 ? 0 : 1;
}
