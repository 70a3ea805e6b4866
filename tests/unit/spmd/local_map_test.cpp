// Functions of somebody's own in graphs: how they take and make tensors, where their parts lie, and
// what is refused.
#include <gtest/gtest.h>

#include <cmath>

#include "core/base/error.hpp"
#include "core/spmd/graph/graph_json.hpp"
#include "exec/spmd/graph_training.hpp"

namespace pipewright::exec::graphs::test {
namespace local_map_test {

/// x w, then each element times its column's slope and by how far to the right it stands, then the
/// mean of squares; `how` annotates the function.
spmd::OperatorGraph graph(const std::string& how, const std::string& function = "lean") {
  const std::string text = R"({
    "schema": "pipewright.graph/1",
    "meshes": {"m": {"shape": [2, 2], "ranks": [0, 1, 2, 3]}},
    "tensors": {
      "x": {"shape": [5, 4], "type": "float32", "annotation": {"placements": ["S0", "R"]}},
      "w": {"shape": [4, 7], "type": "float32", "role": "parameter"},
      "h": {"shape": [5, 7], "type": "float32"},
      "slope": {"shape": [7], "type": "float32", "role": "parameter"},
      "y": {"shape": [5, 7], "type": "float32"},
      "squares": {"shape": [5, 7], "type": "float32"},
      "loss": {"shape": [], "type": "float32"}},
    "operators": [
      {"name": "up", "rule": "matmul", "inputs": ["x", "w"], "outputs": ["h"]},
      {"name": "own", "rule": "local_map", "attributes": [")" +
                           function + R"("],
       "inputs": [["h", "slope"]], "outputs": [["y"]], "annotation": )" +
                           how + R"(},
      {"name": "square", "rule": "square", "inputs": ["y"], "outputs": ["squares"]},
      {"name": "mean", "rule": "mean", "inputs": ["squares"], "outputs": ["loss"],
       "attributes": [[0, 1], false]}]})";
  const Json json = parse_json(text, "graph");
  return spmd::read_graph(JsonCursor(json, "graph"));
}

std::string layouts(const std::string& h, const std::string& slope, const std::string& y) {
  return R"({"inputs": [{"placements": )" + h + R"(}, {"placements": )" + slope +
         R"(}], "outputs": [{"placements": )" + y + "}]}";
}

float weight(const LocalArray& h, std::size_t i) {
  const auto columns = static_cast<std::size_t>(h.part.shape[1]);
  return 1 + 0.25F * static_cast<float>(h.part.offset[1] + static_cast<std::int64_t>(i % columns));
}

/// Of a slope that is whole while columns are divided the part's own elements are meant.
std::size_t slope_at(const LocalCall& call, std::size_t i) {
  const LocalArray &h = *call.inputs[0], &slope = *call.inputs[1];
  const auto column = static_cast<std::int64_t>(i) % h.part.shape[1] + h.part.offset[1];
  return static_cast<std::size_t>(column - slope.part.offset[0]);
}

LocalFunctions functions() {
  LocalFunction lean{[](const LocalCall& call) {
                       const LocalArray& h = *call.inputs[0];
                       for (std::size_t i = 0; i < h.values.size(); ++i) {
                         call.outputs[0]->values[i] =
                             h.values[i] * call.inputs[1]->values[slope_at(call, i)] * weight(h, i);
                       }
                     },
                     [](const LocalCall& call) {
                       const LocalArray& h = *call.inputs[0];
                       for (std::size_t i = 0; i < h.values.size(); ++i) {
                         const float dy = call.of_outputs[0]->values[i] * weight(h, i);
                         call.gradients[0]->values[i] +=
                             dy * call.inputs[1]->values[slope_at(call, i)];
                         call.gradients[1]->values[slope_at(call, i)] += dy * h.values[i];
                       }
                     }};
  return {{"lean", lean}, {"blind", {lean.forward, {}}}};
}

GraphTraining trained(const spmd::OperatorGraph& graph) {
  return train_graph(graph, training_steps(graph, loss_of(graph, std::nullopt)),
                     {.steps = 3, .functions = functions()});
}

void expect_as_on_one_rank(const spmd::OperatorGraph& given) {
  const GraphTraining divided = trained(completed(given).graph);
  const GraphTraining serial = trained(on_one_rank(given));
  for (std::size_t step = 0; step < serial.losses.size(); ++step) {
    EXPECT_NEAR(divided.losses[step], serial.losses[step], 1e-6 * std::abs(serial.losses[step]));
  }
  for (const auto& [name, values] : serial.parameters) {
    EXPECT_LE(difference(divided.parameters.at(name), values).relative, 1e-6) << name;
    EXPECT_LE(difference(divided.gradients.at(name), serial.gradients.at(name)).relative, 1e-6);
  }
}

/// Uneven parts, columns of 7 on 2 and rows of 5 on 2; what lies otherwise is brought there.
TEST(LocalMap, TrainsAsOnOneRankHoweverItTakesItsTensors) {
  const std::vector<std::array<std::string, 3>> all = {
      {R"(["S0", "S1"])", R"(["R", "S0"])", R"(["S0", "S1"])"},
      {R"(["S1", "S0"])", R"(["S0", "R"])", R"(["S1", "S0"])"},
      {R"(["S0", "R"])", R"(["R", "R"])", R"(["S0", "R"])"},
      {R"(["R", "S1"])", R"(["R", "R"])", R"(["R", "S1"])"},
      {R"(["S0", "S0"])", R"(["R", "R"])", R"(["S0", "S0"])"},
      {R"(["R", "R"])", R"(["R", "R"])", R"(["R", "R"])"},
  };
  for (const auto& [h, slope, y] : all) {
    SCOPED_TRACE(h + " and " + slope);
    expect_as_on_one_rank(graph(layouts(h, slope, y)));
  }
  expect_as_on_one_rank(graph("{}"));
}

/// It is linear in h: of summands it makes summands, which are summed behind it.
TEST(LocalMap, TakesAndMakesSummands) {
  const auto given =
      graph(layouts(R"j(["P(sum)", "S1"])j", R"(["R", "S0"])", R"j(["P(sum)", "S1"])j"));
  const spmd::OperatorGraph complete = completed(given).graph;
  const auto& annotation = complete.operators[1].annotation;
  EXPECT_EQ(annotation.outputs[0]->partial.at(0), spmd::Reduction::Sum);
  EXPECT_TRUE(complete.tensors[4].annotation.layout->partial.empty()) << "y lies summed";
  EXPECT_EQ(trained(complete).losses.size(), 3U);
  const double divided = trained(complete).losses[0],
               serial = trained(on_one_rank(given)).losses[0];
  EXPECT_NEAR(divided, serial, 1e-6 * serial);
}

TEST(LocalMap, IsReadAndWrittenAsAnyOperator) {
  const Json json = to_json(graph(layouts(R"(["S0", "S1"])", R"(["R", "S0"])", R"(["S0", "S1"])")));
  EXPECT_EQ(to_json(spmd::read_graph(JsonCursor(json, "again"))), json);
}

TEST(LocalMap, SaysWhichFunctionIsMissing) {
  const auto complaint = [](const std::string& function) -> std::string {
    try {
      trained(completed(graph("{}", function)).graph);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(complaint("learn").find("operator \"own\" (local_map): no function \"learn\" is given "
                                    "(did you mean \"lean\"?)"),
            std::string::npos)
      << complaint("learn");
  EXPECT_NE(complaint("blind").find("through which no gradient is computed here"),
            std::string::npos)
      << complaint("blind");
}

}  // namespace local_map_test
}  // namespace pipewright::exec::graphs::test
