// pipewright spmd: what it prints, its exit status, and what it refuses.
#include <gtest/gtest.h>

#include "tests/support/command_runner.hpp"
#include "tests/support/json_schema.hpp"

namespace pipewright::test {
namespace cli_spmd_test {

constexpr const char* kCases = R"({"spmd_cases": [
  {"id": "product", "rule": "matmul", "direction": "forward",
   "mesh": {"shape": [2, 2], "process_ids": [0, 1, 2, 3]},
   "args": [{"shape": [8, 4], "dims_mapping": [0, 1]}, {"shape": [4, 6], "dims_mapping": [1, -1]}]},
  {"id": "refused", "rule": "add", "direction": "forward",
   "mesh": {"shape": [2, 2], "process_ids": [0, 1, 2, 3]},
   "args": [{"shape": [8], "dims_mapping": [0]}, {"shape": [8], "dims_mapping": [1]}]}]})";

TEST(SpmdInfer, AnswersInTheNotationOfTheFile) {
  const Folder folder;
  folder.write("cases.json", kCases);
  const auto result = pipewright("spmd infer cases.json --json", folder);
  ASSERT_EQ(result.status, 0) << result.err;
  const Json document = Json::parse(result.out);
  const SchemaSet schemas(std::string(PIPEWRIGHT_SOURCE_DIR) + "/docs/schemas");
  for (const std::string& problem : schemas.problems("result", document)) ADD_FAILURE() << problem;
  const Json cases = document.at("spmd_cases");
  ASSERT_EQ(cases.size(), 2U);
  EXPECT_EQ(cases[0].at("id"), "product");
  const Json out = cases[0].at("expect").at("outputs").at("0");
  EXPECT_EQ(out.at("dims_mapping"), Json({0, -1}));
  EXPECT_EQ(out.at("is_partial"), true);
  EXPECT_EQ(out.at("partial_dims"), Json({1}));
  EXPECT_EQ(cases[1].at("expect").at("raises").get<std::string>().rfind("add: mesh dimension", 0),
            0U);
}

TEST(SpmdInfer, PrintsPlacementsAndSentences) {
  const Folder folder;
  folder.write("cases.json", kCases);
  const auto result = pipewright("spmd infer cases.json", folder);
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.out.find("S0 S1, R S0"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("S0 P(sum)"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("refused: add: "), std::string::npos) << result.out;
}

TEST(SpmdInfer, NamesThePlaceOfWhatItCannotRead) {
  const Folder folder;
  const auto complaint = [&](const std::string& text) {
    folder.write("cases.json", text);
    const auto result = pipewright("spmd infer cases.json", folder);
    EXPECT_EQ(result.status, 2) << result.out;
    return result.err;
  };
  EXPECT_NE(complaint(R"({"spmd_cases": [{"id": "a", "rule": "relu", "direction": "sideways",
      "mesh": {"shape": [2], "process_ids": [0, 1]}, "args": []}]})")
                .find("cases.json: /spmd_cases/0/direction"),
            std::string::npos);
  EXPECT_NE(complaint(R"({"spmd_cases": [{"id": "a", "rule": "relu", "direction": "forward",
      "mesh": {"shape": [2], "process_ids": [0]}, "args": []}]})")
                .find("a mesh of shape 2 has 2 processes, not 1"),
            std::string::npos);
  EXPECT_NE(complaint(R"({"cases": []})").find("spmd_cases"), std::string::npos);
}

TEST(SpmdLayers, SaysWhereEachLayerIs) {
  const Folder folder;
  folder.write("layers.json", R"({"layer_to_mesh_cases": [
    {"layers": 3, "mesh": [[4, 5], [6, 7]], "dims": ["dp", "pp"], "schedule": "1f1b"},
    {"layers": 3, "mesh": [4, 5], "dims": ["pp"], "schedule": "VPP", "vpp_degree": 2},
    {"layers": 3, "mesh": [4, 5], "dims": ["tp"], "schedule": "1F1B"}]})");
  const auto result = pipewright("spmd layers layers.json --json", folder);
  ASSERT_EQ(result.status, 0) << result.err;
  const Json cases = Json::parse(result.out).at("layer_to_mesh_cases");
  EXPECT_EQ(cases[0].at("expect"), Json::parse(R"({"0": [4, 6], "1": [4, 6], "2": [5, 7]})"));
  EXPECT_EQ(cases[1].at("expect").at("raises"), "layers: 4 chunks have 3 layers; each needs one");
  EXPECT_EQ(cases[2].at("expect").at("raises"), "mesh: has no dimension \"pp\"");
  const auto text = pipewright("spmd layers layers.json", folder);
  EXPECT_NE(text.out.find("0-1      4 6"), std::string::npos) << text.out;
}

TEST(SpmdLayers, RefusesAMeshOfUnevenLists) {
  const Folder folder;
  folder.write("layers.json", R"({"layer_to_mesh_cases": [
    {"layers": 3, "mesh": [[4, 5], [6]], "dims": ["dp", "pp"], "schedule": "1F1B"}]})");
  const auto result = pipewright("spmd layers layers.json", folder);
  EXPECT_EQ(result.status, 2);
  EXPECT_NE(result.err.find("/layer_to_mesh_cases/0/mesh/1: expected lists of equal length"),
            std::string::npos)
      << result.err;
}

TEST(SpmdReshard, PrintsStepsBytesAndWhatEachRankHas) {
  const Folder folder;
  folder.write("reshards.json", R"({"reshard_cases": [
    {"id": "gather", "shape": [11, 20], "in": {"mesh": [0, 1], "placements": ["S0"]},
     "out": {"mesh": [0, 1], "placements": ["R"]}},
    {"id": "nothing", "shape": [4], "in": {"mesh": [0, 1], "placements": ["S0"]},
     "out": {"mesh": [0, 1], "placements": ["S0"]}}]})");
  const auto result = pipewright("spmd reshard reshards.json --json", folder);
  ASSERT_EQ(result.status, 0) << result.err;
  const Json gather = Json::parse(result.out).at("reshard_cases").at(0).at("expect");
  EXPECT_EQ(gather.at("in_local_shapes"), Json::parse(R"({"0": [6, 20], "1": [5, 20]})"));
  EXPECT_EQ(gather.at("local_shapes"), Json::parse(R"({"0": [11, 20], "1": [11, 20]})"));
  EXPECT_EQ(gather.at("steps").at(0).at("step"), "all_gather");
  EXPECT_EQ(gather.at("bytes"), 480);
  const auto text = pipewright("spmd reshard reshards.json", folder);
  EXPECT_NE(text.out.find("all_gather along 0, 480 B"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("2: S0  2: S0      0  none"), std::string::npos) << text.out;
}

TEST(SpmdReshard, NamesThePlaceOfAWrongPlacement) {
  const Folder folder;
  const auto complaint = [&](const std::string& placements) {
    folder.write("reshards.json", R"({"reshard_cases": [{"id": "a", "shape": [4],
      "in": {"mesh": [0, 1], "placements": )" +
                                      placements +
                                      R"(}, "out": {"mesh": [0, 1], "placements": ["R"]}}]})");
    const auto result = pipewright("spmd reshard reshards.json", folder);
    EXPECT_EQ(result.status, 2) << result.out;
    return result.err;
  };
  EXPECT_NE(complaint(R"(["S1"])").find("divides dimension 1 of a tensor that has 1"),
            std::string::npos);
  EXPECT_NE(complaint(R"(["Q"])").find("/reshard_cases/0/in/placements/0: expected a placement"),
            std::string::npos);
  EXPECT_NE(
      complaint(R"(["R", "R"])").find("expected one placement for each dimension of the mesh"),
      std::string::npos);
}

TEST(SpmdPartition, CutsAClusterAndRefusesOtherKeys) {
  const Folder folder;
  folder.write("cluster.json", R"({"cluster_partition": {"device_meshes": {"2x8": []}}})");
  const auto result = pipewright("spmd partition cluster.json --json", folder);
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(Json::parse(result.out).at("cluster_partition").at("device_meshes").at("2x8"),
            Json::parse("[[[2, 8]], [[1, 8], [1, 8]]]"));
  folder.write("cluster.json", R"({"cluster_partition": {"device_meshes": {"two": []}}})");
  const auto refused = pipewright("spmd partition cluster.json", folder);
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.err.find("a key such as \"2x8\""), std::string::npos) << refused.err;
}

constexpr const char* kGraph = R"({"schema": "pipewright.graph/1",
  "meshes": {"devices": {"shape": [2], "dim_names": ["tp"], "ranks": [0, 1]}},
  "tensors": {
    "x": {"shape": [8, 4], "type": "float32"},
    "w": {"shape": [4, 6], "type": "float32",
          "annotation": {"mesh": "devices", "placements": ["S0"]}},
    "y": {"shape": [8, 6], "type": "float32"}},
  "operators": [{"name": "product", "rule": "matmul", "inputs": ["x", "w"], "outputs": ["y"]}]})";

TEST(SpmdComplete, PrintsTensorsOperatorsAndReshards) {
  const Folder folder;
  folder.write("graph.json", kGraph);
  const auto result = pipewright("spmd complete graph.json", folder);
  ASSERT_EQ(result.status, 0) << result.err;
  for (const char* part : {"x       8x4    devices  S1", "S1, S0", "matmul_v2 1", "made by product",
                           "all_reduce along 0, 192 B"}) {
    EXPECT_NE(result.out.find(part), std::string::npos) << part << "\n" << result.out;
  }
}

TEST(SpmdComplete, WritesAFileThatCompletesToItself) {
  const Folder folder;
  folder.write("graph.json", kGraph);
  const auto result = pipewright("spmd complete graph.json --json -o done.json", folder);
  ASSERT_EQ(result.status, 0) << result.err;
  const Json document = Json::parse(result.out);
  const SchemaSet schemas(std::string(PIPEWRIGHT_SOURCE_DIR) + "/docs/schemas");
  for (const std::string& problem : schemas.problems("result", document)) ADD_FAILURE() << problem;
  const Json file = Json::parse(read_text((folder.path() / "done.json").string()));
  EXPECT_EQ(file, document.at("graph"));
  for (const std::string& problem : schemas.problems("graph", file)) ADD_FAILURE() << problem;
  EXPECT_EQ(document.at("reshard_bytes"), 192);
  const auto again = pipewright("spmd complete done.json --json", folder);
  EXPECT_EQ(Json::parse(again.out).at("graph"), file);
}

TEST(SpmdPlace, AnswersAsTheSchemaSays) {
  const Folder folder;
  folder.write("graph.json", kGraph);
  const SchemaSet schemas(std::string(PIPEWRIGHT_SOURCE_DIR) + "/docs/schemas");
  for (const auto& [flags, verdict] :
       {std::pair{"", "optimal"}, std::pair{" --explain x", "optimal"},
        std::pair{" --memory 1", "infeasible"}}) {
    const auto result = pipewright(std::string("spmd place graph.json --json") + flags, folder);
    const Json document = Json::parse(result.out);
    EXPECT_EQ(document.at("placement").at("verdict"), verdict) << flags;
    for (const std::string& problem : schemas.problems("result", document))
      ADD_FAILURE() << flags << ": " << problem;
  }
}

TEST(SpmdComplete, ExplainsATensor) {
  const Folder folder;
  folder.write("graph.json", kGraph);
  const auto result = pipewright("spmd complete graph.json --explain x", folder);
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.out.find("dimension 1 (4) is divided by tp"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("dimension 1 of \"x\" by matmul \"product\", forward, from dimension 0 "
                            "of \"w\""),
            std::string::npos)
      << result.out;
  const auto json = pipewright("spmd complete graph.json --explain x --json", folder);
  const Json chain =
      Json::parse(json.out).at("explanation").at("dimensions").at(1).at("divided_by").at(0);
  EXPECT_EQ(chain.at(0).at("operator"), "product");
  EXPECT_EQ(chain.at(1).at("because"), "annotation");
  const auto unknown = pipewright("spmd complete graph.json --explain z", folder);
  EXPECT_EQ(unknown.status, 2);
  EXPECT_NE(unknown.err.find("the graph has no tensor \"z\""), std::string::npos) << unknown.err;
}

TEST(SpmdComplete, NamesThePlaceOfWhatDoesNotFit) {
  const Folder folder;
  Json graph = Json::parse(kGraph);
  graph["operators"][0]["inputs"][1] = "v";
  folder.write("graph.json", graph.dump());
  const auto result = pipewright("spmd complete graph.json", folder);
  EXPECT_EQ(result.status, 2);
  EXPECT_NE(result.err.find("graph.json: /operators/0/inputs/1"), std::string::npos) << result.err;
}

}  // namespace cli_spmd_test
}  // namespace pipewright::test
