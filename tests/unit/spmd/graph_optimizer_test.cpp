// Optimizers of graphs: what divides their states, what then moves and is held, and PyTorch's
// losses.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/spmd/graph/graph_json.hpp"
#include "exec/spmd/graph_training.hpp"
#include "tests/support/command_runner.hpp"

namespace pipewright::spmd::test {
namespace graph_optimizer_test {

using exec::graphs::GraphTraining;
using Kind = GraphOptimizer::Kind;
using pipewright::test::Folder;

OperatorGraph example(const std::string& name) {
  const std::string file = std::string(PIPEWRIGHT_SOURCE_DIR) + "/docs/examples/" + name + ".json";
  const Json json = parse_json(read_text(file), file);
  return read_graph(JsonCursor(json, file));
}

struct Trained {
  OperatorGraph graph;
  TrainingSteps steps;
  GraphTraining training;
};

Trained trained(const std::string& name, Kind kind, int stage) {
  OperatorGraph given = example(name);
  given.optimizer.kind = kind;
  given.optimizer.learning_rate = 0.01;
  given.optimizer.sharding_stage = stage;
  Trained one{.graph = completed(given).graph, .steps = {}, .training = {}};
  one.steps = training_steps(one.graph, loss_of(one.graph, std::nullopt));
  one.training = exec::graphs::train_graph(one.graph, one.steps, {.steps = 4});
  return one;
}

/// Gradients are summed in the same order, and updates know one element alone.
TEST(GraphOptimizer, TrainsWithDividedStatesAsWithoutBitForBit) {
  for (const char* name : {"data-parallel", "hybrid-words", "small-gpt", "small-llama"}) {
    for (const Kind kind : {Kind::Sgd, Kind::Momentum, Kind::AdamW}) {
      const GraphTraining whole = trained(name, kind, 0).training;
      for (const int stage : {1, 2, 3}) {
        SCOPED_TRACE(name + std::string(", stage ") + std::to_string(stage));
        const GraphTraining divided = trained(name, kind, stage).training;
        EXPECT_EQ(divided.losses, whole.losses);
        EXPECT_EQ(divided.parameters, whole.parameters);
        EXPECT_EQ(divided.gradients, whole.gradients);
      }
    }
  }
}

/// Two matrices of 1,024 elements on two processes. Whole: gradients of one contribution (P) and of
/// its sum at once, beside that of the other.
TEST(GraphOptimizer, HoldsWhatLayoutsSay) {
  constexpr std::int64_t kMatrix = 4096;
  const StepMemory expected[] = {
      {2 * kMatrix, 3 * kMatrix, 4 * kMatrix, 0},
      {2 * kMatrix + kMatrix / 2, 3 * kMatrix, 2 * kMatrix, 0},
      {2 * kMatrix + kMatrix / 2, 2 * kMatrix, 2 * kMatrix, 0},
      {2 * kMatrix, 2 * kMatrix, 2 * kMatrix, 0},  // both parts, and one is whole
  };
  for (int stage = 0; stage < 4; ++stage) {
    SCOPED_TRACE("stage " + std::to_string(stage));
    const Trained one = trained("data-parallel", Kind::AdamW, stage);
    StepMemory formula = memory_of(one.graph, one.steps);
    EXPECT_EQ(formula, one.training.memory);
    formula.all = 0;
    EXPECT_EQ(formula.parameters, expected[stage].parameters);
    EXPECT_EQ(formula.gradients, expected[stage].gradients);
    EXPECT_EQ(formula.states, expected[stage].states);
  }
}

TEST(GraphOptimizer, HoldsLessWithEachStage) {
  for (const char* name : {"small-gpt", "small-llama"}) {
    std::vector<std::int64_t> all;
    for (int stage = 0; stage < 4; ++stage) {
      const Trained one = trained(name, Kind::AdamW, stage);
      EXPECT_EQ(memory_of(one.graph, one.steps), one.training.memory);
      all.push_back(one.training.memory.all);
    }
    EXPECT_TRUE(std::is_sorted(all.rbegin(), all.rend())) << name;
    EXPECT_LT(all.back(), all.front()) << name;
  }
}

std::vector<std::string> steps_of(const Trained& one, const std::string& parameter) {
  std::vector<std::string> names;
  for (const TrainingStep& step : one.steps.steps) {
    const bool is_update = step.kind == TrainingStep::Kind::Update;
    if (!is_update && step.kind != TrainingStep::Kind::Move) continue;
    const TrainingArray& array = one.steps.arrays[*step.inputs[0]];
    if (one.graph.tensors[array.tensor].name != parameter) continue;
    if (is_update) names.push_back("update");
    for (const ReshardStep& part : step.plan.steps) {
      names.push_back((array.is_gradient ? "d " : "") + std::string(name_of(part.kind)));
    }
  }
  return names;
}

TEST(GraphOptimizer, MovesWhatItsStageDivides) {
  using Names = std::vector<std::string>;
  const auto steps = [](int stage) {
    return steps_of(trained("data-parallel", Kind::Sgd, stage), "w_up");
  };
  EXPECT_EQ(steps(0), (Names{"d all_reduce", "update"}));
  EXPECT_EQ(steps(1), (Names{"d all_reduce", "slice", "d slice", "update", "all_gather"}));
  EXPECT_EQ(steps(2), (Names{"d reduce_scatter", "slice", "update", "all_gather"}));
  EXPECT_EQ(steps(3), (Names{"all_gather", "all_gather", "d reduce_scatter", "update"}));
}

TEST(GraphOptimizer, DividesTheDimensionThatLeavesLeast) {
  const ProcessMesh mesh{
      .shape = {2, 4}, .dim_names = {"dp", "tp"}, .ranks = {0, 1, 2, 3, 4, 5, 6, 7}};
  const auto dims = [&](const Shape& shape, const std::vector<std::vector<int>>& lies) {
    const auto divided = sharded_layout({shape, {.dims = lies, .partial = {}}}, mesh, "dp");
    return divided ? divided->dims : std::vector<std::vector<int>>();
  };
  using Dims = std::vector<std::vector<int>>;
  EXPECT_EQ(dims({8, 16}, {{}, {}}), (Dims{{0}, {}})) << "the first, as PaddlePaddle";
  EXPECT_EQ(dims({8, 16}, {{1}, {}}), (Dims{{1}, {0}})) << "the one that is whole";
  EXPECT_EQ(dims({3, 16}, {{}, {}}), (Dims{{}, {0}})) << "the even one";
  EXPECT_EQ(dims({1, 16}, {{}, {}}), (Dims{{}, {0}}));
  EXPECT_EQ(dims({16}, {{1}}), (Dims{{1, 0}})) << "further, where nothing is whole";
  EXPECT_EQ(dims({1}, {{}}), Dims()) << "nothing to be divided";
  EXPECT_EQ(dims({8, 16}, {{}, {0}}), Dims()) << "divided there already";
}

/// tests/golden/spmd/captured/make.py has them from torch.optim, with PyTorch's defaults.
TEST(GraphOptimizer, TrainsAsPyTorchDoes) {
  const std::string golden = std::string(PIPEWRIGHT_SOURCE_DIR) + "/tests/golden/spmd/captured/";
  const Folder folder;
  const auto captured = pipewright::test::pipewright(
      "spmd capture " + golden +
          "gpt.onnx --dimension batch=4 --mesh 2x2 -o gpt.json --weights w.st",
      folder);
  ASSERT_EQ(captured.status, 0) << captured.err;
  const Json all = parse_json(read_text(golden + "losses.json"), "losses.json").at("gpt with");
  for (const auto& [words, name] :
       {std::pair("momentum", "momentum"), std::pair("adamw --learning-rate 0.01", "adamw")}) {
    const auto result = pipewright::test::pipewright(
        "spmd run gpt.json --json --weights w.st --weights " + golden +
            "words-data.safetensors --sharding-stage 3 --sharding-dim d0 --optimizer " + words,
        folder);
    ASSERT_EQ(result.status, 0) << result.out << result.err;
    const Json losses = Json::parse(result.out).at("losses");
    for (std::size_t step = 0; step < 3; ++step)
      EXPECT_NEAR(losses[step], all.at(name)[step], 3e-5);
  }
}

std::string complaint(const std::string& optimizer) {
  Json json = to_json(example("data-parallel"));
  json["optimizer"] = Json::parse(optimizer);
  try {
    read_graph(JsonCursor(json, "graph.json"));
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(GraphOptimizer, IsReadAndWritten) {
  Json json = to_json(example("data-parallel"));
  EXPECT_FALSE(json.contains("optimizer"));
  json["optimizer"] = Json::parse(
      R"({"type": "adamw", "learning_rate": 0.5, "beta1": 0.8, "beta2": 0.9, "epsilon": 1e-5,
          "weight_decay": 0.25, "sharding_stage": 2, "sharding_dim": "dp"})");
  EXPECT_EQ(to_json(read_graph(JsonCursor(json, "graph.json"))), json);
}

TEST(GraphOptimizer, NamesThePlaceOfWhatIsWrong) {
  const auto expect = [](const std::string& optimizer, const std::string& sentence) {
    const std::string found = complaint(optimizer);
    EXPECT_NE(found.find(sentence), std::string::npos) << found;
  };
  expect(R"({"type": "adam"})", "/optimizer/type");
  expect(R"({"type": "adam"})", "did you mean \"adamw\"");
  expect(R"({"type": "sgd", "beta1": 0.9})", "beta1");
  expect(R"({"type": "adamw", "beta1": 1})", "/optimizer/beta1");
  expect(R"({"type": "sgd", "sharding_stage": 4})", "/optimizer/sharding_stage");
  expect(R"({"type": "sgd", "sharding_stage": 1, "sharding_dim": "db"})", "did you mean \"dp\"");
}

}  // namespace graph_optimizer_test
}  // namespace pipewright::spmd::test
