// Layers divided among ranks (tensor parallelism): whatever the schedule, the number of ranks that
// divide a stage, and the replicas, in exact numerics losses, gradients and weights are those of
// the serial run bit for bit; in fast ones nearly.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "tests/parity/divided/divided_outcome.hpp"

namespace pipewright::tests {
namespace tensor_parallel_test {

using exec::Numerics;
using planner::Schedule;

class TensorParallel : public testing::TestWithParam<const Schedule*> {};

TEST_P(TensorParallel, HasTheSerialRunsBits) {
  expect_serial_bits_under(*GetParam(), divisible_llama(),
                           [](int ranks) { return Layout{.tensor = ranks == 2 ? 4 : 2}; });
}

INSTANTIATE_TEST_SUITE_P(Registry, TensorParallel, testing::ValuesIn(synchronous_schedules()),
                         [](const auto& one) { return name_of(*one.param); });

TEST(TensorParallelLayouts, HaveTheSerialRunsBits) {
  const Order order = planner::make_order("1f1b", {2, 4, 1, {}});
  for (const Model& model :
       {divisible_model(), divisible_llama(), divisible_mixtral(), divisible_tied()}) {
    for (const int tensor : {2, 4}) {
      SCOPED_TRACE(std::to_string(tensor) + " ranks a stage");
      expect_serial_bits(order, model, {.tensor = tensor});
    }
    for (const bool sharded : {false, true}) {
      SCOPED_TRACE(sharded ? "ZeRO stage 1" : "data parallel");
      expect_serial_bits(order, model, {.replicas = 2, .sharded = sharded});
      if (!sharded) continue;
      for (const int zero : {2, 3})
        expect_serial_bits(order, model, {.replicas = 2, .sharded = true, .zero = zero});
    }
  }
  expect_serial_bits(planner::make_order("1f1b", {1, 4, 1, {}}), divisible_model(), {.tensor = 8});
}

TEST(TensorParallelLayouts, AVocabularyThatDividesUnevenlyOrNotAtAllHasTheSerialRunsBits) {
  const Order order = planner::make_order("1f1b", {2, 4, 1, {}});
  // Text has bytes for tokens; 260 makes parts of 65 columns, and 4 do not divide 258.
  for (const int vocabulary : {260, 258}) {
    for (const bool is_tied : {false, true}) {
      const Model model = divisible_model({{"vocabulary", vocabulary}, {"tied_head", is_tied}});
      expect_serial_bits(order, model, {.tensor = 4});
    }
  }
}

TEST(TensorParallelLayouts, RecomputedLayersAskForTheirSumsAgain) {
  const Order order = planner::make_order("zb-h1", {2, 4, 1, {}});
  const Model model = divisible_llama();
  for (const LayerRecompute what : {LayerRecompute::Whole, LayerRecompute::Attention}) {
    expect_serial_bits(order, model,
                       {.recompute = std::vector<LayerRecompute>(model.layers.size(), what)});
  }
}

TEST(TensorParallelLayouts, FastNumericsAreNearTheSerialRun) {
  expect_near_serial_run(divisible_llama(), {.tensor = 4});
  for (const Model& model : {divisible_model(), divisible_tied()})
    expect_near_serial_run(model, {.tensor = 4}, kWithKeyBiases);
}

TEST(TensorParallelLayouts, PartsThatAreNotTheModelsAreRefused) {
  const Order pipeline = planner::make_order("1f1b", {2, 4, 1, {}});
  const Layout layout;
  const auto refusal = [&](const Program& refused) -> std::string {
    try {
      train(refused, divisible_llama(), Numerics::Fast, layout);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  };
  const std::string said = refusal(divided(pipeline, divisible_model(), layout));
  EXPECT_NE(said.find("the parts of 1B0 are not those of the model's layers"), std::string::npos)
      << said;
}

TEST(TensorParallelLayouts, AStageOfTheLossAloneIsRefused) {
  const Layout layout;
  const Model model = divisible_model();
  const Program program = divided(planner::make_order("1f1b", {2, 4, 1, {}}), model, layout);
  DividedSetting setting(program, model, Numerics::Fast, layout);
  std::vector<StagePlan>& stages = setting.training.stages;
  stages[0].end_layer = stages[1].first_layer = stages[1].end_layer;
  try {
    exec::cpu::run_on_cpu(program, costs_of(program, 1000), setting.training);
    FAIL() << "not refused";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("a stage of the loss alone"), std::string::npos)
        << error.what();
  }
}

}  // namespace tensor_parallel_test
}  // namespace pipewright::tests
