// Which chunk of which stage each operator of a pipeline is in, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/spmd/graph/explanation.hpp"
#include "core/spmd/graph/graph_json.hpp"

namespace pipewright::spmd {
namespace chunks_test {

Json example() {
  const std::string path = std::string(PIPEWRIGHT_SOURCE_DIR) + "/examples/graph-chunks.json";
  return parse_json(read_text(path), path);
}

Completion completed_of(const Json& json) {
  return completed(read_graph(JsonCursor(json, "graph.json")));
}

Json with(const std::string& mode, int degree, const std::string& method = "layer:Block") {
  Json json = example();
  json["pipeline"] = {{"schedule_mode", mode}, {"vpp_degree", degree}, {"vpp_seg_method", method}};
  return json;
}

/// "first 0": mesh and chunk.
std::string place(const Completion& found, const std::string& name) {
  const auto text = [&](const auto& annotation) {
    return found.graph.meshes[*annotation.mesh].name + " " + std::to_string(*annotation.chunk_id);
  };
  for (const GraphOperator& one : found.graph.operators) {
    if (one.name == name) return text(one.annotation);
  }
  for (const GraphTensor& one : found.graph.tensors) {
    if (one.name == name) return text(one.annotation);
  }
  return "nothing is called " + name;
}

std::string places(const Completion& found, const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + place(found, name);
  return all;
}

const std::vector<std::string> kProducts = {
    "embed", "Block_0/up", "Block_1/down", "Block_2/gelu", "Block_3/up", "classify", "mean"};

TEST(Chunks, GoRoundTheStages) {
  const Completion found = completed_of(with("VPP", 2));
  EXPECT_EQ(places(found, kProducts),
            "first 0, first 0, second 0, first 1, second 1, second 1, second 1");
  // Parameters come along, and what was annotated about how they lie.
  EXPECT_EQ(places(found, {"1.up", "2.up", "x2", "labels", "head", "table"}),
            "second 0, first 1, second 0, second 1, second 1, first 0");
  const auto up = std::ranges::find(found.graph.tensors, "1.up", &GraphTensor::name);
  EXPECT_EQ(up->annotation.layout->dims, (std::vector<std::vector<int>>{{}, {0}}));
  ASSERT_EQ(found.meshes.parts.size(), 4U);
  EXPECT_EQ(found.meshes.parts[2].layers, std::vector<std::string>{"Block_2"});
}

TEST(Chunks, ComeBackInVAndTheLossWithThem) {
  const Completion found = completed_of(with("ZBVPP", 2));
  EXPECT_EQ(places(found, kProducts),
            "first 0, first 0, second 0, second 1, first 1, first 1, first 1");
  EXPECT_EQ(places(found, {"labels", "head", "loss"}), "first 1, first 1, first 1");
}

TEST(Chunks, LeaveMeshesWhereTheUserHasCut) {
  Json json = with("VPP", 2);
  const char* meshes[] = {"second", "first", "second", "first"};
  for (int block = 0; block < 4; ++block) {
    json["tensors"][std::to_string(block) + ".up"]["annotation"]["mesh"] = meshes[block];
  }
  const Completion found = completed_of(json);
  EXPECT_EQ(places(found, kProducts),
            "first 0, second 0, first 0, second 1, first 1, second 1, second 1");
}

TEST(Chunks, AreOneOfEachStageWithoutADegree) {
  const Completion found = completed_of(example());
  EXPECT_EQ(places(found, kProducts),
            "first 0, first 0, first 0, second 0, second 0, second 0, second 0");
  EXPECT_TRUE(found.meshes.parts.empty());
}

TEST(Chunks, OfAllLayersAreAlikeInSizeAndTheLastOnesHaveMore) {
  using Layers = std::vector<std::vector<std::string>>;
  const auto layers_in = [](const Json& json) {
    Layers layers;
    for (const PipelinePart& one : completed_of(json).meshes.parts) layers.push_back(one.layers);
    return layers;
  };
  Json json = with("VPP", 2, "uniform");
  EXPECT_EQ(layers_in(json), Layers({{"embed", "Block_0"},
                                     {"Block_1", "Block_2"},
                                     {"Block_3", "classify"},
                                     {"lose", "mean"}}));
  json["operators"].back()["name"] = "lose/mean";
  EXPECT_EQ(
      layers_in(json),
      Layers({{"embed"}, {"Block_0", "Block_1"}, {"Block_2", "Block_3"}, {"classify", "lose"}}));
}

TEST(Chunks, KeepAnnotationsAndCompleteToThemselves) {
  Json json = with("VPP", 2);
  json["operators"][0]["annotation"] = {{"chunk_id", 1}};
  const Completion annotated = completed_of(json);
  EXPECT_EQ(place(annotated, "embed"), "first 1");
  for (const char* mode : {"VPP", "ZBVPP"}) {
    const Json once = to_json(completed_of(with(mode, 2)));
    EXPECT_EQ(to_json(completed_of(once)), once) << mode;
  }
}

TEST(Chunks, AreExplained) {
  const Completion found = completed_of(with("VPP", 2));
  EXPECT_EQ(explained(found, "2.up").chunk,
            "chunk 1 with operator \"Block_2/up\", which is in part 2, layers \"Block_2\" to "
            "\"Block_2\", on stage 0; the stages of all parts: 0 1 0 1");
}

std::string complaint(const Json& json) {
  try {
    (void)completed_of(json);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

void expect_complaint(const Json& json, const std::string& part) {
  EXPECT_NE(complaint(json).find(part), std::string::npos) << complaint(json);
}

TEST(Chunks, WhatCannotBeIsRefusedByName) {
  expect_complaint(
      with("VPP", 2, "layer:Blok"),
      "no operator has \"Blok\" in its name; their names begin with \"embed\", \"Block_0\"");
  expect_complaint(with("VPP", 3),
                   "names 4 layers, from \"Block_0\" to \"Block_3\", which do not "
                   "divide evenly among the 6 parts");
  expect_complaint(with("VPP", 5, "uniform"),
                   "names 8 layers, from \"embed\" to \"mean\", which are "
                   "fewer than the 10 parts");
  expect_complaint(with("1F1B", 2), "with the schedule \"1F1B\" a stage has one chunk");
  expect_complaint(with("VPP", 2, "block"), "expected \"uniform\" or \"layer:\" and a name");
  expect_complaint(with("VPP", 2, "layer:("), "\"(\" is no pattern of names");
  Json json = with("VPP", 2);
  json["pipeline"].erase("vpp_seg_method");
  expect_complaint(json, "nothing says where layers begin");
  json = with("VPP", 2);
  json["operators"][6]["name"] = "gelu";
  expect_complaint(json,
                   "operator \"gelu\" stands between those of layers \"Block_1\" and \"Block_1\"");
  json = with("VPP", 2);
  json["operators"][6]["name"] = "Block_0/again";
  expect_complaint(json,
                   "the operators of layer \"Block_0\" do not follow one another: "
                   "\"Block_1/up\" stands between \"Block_0/add\" and \"Block_0/again\"");
  json = with("VPP", 2);
  json["tensors"]["1.down"]["annotation"] = {{"mesh", "second"}};
  expect_complaint(json,
                   "layer \"Block_1\" is on two meshes: operator \"Block_1/up\" on \"first\", "
                   "\"Block_1/down\" on \"second\"");
  json = with("VPP", 2);
  for (auto& [name, tensor] : json["tensors"].items()) {
    if (tensor.contains("annotation")) tensor["annotation"]["mesh"] = "first";
  }
  expect_complaint(json, "all operators are on mesh \"first\"");
}

TEST(Chunks, GoByTheOrderOfAProgram) {
  Json json = with("VPP", 2);
  std::reverse(json["operators"].begin(), json["operators"].end());
  EXPECT_EQ(places(completed_of(json), kProducts),
            "first 0, first 0, second 0, first 1, second 1, second 1, second 1");
}

}  // namespace chunks_test
}  // namespace pipewright::spmd
