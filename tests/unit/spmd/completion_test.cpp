// What follows in a graph from a few annotations, why, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/spmd/graph/explanation.hpp"
#include "core/spmd/graph/graph_json.hpp"
#include "core/spmd/reshard_cases.hpp"

namespace pipewright::spmd {
namespace completion_test {

OperatorGraph graph_of(const Json& json) { return read_graph(JsonCursor(json, "graph.json")); }

OperatorGraph graph_of(const std::string& meshes, const std::string& tensors,
                       const std::string& operators) {
  return graph_of(parse_json(R"({"schema": "pipewright.graph/1", "meshes": {)" + meshes +
                                 R"(}, "tensors": {)" + tensors + R"(}, "operators": [)" +
                                 operators + "]}",
                             "graph.json"));
}

OperatorGraph example(const std::string& name) {
  const std::string path = std::string(PIPEWRIGHT_SOURCE_DIR) + "/examples/graph-" + name + ".json";
  return graph_of(parse_json(read_text(path), path));
}

const std::string kPair = R"("m": {"shape": [2], "dim_names": ["tp"], "ranks": [0, 1]})";
const std::string kGrid =
    R"("m": {"shape": [2, 2], "dim_names": ["dp", "tp"], "ranks": [0, 1, 2, 3]})";

std::string tensor(const std::string& name, const std::string& shape,
                   const std::string& annotation = "") {
  return "\"" + name + "\": {\"shape\": " + shape + R"(, "type": "float32")" +
         (annotation.empty() ? "" : ", \"annotation\": {" + annotation + "}") + "}";
}

const GraphTensor& named(const OperatorGraph& graph, const std::string& name) {
  return *std::find_if(graph.tensors.begin(), graph.tensors.end(),
                       [&](const GraphTensor& one) { return one.name == name; });
}

const GraphOperator& operator_called(const OperatorGraph& graph, const std::string& name) {
  return *std::find_if(graph.operators.begin(), graph.operators.end(),
                       [&](const GraphOperator& one) { return one.name == name; });
}

/// "S0 R".
std::string layout(const Completion& completion, const std::string& name) {
  const TensorAnnotation& annotation = named(completion.graph, name).annotation;
  return text_of(*annotation.layout, completion.graph.meshes[*annotation.mesh].mesh);
}

std::string mesh(const Completion& completion, const std::string& name) {
  return completion.graph.meshes[*named(completion.graph, name).annotation.mesh].name;
}

/// "y: P(sum) to R, all_reduce along 0, 64 B".
std::vector<std::string> reshards(const Completion& completion) {
  std::vector<std::string> texts;
  for (const GraphReshard& one : completion.reshards) {
    const OperatorGraph& graph = completion.graph;
    std::string text = graph.tensors[one.tensor].name + ": " +
                       text_of(one.from, graph.meshes[one.from_mesh].mesh) + " to " +
                       text_of(one.to, graph.meshes[one.to_mesh].mesh);
    for (const ReshardStep& step : one.plan.steps) text += ", " + text_of(step);
    texts.push_back(std::move(text));
  }
  return texts;
}

std::string implementation(const Completion& completion, const std::string& name) {
  const OperatorAnnotation& one = operator_called(completion.graph, name).annotation;
  return *one.impl_type + " " + std::to_string(*one.impl_idx);
}

using Texts = std::vector<std::string>;

TEST(Completion, DividesTheSecondProductByRowsWhereTheFirstIsByColumns) {
  const Completion mlp = completed(example("mlp"));
  EXPECT_EQ(layout(mlp, "x"), "R");
  EXPECT_EQ(layout(mlp, "hidden"), "S1");
  EXPECT_EQ(layout(mlp, "w_down"), "S0");
  EXPECT_EQ(layout(mlp, "y"), "R");
  EXPECT_EQ(implementation(mlp, "up"), "matmul_v2 0");
  EXPECT_EQ(implementation(mlp, "down"), "matmul_v2 1");
  EXPECT_EQ(implementation(mlp, "gelu"), "elementwise 0");
  EXPECT_EQ(reshards(mlp), Texts({"y: P(sum) to R, all_reduce along 0, 16384 B"}));
}

TEST(Completion, GoesBackwardToo) {
  const Completion found = completed(
      graph_of(kGrid,
               tensor("x", "[4, 6]") + "," + tensor("w", "[6, 8]") + "," + tensor("h", "[4, 8]") +
                   "," + tensor("y", "[4, 8]", R"("placements": ["S0", "S1"])"),
               R"({"name": "a", "rule": "matmul", "inputs": ["x", "w"], "outputs": ["h"]},
                  {"name": "b", "rule": "relu", "inputs": ["h"], "outputs": ["y"]})"));
  EXPECT_EQ(layout(found, "h"), "S0 S1");
  EXPECT_EQ(layout(found, "x"), "S0 R");
  EXPECT_EQ(layout(found, "w"), "R S1");
  EXPECT_EQ(reshards(found), Texts());
}

/// Of outputs that nobody takes the graph need not say anything: means and variances, sums of
/// exponentials.
TEST(Completion, GoesBackwardThroughOperatorsWhoseOutputsAreLeftOut) {
  const Completion norm = completed(
      graph_of(kPair,
               tensor("x", "[4, 6]") + ", " + tensor("scale", "[6]") + ", " +
                   tensor("bias", "[6]") + ", " + tensor("y", "[4, 6]", R"("placements": ["S0"])"),
               R"({"name": "norm", "rule": "layer_norm", "inputs": ["x", "scale", "bias"],
          "outputs": ["y"], "attributes": [1e-05, 1]})"));
  EXPECT_EQ(layout(norm, "x"), "S0");
  const std::string heads = "[2, 8, 4, 16]";
  const Completion attention = completed(
      graph_of(kPair,
               tensor("q", heads) + ", " + tensor("k", heads) + ", " + tensor("v", heads) + ", " +
                   tensor("out", heads, R"("placements": ["S2"])"),
               R"({"name": "mix", "rule": "flash_attention", "inputs": ["q", "k", "v", null, null],
          "outputs": ["out"]})"));
  EXPECT_EQ(layout(attention, "q") + layout(attention, "k") + layout(attention, "v"), "S2S2S2");
  EXPECT_EQ(implementation(attention, "mix"), "flash_attn 0");
  const std::string fewer = "[2, 8, 2, 16]";
  const Completion grouped = completed(
      graph_of(kPair,
               tensor("q", heads) + ", " + tensor("k", fewer) + ", " + tensor("v", fewer) + ", " +
                   tensor("out", heads, R"("placements": ["S2"])"),
               R"({"name": "mix", "rule": "flash_attention", "inputs": ["q", "k", "v", null, null],
          "outputs": ["out"]})"));
  EXPECT_EQ(layout(grouped, "q") + layout(grouped, "k") + layout(grouped, "v"), "S2S2S2");
}

TEST(Completion, SumsAtOnceIntoWhatIsWanted) {
  const Completion found = completed(graph_of(
      kPair,
      tensor("x", "[4, 6]", R"("placements": ["S1"])") + "," + tensor("w", "[6, 8]") + "," +
          tensor("h", "[4, 8]") + "," + tensor("y", "[4, 8]", R"("placements": ["S0"])"),
      R"({"name": "a", "rule": "matmul", "inputs": ["x", "w"], "outputs": ["h"]},
         {"name": "b", "rule": "relu", "inputs": ["h"], "outputs": ["y"]})"));
  EXPECT_EQ(layout(found, "w"), "S0");
  EXPECT_EQ(layout(found, "h"), "S0");
  EXPECT_EQ(reshards(found), Texts({"h: P(sum) to S0, reduce_scatter along 0, 64 B"}));
}

TEST(Completion, LeavesAnnotationsAndBringsTensorsWhereTheyAreTaken) {
  const Completion found = completed(
      graph_of(kPair,
               tensor("x", "[4, 6]", R"("placements": ["S0"])") + "," +
                   tensor("h", "[4, 6]", R"("placements": ["R"])") + "," + tensor("y", "[4, 6]"),
               R"({"name": "a", "rule": "relu", "inputs": ["x"], "outputs": ["h"]},
                  {"name": "b", "rule": "add", "inputs": ["h", "x"], "outputs": ["y"]})"));
  EXPECT_EQ(layout(found, "h"), "R");
  EXPECT_EQ(layout(found, "y"), "S0");
  EXPECT_EQ(reshards(found),
            Texts({"h: S0 to R, all_gather along 0, 48 B", "h: R to S0, slice along 0"}));
}

/// Two branches that nobody annotated at their end meet divided differently.
TEST(Completion, AReshardStandsWhereInferredLayoutsMeet) {
  const Completion found = completed(graph_of(
      kGrid,
      tensor("p", "[4, 4]", R"("placements": ["S0", "R"])") + "," +
          tensor("q", "[4, 4]", R"("placements": ["R", "S0"])") + "," + tensor("a", "[4, 4]") +
          "," + tensor("b", "[4, 4]") + "," + tensor("y", "[4, 4]"),
      R"({"name": "first", "rule": "exp", "inputs": ["p"], "outputs": ["a"]},
         {"name": "second", "rule": "exp", "inputs": ["q"], "outputs": ["b"]},
         {"name": "sum", "rule": "add", "inputs": ["a", "b"], "outputs": ["y"]})"));
  EXPECT_EQ(layout(found, "a"), "S0 R");
  EXPECT_EQ(layout(found, "b"), "R S0");
  EXPECT_EQ(layout(found, "y"), "S0 R");
  const Texts texts = reshards(found);
  ASSERT_EQ(texts.size(), 1U);
  EXPECT_EQ(texts[0].rfind("b: R S0 to S0 R", 0), 0U) << texts[0];
}

std::string complaint(const std::string& meshes, const std::string& tensors,
                      const std::string& operators) {
  try {
    (void)completed(graph_of(meshes, tensors, operators));
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(Completion, AnnotationsThatContradictEachOtherAtAnOperatorAreAnError) {
  const std::string tensors = tensor("a", "[4, 4]", R"("placements": ["S0", "R"])") + "," +
                              tensor("b", "[4, 4]", R"("placements": ["R", "S0"])") + "," +
                              tensor("y", "[4, 4]");
  const std::string sum = R"({"name": "sum", "rule": "add", "inputs": ["a", "b"],
                              "outputs": ["y"])";
  const std::string text = complaint(kGrid, tensors, sum + "}");
  EXPECT_NE(text.find(R"(operator "sum": the annotations of "a" and "b" contradict each other)"),
            std::string::npos)
      << text;
  const Completion settled = completed(graph_of(
      kGrid, tensors, sum + R"(, "annotation": {"inputs": [{"placements": ["S1", "R"]}, null]}})"));
  EXPECT_EQ(layout(settled, "y"), "S1 R");
  EXPECT_EQ(reshards(settled).size(), 2U);
}

TEST(Completion, AnOperatorsAnnotationHasToAgreeWithItsRule) {
  const std::string tensors =
      tensor("a", "[4, 4]") + "," + tensor("b", "[4, 4]") + "," + tensor("y", "[4, 4]");
  const auto sum = [](const std::string& annotation) {
    return R"({"name": "sum", "rule": "add", "inputs": ["a", "b"], "outputs": ["y"],
               "annotation": )" +
           annotation + "}";
  };
  const std::string text = complaint(
      kPair, tensors,
      sum(R"({"inputs": [{"placements": ["S0"]}, null], "outputs": [{"placements": ["S1"]}]})"));
  EXPECT_NE(text.find(R"(operator "sum" (add): its output "y" is annotated S1, and from what it )"
                      R"(takes follows S0)"),
            std::string::npos)
      << text;
  const Completion found =
      completed(graph_of(kPair, tensors, sum(R"({"outputs": [{"placements": ["S1"]}]})")));
  EXPECT_EQ(layout(found, "a"), "S1");
  EXPECT_EQ(layout(found, "y"), "S1");
}

TEST(Completion, LayoutsHaveToFitTheMeshThatIsFound) {
  const std::string meshes = kPair + R"(, "n": {"shape": [2], "ranks": [2, 3]})";
  const std::string text = complaint(
      meshes,
      tensor("w", "[4, 4]", R"("mesh": "n")") + "," +
          tensor("x", "[4, 4]", R"("dims_mapping": [1, -1])") + "," + tensor("y", "[4, 4]"),
      R"({"name": "a", "rule": "add", "inputs": ["w", "x"], "outputs": ["y"]})");
  EXPECT_NE(text.find(R"(tensor "x": names mesh dimension 1, and the mesh has 1)"),
            std::string::npos)
      << text;
}

const std::string kStages = R"("first": {"shape": [2], "dim_names": ["tp"], "ranks": [0, 1]},
                               "second": {"shape": [2], "dim_names": ["tp"], "ranks": [2, 3]},
                               "all": {"shape": [4], "ranks": [0, 1, 2, 3]})";

TEST(Completion, OperatorsAreWhereTheirInputsAreAnnotated) {
  const Completion found =
      completed(graph_of(kStages,
                         tensor("x", "[4, 4]") + "," + tensor("w", "[4, 4]", R"("mesh": "first")") +
                             "," + tensor("h", "[4, 4]") + "," + tensor("a", "[4, 4]") + "," +
                             tensor("v", "[4, 4]", R"("mesh": "second", "placements": ["S0"])") +
                             "," + tensor("y", "[4, 4]") + "," + tensor("z", "[4, 4]"),
                         R"({"name": "1", "rule": "matmul", "inputs": ["x", "w"], "outputs": ["h"]},
                  {"name": "2", "rule": "gelu", "inputs": ["h"], "outputs": ["a"]},
                  {"name": "3", "rule": "matmul", "inputs": ["a", "v"], "outputs": ["y"]},
                  {"name": "4", "rule": "add", "inputs": ["y", "h"], "outputs": ["z"]})"));
  EXPECT_EQ(mesh(found, "x"), "first");
  EXPECT_EQ(mesh(found, "a"), "first");
  EXPECT_EQ(mesh(found, "y"), "second");
  EXPECT_EQ(mesh(found, "z"), "second");
  // The meshes are alike: the rows that v divides reach back to the other mesh.
  EXPECT_EQ(layout(found, "a"), "S1");
  EXPECT_EQ(layout(found, "w"), "S1");
  const Texts texts = reshards(found);
  EXPECT_NE(std::find(texts.begin(), texts.end(), "a: S1 to S1, exchange, 32 B"), texts.end())
      << ::testing::PrintToString(texts);
}

TEST(Completion, ASharedTensorGivesItsMeshToItsFirstOperatorAlone) {
  const Completion found = completed(
      graph_of(kStages,
               tensor("w", "[4, 4]", R"("mesh": "first")") + "," + tensor("x", "[4, 4]") + "," +
                   tensor("h", "[4, 4]") + "," + tensor("v", "[4, 4]", R"("mesh": "second")") +
                   "," + tensor("k", "[4, 4]") + "," + tensor("y", "[4, 4]"),
               R"({"name": "1", "rule": "matmul", "inputs": ["x", "w"], "outputs": ["h"]},
                  {"name": "2", "rule": "matmul", "inputs": ["h", "v"], "outputs": ["k"]},
                  {"name": "3", "rule": "matmul", "inputs": ["k", "w"], "outputs": ["y"]})"));
  EXPECT_EQ(mesh(found, "y"), "second");
  const Texts texts = reshards(found);
  ASSERT_EQ(texts.size(), 2U);
  EXPECT_EQ(texts[1].rfind("w: R to R, exchange", 0), 0U) << texts[1];
}

TEST(Completion, OfTwoMeshesTheOneThatHoldsTheOther) {
  const Completion found = completed(
      graph_of(kStages,
               tensor("w", "[4, 4]", R"("mesh": "first")") + "," +
                   tensor("x", "[4, 4]", R"("mesh": "all")") + "," + tensor("y", "[4, 4]"),
               R"({"name": "1", "rule": "add", "inputs": ["w", "x"], "outputs": ["y"]})"));
  EXPECT_EQ(mesh(found, "y"), "all");
  EXPECT_EQ(mesh(found, "w"), "first");
}

TEST(Completion, AMeshThatNothingSaysIsAnError) {
  const std::string text =
      complaint(kStages, tensor("x", "[4]") + "," + tensor("y", "[4]"),
                R"({"name": "lonely", "rule": "relu", "inputs": ["x"], "outputs": ["y"]})");
  EXPECT_NE(text.find(R"(operator "lonely": no annotation says on which mesh it is)"),
            std::string::npos)
      << text;
}

TEST(Completion, EverythingHasAChunk) {
  const Completion found = completed(
      graph_of(kPair, tensor("x", "[4]") + "," + tensor("y", "[4]") + "," + tensor("z", "[4]"),
               R"({"name": "1", "rule": "relu", "inputs": ["x"], "outputs": ["y"]},
                  {"name": "2", "rule": "relu", "inputs": ["y"], "outputs": ["z"],
                   "annotation": {"chunk_id": 1}})"));
  EXPECT_EQ(operator_called(found.graph, "1").annotation.chunk_id, 0);
  EXPECT_EQ(operator_called(found.graph, "2").annotation.chunk_id, 1);
  EXPECT_EQ(named(found.graph, "y").annotation.chunk_id, 0);
  EXPECT_EQ(named(found.graph, "z").annotation.chunk_id, 1);
}

TEST(Completion, OfTheTransformerBlockIsMegatrons) {
  const Completion block = completed(example("transformer"));
  for (const char* name : {"w_q", "w_k", "w_v", "w_up"}) EXPECT_EQ(layout(block, name), "R S1");
  for (const char* name : {"w_o", "w_down", "b_up"}) EXPECT_EQ(layout(block, name), "R S0");
  for (const char* name : {"q_heads", "k_heads", "v_heads", "mixed_heads"}) {
    EXPECT_EQ(layout(block, name), "S0 S2");
  }
  for (const char* name : {"x", "n1", "projected", "r1", "n2", "down", "y"}) {
    EXPECT_EQ(layout(block, name), "S0 R");
  }
  for (const char* name : {"norm1.scale", "norm2.bias", "b_down"}) {
    EXPECT_EQ(layout(block, name), "R R");
  }
  EXPECT_EQ(reshards(block), Texts({"projected: S0 P(sum) to S0 R, all_reduce along 1, 2097152 B",
                                    "down: S0 P(sum) to S0 R, all_reduce along 1, 2097152 B"}));
}

TEST(Completion, OfExpertsExchangesTokensTwice) {
  const Completion experts = completed(example("moe"));
  EXPECT_EQ(layout(experts, "w_down"), "S0");
  EXPECT_EQ(layout(experts, "hidden"), "S0");
  EXPECT_EQ(layout(experts, "y"), "S0");
  int exchanges = 0;
  for (const std::string& text : reshards(experts)) {
    exchanges += text.find("all_to_all") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(exchanges, 2) << ::testing::PrintToString(reshards(experts));
  EXPECT_EQ(experts.reshards.size(), 2U);
}

TEST(Completion, OfTwoStagesCarriesTheDivisionAcross) {
  const Completion stages = completed(example("pipeline"));
  EXPECT_EQ(mesh(stages, "handed_on"), "first");
  EXPECT_EQ(mesh(stages, "hidden2"), "second");
  EXPECT_EQ(layout(stages, "handed_on"), "S0 R");
  EXPECT_EQ(layout(stages, "hidden2"), "S0 S2");
  EXPECT_EQ(layout(stages, "logits"), "S0 S2");
  EXPECT_EQ(layout(stages, "labels"), "S0 R");
  EXPECT_EQ(implementation(stages, "embed"), "lookup_table_v2 0");
  EXPECT_EQ(implementation(stages, "lose"), "softmax_with_cross_entropy 1");
}

TEST(Completion, DoesNotDependOnTheOrderOfOperators) {
  for (const char* name : {"mlp", "transformer", "moe", "pipeline"}) {
    OperatorGraph graph = example(name);
    const Json forward = to_json(completed(graph));
    std::reverse(graph.operators.begin(), graph.operators.end());
    Json backward = to_json(completed(graph));
    std::reverse(backward["operators"].begin(), backward["operators"].end());
    EXPECT_EQ(forward, backward) << name;
  }
}

TEST(Completion, OfACompletedGraphIsItself) {
  for (const char* name : {"mlp", "transformer", "moe", "pipeline"}) {
    const Json once = to_json(completed(example(name)));
    EXPECT_EQ(to_json(completed(graph_of(once))), once) << name;
  }
}

Texts reasons(const Completion& completion, const std::string& tensor, std::size_t axis) {
  Texts texts;
  const Explanation explanation = explained(completion, tensor);
  for (const auto& chain : explanation.dimensions[axis].divided_by) {
    for (const Reason& reason : chain) texts.push_back(text_of(reason, completion.graph));
  }
  return texts;
}

TEST(Explanation, LeadsBackToAnAnnotation) {
  const Completion mlp = completed(example("mlp"));
  EXPECT_EQ(reasons(mlp, "w_down", 0),
            Texts({R"(dimension 0 of "w_down" by matmul "down", forward, from dimension 1 of )"
                   R"("active")",
                   R"(dimension 1 of "active" by gelu "gelu", forward, from dimension 1 of )"
                   R"("hidden")",
                   R"(dimension 1 of "hidden" by matmul "up", forward, from dimension 1 of )"
                   R"("w_up")",
                   R"(dimension 1 of "w_up" is annotated)"}));
  EXPECT_EQ(reasons(mlp, "w_down", 1), Texts());
  const Json json = to_json(explained(mlp, "y"), mlp.graph);
  EXPECT_EQ(json.at("reshards").size(), 1U);
  EXPECT_EQ(json.at("dimensions").at(0).at("divided_by"), Json::array());
}

TEST(Explanation, EndsAtAnOperatorsAnnotationAndCrossesMeshes) {
  const Completion found = completed(
      graph_of(kStages, tensor("x", "[4]") + "," + tensor("y", "[4]") + "," + tensor("z", "[4]"),
               R"({"name": "1", "rule": "relu", "inputs": ["x"], "outputs": ["y"],
                   "annotation": {"process_mesh": "first",
                                  "inputs": [{"placements": ["S0"]}]}},
                  {"name": "2", "rule": "relu", "inputs": ["y"], "outputs": ["z"],
                   "annotation": {"process_mesh": "second"}})"));
  EXPECT_EQ(reasons(found, "z", 0),
            Texts({R"(dimension 0 of "z" by relu "2", forward, from dimension 0 of "y")",
                   R"(dimension 0 of "y" from mesh "first")",
                   R"(dimension 0 of "y" by relu "1", forward, from dimension 0 of "x")",
                   R"(dimension 0 of "x" is annotated at operator "1")"}));
}

TEST(Explanation, SaysWhatCouldNotBe) {
  const Completion found =
      completed(graph_of(kPair,
                         tensor("x", "[4, 4]", R"("placements": ["S0"])") + "," +
                             tensor("y", "[4, 4]", R"("placements": ["R"])"),
                         R"({"name": "1", "rule": "relu", "inputs": ["x"], "outputs": ["y"]})"));
  const Explanation explanation = explained(found, "y");
  ASSERT_EQ(explanation.dimensions[0].not_divided_by.size(), 1U);
  EXPECT_EQ(text_of(explanation.dimensions[0].not_divided_by[0][0], found.graph),
            R"(dimension 0 of "y" by relu "1", forward, from dimension 0 of "x")");
  EXPECT_THROW((void)explained(found, "z"), InputError);
}

}  // namespace completion_test
}  // namespace pipewright::spmd
