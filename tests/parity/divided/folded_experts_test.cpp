// Whole experts dealt out among the ranks along tp, of these along cp and of replicas (Megatron
// core's parallel folding, expert_tensor_parallel_size 1), each of which sends rows of its own:
// whatever the schedule and the layout, in exact numerics losses, gradients and weights are those
// of the serial run bit for bit; in fast ones nearly.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "tests/parity/divided/divided_outcome.hpp"
#include "tests/parity/divided/mixtures.hpp"

namespace pipewright::tests {
namespace folded_experts_test {

using exec::Numerics;
using planner::Schedule;

constexpr ExpertFold kTensor = ExpertFold::Tensor, kBoth = ExpertFold::TensorAndContext;

Model tied() { return mixture({{"tied_head", true}, {"normalised", false}}); }
/// A bias balances the experts.
Model deepseek(Json changes = Json::object()) {
  changes["sequence"] = 8;
  return divisible_deepseek(changes);
}
Model dropping_deepseek() { return deepseek({{"balance_loss", 0.02}, {"capacity_factor", 1.1}}); }

std::vector<Model> models() { return {mixtral(), dropping(), tied(), dropping_deepseek()}; }

class FoldedExperts : public testing::TestWithParam<const Schedule*> {};

/// Of eight ranks: tp 2 * dp 2 with ep 4 on two of a pipeline, and tp 2 with ep 2 on four.
TEST_P(FoldedExperts, HaveTheSerialRunsBits) {
  for (const Model& model : {mixtral(), deepseek()}) {
    SCOPED_TRACE(model.name);
    expect_serial_bits_under(*GetParam(), model, [](int ranks) {
      return Layout{.tensor = 2, .experts = ranks == 2 ? 2 : 1, .rows = true, .fold = kTensor};
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, FoldedExperts, testing::ValuesIn(synchronous_schedules()),
                         [](const auto& one) { return name_of(*one.param); });

TEST(FoldedExpertLayouts, AlongTpHaveTheSerialRunsBits) {
  const Order two = planner::make_order("1f1b", {2, 4, 1, {}});
  const Order one = planner::make_order("1f1b", {1, 4, 1, {}});
  for (const Model& model : models()) {
    SCOPED_TRACE(model.name);
    expect_serial_bits(two, model, {.rows = true, .fold = kTensor});
    expect_serial_bits(two, model, {.tensor = 4, .rows = true, .fold = kTensor});
    expect_serial_bits(one, model, {.experts = 2, .rows = true, .fold = kTensor});
    expect_serial_bits(one, model, {.experts = 4, .rows = true, .fold = kTensor});
  }
}

TEST(FoldedExpertLayouts, BesideSequencesHaveTheSerialRunsBits) {
  const Order two = planner::make_order("zb-h1", {2, 4, 1, {}});
  const Order one = planner::make_order("1f1b", {1, 4, 1, {}});
  for (const Model& model : models()) {
    SCOPED_TRACE(model.name);
    // Ranks along cp have the same experts, or others.
    expect_serial_bits(two, model, {.rows = true, .context = 2, .fold = kTensor});
    expect_serial_bits(two, model, {.rows = true, .context = 2, .fold = kBoth});
    expect_serial_bits(one, model, {.rows = true, .context = 4, .fold = kBoth});
    expect_serial_bits(one, model, {.experts = 2, .rows = true, .context = 2, .fold = kBoth});
  }
}

/// A rank has half a chunk of a sequence, or parts of three.
TEST(FoldedExpertLayouts, RowsThatEndInsideChunksHaveTheSerialRunsBits) {
  const Order order = planner::make_order("1f1b", {1, 4, 1, {}});
  for (const ExpertFold fold : {kTensor, kBoth})
    for (const int sequence : {8, 16})
      expect_serial_bits(order, mixture({{"sequence", sequence}, {"capacity_factor", 0.7}}),
                         {.tensor = 4, .rows = true, .context = 2, .fold = fold});
}

TEST(FoldedExpertLayouts, BesideReplicasAndZeroHaveTheSerialRunsBits) {
  const Order two = planner::make_order("1f1b", {2, 4, 1, {}});
  const Order one = planner::make_order("zb-h1", {1, 4, 1, {}});
  for (const Model& model : {dropping(), dropping_deepseek()}) {
    SCOPED_TRACE(model.name);
    expect_serial_bits_beside_zero(two, model, {.rows = true, .fold = kTensor});
    expect_serial_bits_beside_zero(one, model, {.experts = 2, .rows = true, .fold = kTensor});
    expect_serial_bits_beside_zero(one, model, {.rows = true, .context = 2, .fold = kTensor});
    expect_serial_bits_beside_zero(one, model, {.rows = true, .context = 2, .fold = kBoth});
  }
  Layout groups{.replicas = 2,
                .sharded = true,
                .zero = 2,
                .groups = 2,
                .rows = true,
                .context = 2,
                .fold = kBoth};
  expect_serial_bits(one, mixtral(), groups);
}

TEST(FoldedExpertLayouts, GroupsThatDoNotHaveAllExpertsAreRefused) {
  const Layout layout{
      .sharded = true, .experts = 2, .groups = 2, .rows = true, .context = 2, .fold = kBoth};
  const Program program =
      divided(planner::make_order("1f1b", {1, 4, 1, {}}), mixtral(), layout, "torch");
  try {
    train(program, mixtral(), Numerics::Exact, layout);
    ADD_FAILURE() << "not refused";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("take a sharding_degree that is a multiple of"),
              std::string::npos)
        << error.what();
  }
}

TEST(FoldedExpertLayouts, RecomputedLayersExchangeRowsAgain) {
  const Order order = planner::make_order("zb-h1", {2, 4, 1, {}});
  for (const Model& model : {dropping(), dropping_deepseek()}) {
    for (const LayerRecompute what : {LayerRecompute::Whole, LayerRecompute::Attention}) {
      expect_serial_bits(order, model,
                         {.recompute = std::vector<LayerRecompute>(model.layers.size(), what),
                          .experts = 2,
                          .rows = true,
                          .fold = kTensor});
    }
  }
}

TEST(FoldedExpertLayouts, FastNumericsAreNearTheSerialRun) {
  for (const Model& model : {mixtral(), deepseek()}) {
    expect_near_serial_run(model, {.tensor = 4, .rows = true, .fold = kTensor});
    expect_near_serial_run(model, {.experts = 2, .rows = true, .fold = kTensor});
    expect_near_serial_run(model, {.rows = true, .context = 2, .fold = kBoth});
  }
}

/// What a block, the model's third layer, tells others beside attention and what every row goes
/// through, in order.
std::vector<std::string> told(const Model& model, ActionKind kind, const StageDivision& ranks) {
  std::vector<std::string> calls = calls_in(exec::divided_parts(model, 3, 4, 1, {}, ranks), kind);
  std::erase_if(calls, [](const std::string& call) {
    return call.find("1.experts") == std::string::npos || call.find("/shared") != std::string::npos;
  });
  return calls;
}

TEST(FoldedExpertLayouts, RowsGoStraightToTheRanksOfTheirExperts) {
  using Calls = std::vector<std::string>;
  const std::string experts = "3.block_2/1.feed_forward/1.experts";
  const auto exchange = [&](const std::string& group, const std::string& way, int rows) {
    return "ALL_TO_ALL(" + group + ":" + experts + "/" + way + ":" + std::to_string(rows) +
           "x32:float32)";
  };
  const StageDivision along_tp{.tensor = 2, .rows = true, .fold = kTensor};
  // Of eight rows four each, for two experts a row.
  EXPECT_EQ(told(mixtral(), ActionKind::F, along_tp),
            (Calls{"ALL_GATHER(tp:" + experts + "-choices:2x8:float32)",
                   exchange("tp", "dispatch", 8), exchange("tp", "combine", 8)}));
  EXPECT_EQ(told(mixtral(), ActionKind::I, along_tp),
            (Calls{exchange("tp", "dispatch", 8), exchange("tp", "combine", 8)}));
  EXPECT_EQ(told(mixtral(), ActionKind::W, along_tp), Calls{});
  const StageDivision beside{.tensor = 2, .experts = 2, .rows = true, .fold = kTensor};
  EXPECT_EQ(told(tied(), ActionKind::F, beside),
            (Calls{exchange("tp+ep", "dispatch", 8), exchange("tp+ep", "combine", 8)}));
  const StageDivision all{.tensor = 2, .experts = 2, .rows = true, .context = 2, .fold = kBoth};
  EXPECT_EQ(told(tied(), ActionKind::F, all),
            (Calls{exchange("tp+cp+ep", "dispatch", 4), exchange("tp+cp+ep", "combine", 4)}));
}

}  // namespace folded_experts_test
}  // namespace pipewright::tests
