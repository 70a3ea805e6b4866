// What placement finds for blocks of a GPT, a Llama and a Mixtral is really executed: in its
// layouts the same block, sixty-four times narrower, trains as on one rank.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/spmd/graph/graph_json.hpp"
#include "exec/spmd/graph_training.hpp"
#include "planner/tensor_placement/placement.hpp"
#include "planner/tensor_placement/step_prices.hpp"

namespace pipewright::spmd::test {
namespace placed_blocks_test {

using namespace planner::tensor_placement;

/// An example, with the mean of what it makes in the end as a loss.
OperatorGraph block(const std::string& name) {
  const std::string file = PIPEWRIGHT_SOURCE_DIR "/examples/graph-" + name + ".json";
  Json json = parse_json(read_text(file), file);
  const Json last = json["operators"].back()["outputs"].back();
  const auto rank = json["tensors"][last.get<std::string>()]["shape"].size();
  Json axes = Json::array();
  for (std::size_t axis = 0; axis < rank; ++axis) axes.push_back(axis);
  json["tensors"]["loss"] = {{"shape", Json::array()}, {"type", "float32"}};
  json["operators"].push_back({{"name", "mean of all"},
                               {"rule", "mean"},
                               {"inputs", Json::array({last})},
                               {"outputs", {"loss"}},
                               {"attributes", {axes, false}}});
  return read_graph(JsonCursor(json, file));
}

std::int64_t narrow(std::int64_t size) { return size < 64 ? size : size / 64; }

/// Widths are products of one large number and small ones, which stay.
OperatorGraph narrower(OperatorGraph graph) {
  for (GraphTensor& tensor : graph.tensors) {
    std::ranges::transform(tensor.shape, tensor.shape.begin(), narrow);
  }
  for (GraphOperator& one : graph.operators) {
    if (one.rule != "reshape") continue;
    auto& shape = std::get<std::vector<std::int64_t>>(one.attributes.front());
    std::ranges::transform(shape, shape.begin(), narrow);
  }
  return graph;
}

exec::graphs::GraphTraining trained(const OperatorGraph& graph) {
  return exec::graphs::train_graph(graph, training_steps(graph, loss_of(graph, "loss")),
                                   {.steps = 2});
}

void expect_alike(const std::map<std::string, std::vector<float>>& divided,
                  const std::map<std::string, std::vector<float>>& serial) {
  ASSERT_FALSE(serial.empty());
  ASSERT_EQ(divided.size(), serial.size());
  for (const auto& [name, values] : serial) {
    EXPECT_LE(exec::graphs::difference(divided.at(name), values).relative, 1e-6) << name;
  }
}

class PlacedBlocks : public ::testing::TestWithParam<std::string> {};

TEST_P(PlacedBlocks, TrainAsOneRankDoes) {
  const OperatorGraph whole = block(GetParam());
  const auto serial = trained(exec::graphs::on_one_rank(narrower(whole)));
  for (const std::vector<int>& shape :
       {std::vector<int>{2}, std::vector<int>{4}, std::vector<int>{8}, std::vector<int>{2, 4}}) {
    SCOPED_TRACE(::testing::PrintToString(shape));
    const Cluster cluster = cluster_preset("dgx-a100", 8);
    const GraphPlacement placement =
        placed(on_mesh(whole, shape), cluster, cluster.device.memory.value);
    ASSERT_TRUE(placement.is_found());
    EXPECT_EQ(placement.gap(), 0);
    const OperatorGraph& graph = placement.completion.graph;
    const auto divided = trained(narrower(graph));
    expect_alike(divided.gradients, serial.gradients);
    expect_alike(divided.parameters, serial.parameters);
    EXPECT_NEAR(divided.losses[1], serial.losses[1], 1e-6 * std::abs(serial.losses[1]));
    // A step's moves are the cheapest by their bytes, those of a placement by the cluster's prices.
    const TrainingSteps steps = training_steps(graph, loss_of(graph, "loss"));
    EXPECT_NEAR(StepPrices(graph, steps, cluster).whole(), placement.found.totals.ns,
                0.02 * placement.found.totals.ns);
  }
}

INSTANTIATE_TEST_SUITE_P(Examples, PlacedBlocks, ::testing::Values("gpt", "llama", "mixtral"),
                         [](const auto& of) { return of.param; });

}  // namespace placed_blocks_test
}  // namespace pipewright::spmd::test
