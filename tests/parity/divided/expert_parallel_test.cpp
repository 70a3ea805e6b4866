// Experts divided among ranks (expert parallelism): whatever the schedule, the number of ranks that
// hold the experts, tensor parallelism and replicas besides, in exact numerics losses, gradients
// and weights are those of the serial run bit for bit; in fast ones nearly.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "tests/parity/divided/divided_outcome.hpp"

namespace pipewright::tests {
namespace expert_parallel_test {

using exec::Numerics;
using planner::Schedule;

Model model_of(Json changes) {
  Json all = {{"style", "llama"}, {"heads", 4},           {"ffn", 12},     {"experts", 4},
              {"top_k", 2},       {"balance_loss", 0.05}, {"z_loss", 0.01}};
  all.update(changes);
  return divisible_model(all);
}
Model mixtral() { return model_of(Json::object()); }
/// Two experts a rank drop rows, and one more is there for all rows.
Model dropping() {
  return model_of({{"experts", 8}, {"top_k", 3}, {"shared_ffn", 8}, {"capacity_factor", 0.8}});
}
Model deepseek() {
  return model_of({{"experts", 8},
                   {"scoring", "sigmoid"},
                   {"groups", 4},
                   {"top_groups", 2},
                   {"scaling", 2.5},
                   {"balance_rate", 0.01}});
}
Model tied() { return model_of({{"tied_head", true}, {"normalised", false}}); }

class ExpertParallel : public testing::TestWithParam<const Schedule*> {};

TEST_P(ExpertParallel, HasTheSerialRunsBits) {
  expect_serial_bits_under(*GetParam(), mixtral(), [](int ranks) {
    return Layout{.tensor = 1, .experts = ranks == 2 ? 4 : 2};
  });
}

TEST_P(ExpertParallel, BesideZeroHasTheSerialRunsBits) {
  for (const int zero : {1, 2, 3}) {
    SCOPED_TRACE("ZeRO stage " + std::to_string(zero));
    expect_serial_bits_under(*GetParam(), mixtral(), [&](int ranks) {
      return Layout{
          .tensor = 1, .replicas = ranks == 2 ? 2 : 1, .sharded = true, .zero = zero, .experts = 2};
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, ExpertParallel, testing::ValuesIn(synchronous_schedules()),
                         [](const auto& one) { return name_of(*one.param); });

TEST(ExpertParallelLayouts, HaveTheSerialRunsBits) {
  const Order order = planner::make_order("1f1b", {2, 4, 1, {}});
  for (const Model& model : {mixtral(), dropping(), deepseek(), tied()}) {
    for (const StageDivision ranks : {StageDivision{1, 2}, {1, 4}, {2, 2}}) {
      SCOPED_TRACE("tp " + std::to_string(ranks.tensor) + ", ep " + std::to_string(ranks.experts));
      expect_serial_bits(order, model, {.tensor = ranks.tensor, .experts = ranks.experts});
    }
    expect_serial_bits(order, model, {.tensor = 1, .replicas = 2, .experts = 2});
  }
}

/// Each expert's holders share it out, all replicas the rest; in groups, each group has all parts.
TEST(ExpertParallelLayouts, BesideZeroHaveTheSerialRunsBits) {
  const Order order = planner::make_order("1f1b", {2, 4, 1, {}});
  for (const Model& model : {dropping(), deepseek(), tied()}) {
    for (const int zero : {1, 2, 3}) {
      SCOPED_TRACE("ZeRO stage " + std::to_string(zero));
      const auto expect = [&](Layout layout) {
        layout.sharded = true;
        layout.zero = zero;
        expect_serial_bits(order, model, layout);
      };
      expect({.tensor = 1, .experts = 4});
      expect({.tensor = 2, .experts = 2});
      expect({.tensor = 1, .replicas = 2, .experts = 2, .groups = 2});
    }
  }
}

TEST(ExpertParallelLayouts, GroupsThatDoNotHaveAllExpertsAreRefused) {
  const Layout layout{.tensor = 1, .sharded = true, .experts = 4, .groups = 2};
  const Program program =
      divided(planner::make_order("1f1b", {2, 4, 1, {}}), mixtral(), layout, "torch");
  try {
    train(program, mixtral(), Numerics::Fast, layout);
    ADD_FAILURE() << "not refused";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("take a sharding_degree that is a multiple of ep"),
              std::string::npos)
        << error.what();
  }
}

TEST(ExpertParallelLayouts, RecomputedLayersExchangeRowsAgain) {
  const Model model = dropping();
  expect_serial_bits(
      planner::make_order("zb-h1", {2, 4, 1, {}}), model,
      {.tensor = 1,
       .recompute = std::vector<LayerRecompute>(model.layers.size(), LayerRecompute::Whole),
       .experts = 2});
}

TEST(ExpertParallelLayouts, FastNumericsAreNearTheSerialRun) {
  expect_near_serial_run(dropping(), {.tensor = 1, .experts = 4});
}

}  // namespace expert_parallel_test
}  // namespace pipewright::tests
