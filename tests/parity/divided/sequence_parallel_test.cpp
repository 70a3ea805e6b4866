// Rows of a micro-batch divided among the ranks that divide its layers (sequence parallelism):
// whatever the schedule and the model, in exact numerics losses, gradients and weights are those of
// the serial run bit for bit; in fast ones nearly.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "tests/parity/divided/divided_outcome.hpp"

namespace pipewright::tests {
namespace sequence_parallel_test {

using exec::Numerics;
using planner::Schedule;

// Two and four ranks divide eight tokens.
Model gpt() { return with_eight_tokens(Json::object()); }
Model llama() { return with_eight_tokens({{"style", "llama"}, {"kv_heads", 4}}); }
Model mixtral() { return divisible_mixtral({{"sequence", 8}}); }
Model deepseek() { return divisible_deepseek({{"sequence", 8}}); }

class SequenceParallel : public testing::TestWithParam<const Schedule*> {};

TEST_P(SequenceParallel, HasTheSerialRunsBits) {
  for (const Model& model : {gpt(), llama(), mixtral()}) {
    SCOPED_TRACE(model.name);
    expect_serial_bits_under(*GetParam(), model, [](int ranks) {
      return Layout{.tensor = ranks == 2 ? 4 : 2, .rows = true};
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, SequenceParallel, testing::ValuesIn(synchronous_schedules()),
                         [](const auto& one) { return name_of(*one.param); });

TEST(SequenceParallelLayouts, HaveTheSerialRunsBits) {
  const Order order = planner::make_order("1f1b", {2, 4, 1, {}});
  const Model tied = with_eight_tokens({{"tied_head", true}});
  for (const Model& model : {gpt(), llama(), mixtral(), deepseek(), tied})
    expect_serial_bits_beside_zero(order, model, {.rows = true});
  expect_serial_bits(planner::make_order("1f1b", {1, 4, 1, {}}), gpt(),
                     {.tensor = 8, .rows = true});
  for (const Model& model : {mixtral(), deepseek()})
    expect_serial_bits(order, model, {.experts = 2, .rows = true});
}

TEST(SequenceParallelLayouts, AWholeTableOrHeadSeesAllRows) {
  const Order order = planner::make_order("zb-h1", {2, 4, 1, {}});
  for (const bool is_tied : {false, true})
    expect_serial_bits(order, with_eight_tokens({{"vocabulary", 258}, {"tied_head", is_tied}}),
                       {.tensor = 4, .rows = true});
}

TEST(SequenceParallelLayouts, RecomputedLayersAskForTheirRowsAgain) {
  const Order order = planner::make_order("zb-h1", {2, 4, 1, {}});
  for (const LayerRecompute what : {LayerRecompute::Whole, LayerRecompute::Attention}) {
    const Model model = llama();
    expect_serial_bits(
        order, model,
        {.recompute = std::vector<LayerRecompute>(model.layers.size(), what), .rows = true});
  }
}

TEST(SequenceParallelLayouts, FastNumericsAreNearTheSerialRun) {
  expect_near_serial_run(gpt(), {.tensor = 4, .rows = true}, kWithKeyBiases);
  for (const Model& model : {llama(), mixtral()})
    expect_near_serial_run(model, {.tensor = 4, .rows = true});
}

/// What the stage of an embedding and a block of Llama's shape tells others, in order.
std::vector<std::string> told(ActionKind kind) {
  return calls_in(exec::divided_parts(llama(), 0, 2, 1, {}, {2, 1, true}), kind);
}

TEST(SequenceParallelLayouts, RowsAreGatheredInFrontOfDividedLayersAndScatteredBehind) {
  const std::string attention = "1.block_0/0.attend/1.attention";
  const std::string up = "1.block_0/1.feed_forward/1.gate_and_up";
  const std::string down = "1.block_0/1.feed_forward/3.down";
  const auto gather = [](const std::string& what) {
    return "ALL_GATHER(tp:" + what + ":8x32:float32)";
  };
  const auto scatter = [](const std::string& what) {
    return "REDUCE_SCATTER(tp:" + what + ":8x32:float32)";
  };
  using Calls = std::vector<std::string>;
  EXPECT_EQ(told(ActionKind::F),
            (Calls{scatter("0.embedding-out"), gather(attention + "-in"),
                   scatter(attention + "-out"), gather(up + "-in"), scatter(down + "-out")}));
  EXPECT_EQ(told(ActionKind::I), (Calls{gather(down + "-out"), scatter(up + "-in"),
                                        gather(attention + "-out"), scatter(attention + "-in")}));
  // Two norms of 32 numbers.
  EXPECT_EQ(told(ActionKind::W), (Calls{"ALL_REDUCE(tp:norms:1x64:float32)", gather(down + "-out"),
                                        gather(up + "-in"), gather(attention + "-in"),
                                        gather(attention + "-out"), gather("0.embedding-out")}));
  Calls both = told(ActionKind::I);
  for (const std::string& call : told(ActionKind::W)) both.push_back(call);
  EXPECT_EQ(told(ActionKind::B), both);
}

std::string refusal(const Model& model, const Layout& layout) {
  const Layout whole{.tensor = layout.tensor};
  const Program program = divided(planner::make_order("1f1b", {2, 4, 1, {}}), model, whole);
  DividedSetting setting(program, model, Numerics::Fast, layout);
  try {
    exec::cpu::run_on_cpu(program, costs_of(program, 1000), setting.training);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(SequenceParallelLayouts, WhatDoesNotDivideIsRefused) {
  EXPECT_NE(
      refusal(with_eight_tokens({{"sequence", 6}}), {.tensor = 4, .rows = true})
          .find("sequence parallelism with tp 4 does not divide the 6 tokens of a sample; the "
                "nearest tp that do are 3 and 6"),
      std::string::npos);
  EXPECT_NE(refusal(gpt(), {.tensor = 2, .rows = true}).find("are not those of the model's layers"),
            std::string::npos);
}

}  // namespace sequence_parallel_test
}  // namespace pipewright::tests
