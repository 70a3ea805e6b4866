// Sequences divided among ranks (context parallelism) whose models have mixtures of experts or
// latent attention, beside divided experts too: whatever the schedule and the layout, in exact
// numerics losses, gradients and weights are those of the serial run bit for bit; in fast ones
// nearly.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/parity/divided/divided_outcome.hpp"

namespace pipewright::tests {
namespace context_mixtures_test {

using exec::Numerics;
using planner::Schedule;

Model mixture(Json changes) {
  Json all = {{"style", "llama"}, {"kv_heads", 4}, {"ffn", 12}, {"experts", 4}, {"top_k", 2}};
  all.update(changes);
  return with_eight_tokens(all);
}
/// What every row goes through besides, and both of the router's losses.
Model mixtral() { return mixture({{"shared_ffn", 8}, {"balance_loss", 0.05}, {"z_loss", 0.01}}); }
void give_routers_biases(std::vector<Layer>& layers) {
  for (Layer& layer : layers) {
    layer.bias |= layer.kind == LayerKind::MixtureOfExperts;
    give_routers_biases(layer.inner);
  }
}
/// Experts that are full drop the rows that come last in the micro-batch.
Model dropping() {
  Model model = mixture({{"experts", 8}, {"top_k", 3}, {"capacity_factor", 0.8}});
  give_routers_biases(model.layers);
  return model;
}
Model tied() { return mixture({{"tied_head", true}, {"normalised", false}}); }
Model deepseek(Json changes = Json::object()) {
  changes["sequence"] = 8;
  return divisible_deepseek(changes);
}
Model balanced_deepseek() { return deepseek({{"balance_loss", 0.02}, {"capacity_factor", 1.1}}); }

class ContextMixtures : public testing::TestWithParam<const Schedule*> {};

TEST_P(ContextMixtures, HaveTheSerialRunsBits) {
  expect_serial_bits_under(*GetParam(), mixtral(),
                           [](int) { return Layout{.tensor = 1, .context = 2}; });
}

TEST_P(ContextMixtures, BesideLatentAttentionHaveTheSerialRunsBits) {
  expect_serial_bits_under(*GetParam(), deepseek(),
                           [](int) { return Layout{.tensor = 1, .context = 2}; });
}

TEST_P(ContextMixtures, BesideDividedExpertsHaveTheSerialRunsBits) {
  expect_serial_bits_under(*GetParam(), mixtral(),
                           [](int) { return Layout{.tensor = 1, .experts = 2, .context = 2}; });
}

INSTANTIATE_TEST_SUITE_P(Registry, ContextMixtures, testing::ValuesIn(synchronous_schedules()),
                         [](const auto& one) { return name_of(*one.param); });

TEST(ContextMixtureLayouts, HaveTheSerialRunsBits) {
  const Order order = planner::make_order("1f1b", {2, 4, 1, {}});
  for (const Model& model : {mixtral(), dropping(), tied(), balanced_deepseek()}) {
    for (const StageDivision ranks :
         {StageDivision{.tensor = 1, .context = 4}, {.tensor = 2, .context = 2}}) {
      SCOPED_TRACE("tp " + std::to_string(ranks.tensor) + ", cp " + std::to_string(ranks.context));
      expect_serial_bits(order, model, {.tensor = ranks.tensor, .context = ranks.context});
    }
  }
}

TEST(ContextMixtureLayouts, BesideReplicasAndZeroHaveTheSerialRunsBits) {
  const Order order = planner::make_order("1f1b", {2, 4, 1, {}});
  for (const Model& model : {dropping(), balanced_deepseek()})
    expect_serial_bits_beside_zero(order, model, {.tensor = 1, .context = 2});
}

/// Whose rows come to an expert from several micro-batches, of each of which ranks have parts.
TEST(ContextMixtureLayouts, BesideDividedExpertsHaveTheSerialRunsBits) {
  const Order one = planner::make_order("1f1b", {1, 4, 1, {}});
  const Order two = planner::make_order("zb-h1", {2, 4, 1, {}});
  for (const Model& model : {mixtral(), dropping(), tied(), balanced_deepseek()}) {
    expect_serial_bits(two, model, {.tensor = 1, .experts = 2, .context = 2});
    expect_serial_bits(one, model, {.tensor = 1, .experts = 4, .context = 2});
    expect_serial_bits(one, model, {.tensor = 1, .experts = 2, .context = 4});
    expect_serial_bits(one, model, {.tensor = 2, .experts = 2, .context = 2});
    expect_serial_bits_beside_zero(one, model, {.tensor = 1, .experts = 2, .context = 2},
                                   {1, 2, 3});
  }
}

TEST(ContextMixtureLayouts, RecomputedLayersTellTheirChoicesAndKeysAgain) {
  const Order order = planner::make_order("zb-h1", {2, 4, 1, {}});
  for (const Model& model : {dropping(), balanced_deepseek()}) {
    for (const LayerRecompute what : {LayerRecompute::Whole, LayerRecompute::Attention}) {
      expect_serial_bits(order, model,
                         {.tensor = 1,
                          .recompute = std::vector<LayerRecompute>(model.layers.size(), what),
                          .context = 2});
    }
  }
}

TEST(ContextMixtureLayouts, FastNumericsAreNearTheSerialRun) {
  for (const int experts : {1, 2}) {
    const Layout layout{.tensor = 1, .experts = experts, .context = 2};
    expect_near_serial_run(mixtral(), layout);
    expect_near_serial_run(dropping(), layout);
    expect_near_serial_run(deepseek(), layout);
  }
}

/// What a block of the model, its third layer, tells others, in order, without keys of attention.
std::vector<std::string> told(const Model& model, ActionKind kind, Numerics numerics,
                              const StageDivision& ranks) {
  std::vector<std::string> calls =
      calls_in(exec::divided_parts(model, 3, 4, 1, {}, ranks, numerics), kind);
  std::erase_if(calls, [](const std::string& call) {
    return call.find("attention-keys") != std::string::npos;
  });
  return calls;
}

TEST(ContextMixtureLayouts, RanksTellHowOftenExpertsWereChosenWhereThatMatters) {
  using Calls = std::vector<std::string>;
  const StageDivision two{.tensor = 1, .context = 2};
  const Calls choices{"ALL_GATHER(cp:3.block_2/1.feed_forward/1.experts-choices:4x4:float32)"};
  for (const Numerics numerics : {Numerics::Fast, Numerics::Exact}) {
    EXPECT_EQ(told(mixtral(), ActionKind::F, numerics, two), choices);
    EXPECT_EQ(told(mixtral(), ActionKind::I, numerics, two), Calls{});
    EXPECT_EQ(told(tied(), ActionKind::F, numerics, two), Calls{}) << "nothing is dropped";
  }
  EXPECT_EQ(told(mixtral(), ActionKind::W, Numerics::Fast, two), Calls{});
  EXPECT_EQ(told(mixtral(), ActionKind::W, Numerics::Exact, two).size(), 1U);
  const StageDivision four{.tensor = 1, .experts = 2, .context = 2};
  EXPECT_EQ(told(mixtral(), ActionKind::F, Numerics::Fast, four).size(), 3U) << "there and back";
}

TEST(ContextMixtureLayouts, LatentKeysAreGatheredAndTheirGradientsScattered) {
  const StageDivision two{.tensor = 1, .context = 2};
  const auto parts = exec::divided_parts(deepseek(), 1, 2, 1, {}, two);
  const std::string keys = "cp:1.block_0/0.attend/1.attention-keys:8x";
  // Eight heads of keys and values, 5 + 3 wide; and a rotary key, 4 wide, or its gradient by head.
  EXPECT_EQ(calls_in(parts, ActionKind::F),
            std::vector<std::string>{"ALL_GATHER(" + keys + "68:float32)"});
  EXPECT_EQ(calls_in(parts, ActionKind::I),
            (std::vector<std::string>{"ALL_GATHER(" + keys + "68:float32)",
                                      "REDUCE_SCATTER(" + keys + "96:float32)"}));
}

}  // namespace context_mixtures_test
}  // namespace pipewright::tests
