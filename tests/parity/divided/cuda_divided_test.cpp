// Layers that ranks divide along tp, on the host's tables for GPUs: in exact numerics the serial
// run's bits, whatever the order in which the GPUs' work is done; in floats within rounding, with
// exactly the Program's all-reduces where NCCL sums.
#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "planner/schedules/registry.hpp"
#include "tests/parity/divided/cuda_divided.hpp"

namespace pipewright::tests {
namespace cuda_divided_test {

using namespace cuda_divided;

/// Calls of NCCL, of each kind.
struct Calls {
  int sums = 0, scattered = 0, gathered = 0;
  bool operator==(const Calls&) const = default;
};
Calls calls_so_far() {
  return {host_nccl_sums(), host_nccl_scattered_sums(), host_nccl_gatherings()};
}
Calls since(const Calls& before) {
  const Calls now = calls_so_far();
  return {now.sums - before.sums, now.scattered - before.scattered, now.gathered - before.gathered};
}

TEST(CudaDivided, LayersHaveTheSerialRunsBits) {
  const Order alone = planner::make_order("1f1b", {1, 4, 1, {}});
  const Order pipeline = planner::make_order("1f1b", {2, 4, 1, {}});
  for (const Over over : {Over::Copies, Over::Nccl}) {
    for (const Model& model : {divisible_model(), divisible_llama()}) {
      SCOPED_TRACE(over == Over::Nccl ? "NCCL" : "copies");
      expect_serial_bits(over, alone, model, {.tensor = 2});
      expect_serial_bits(over, pipeline, model, {.tensor = 2});
      expect_serial_bits(over, alone, model, {.tensor = 2, .replicas = 2});
    }
    expect_serial_bits(over, alone, divisible_model(), {.tensor = 4});
  }
}

TEST(CudaDivided, OtherSchedulesReplicasAndTiedHeadsToo) {
  for (const char* schedule : {"gpipe", "zb-h1", "zbv"}) {
    SCOPED_TRACE(schedule);
    const int chunks = std::string(schedule) == "zbv" ? 2 : 1;
    const Order order = planner::make_order(schedule, {2, 4, chunks, {}});
    expect_serial_bits(Over::Copies, order, divisible_llama(), {.tensor = 2});
  }
  const Order pipeline = planner::make_order("1f1b", {2, 4, 1, {}});
  expect_serial_bits(Over::Copies, pipeline, divisible_tied(), {.tensor = 2});
  for (const bool sharded : {false, true})
    expect_serial_bits(Over::Copies, pipeline, divisible_model(),
                       {.tensor = 2, .replicas = 2, .sharded = sharded});
}

/// 260 tokens make parts of 65 columns, which the sixteen parts of a sum do not divide; of 258 all
/// ranks have the whole table.
TEST(CudaDivided, VocabulariesThatDivideUnevenly) {
  const Order order = planner::make_order("1f1b", {1, 2, 1, {}});
  for (const int vocabulary : {260, 258})
    expect_serial_bits(Over::Copies, order, divisible_model({{"vocabulary", vocabulary}}),
                       {.tensor = 4});
}

TEST(CudaDivided, RecomputedLayersAskForTheirSumsAgain) {
  const Order order = planner::make_order("1f1b", {2, 2, 1, {}});
  const Model model = divisible_llama();
  for (const LayerRecompute what : {LayerRecompute::Whole, LayerRecompute::Attention}) {
    const std::vector<LayerRecompute> recompute(model.layers.size(), what);
    expect_serial_bits(Over::Copies, order, model, {.recompute = recompute});
  }
}

/// SGD: AdamW would make of a gradient's rounding another update.
void expect_brought_together(Over over, const Program& program, const DividedSetting& setting) {
  Calls expected;
  if (over == Over::Nccl)
    expected = {
        connecting_sums(program) + kSteps * (calls_of_groups(program, ActionKind::AllReduce) +
                                             calls_of_groups(program, ActionKind::ReduceGrad)),
        kSteps * calls_of_groups(program, ActionKind::ReduceScatter),
        kSteps * calls_of_groups(program, ActionKind::AllGather)};
  CudaTraining how = training_of(setting, Precision::Float32);
  how.training.optimizer.kind = exec::OptimizerKind::Sgd;
  for (const HostOrder streams : kOrders) {
    const Calls before = calls_so_far();
    const CudaResult run = trained(over, streams, program, how);
    ASSERT_TRUE(run.finished());
    EXPECT_EQ(since(before), expected);
    EXPECT_LE(run.verify->gradients.norm_rel, 2e-6) << run.verify->gradients.worst;
    EXPECT_LE(run.verify->parameters.norm_rel, 2e-6) << run.verify->parameters.worst;
    for (InstructionId id = 0; id < program.code.size(); ++id)
      EXPECT_GE(run.timeline.end[id], run.timeline.start[id]) << program.text(id);
  }
}

void expect_brought_together_by_nccl(const Model& model, const Layout& layout) {
  const Order order = planner::make_order("1f1b", {2, 4, 1, {}});
  for (const Over over : {Over::Copies, Over::Nccl}) {
    for (const CommPolicy& policy : policies_of(over)) {
      SCOPED_TRACE(to_string(policy.issue));
      const Program program = divided(order, model, layout, policy, Numerics::Fast);
      ASSERT_GT(calls_of_groups(program, ActionKind::AllReduce), 0);
      EXPECT_EQ(calls_of_groups(program, ActionKind::AllGather) > 0, layout.rows);
      expect_brought_together(over, program,
                              DividedSetting(program, model, Numerics::Fast, layout));
    }
  }
}

TEST(CudaDivided, FloatsAreSummedByNcclWhereTheyLie) {
  for (const Model& model : {divisible_model(), divisible_llama()})
    expect_brought_together_by_nccl(model, {.tensor = 2});
}

/// The norm, for which the host waits, goes beside sums that only GPUs know of.
TEST(CudaDivided, ReplicasOfDividedLayersAreSummedByNcclToo) {
  expect_brought_together_by_nccl(divisible_llama(), {.tensor = 2, .replicas = 2});
}

TEST(CudaDivided, RowsAreScatteredAndGatheredByNccl) {
  for (const char* style : {"gpt", "llama"})
    expect_brought_together_by_nccl(with_eight_tokens({{"style", style}}),
                                    {.tensor = 2, .rows = true});
}

TEST(CudaDivided, DividedRowsHaveTheSerialRunsBits) {
  const Order alone = planner::make_order("1f1b", {1, 4, 1, {}});
  const Order pipeline = planner::make_order("1f1b", {2, 4, 1, {}});
  const Layout rows{.tensor = 2, .rows = true};
  for (const Over over : {Over::Copies, Over::Nccl}) {
    SCOPED_TRACE(over == Over::Nccl ? "NCCL" : "copies");
    for (const char* style : {"gpt", "llama"}) {
      const Model model = with_eight_tokens({{"style", style}});
      expect_serial_bits(over, alone, model, rows);
      expect_serial_bits(over, pipeline, model, rows);
    }
  }
  // All ranks have the whole head, and see all rows in front of it; a table of two stages; norms
  // of replicas.
  expect_serial_bits(Over::Copies, pipeline, with_eight_tokens({{"vocabulary", 258}}),
                     {.tensor = 4, .rows = true});
  expect_serial_bits(Over::Copies, pipeline, with_eight_tokens({{"tied_head", true}}), rows);
  expect_serial_bits(Over::Copies, alone, with_eight_tokens(Json::object()),
                     {.tensor = 2, .replicas = 2, .sharded = true, .rows = true});
}

TEST(CudaDivided, SixteenBitsStayWithinTheirRounding) {
  const Order order = planner::make_order("1f1b", {2, 4, 1, {}});
  const Model model = with_eight_tokens({{"style", "llama"}, {"kv_heads", 4}});
  for (const bool rows : {false, true}) {
    const Layout layout{.tensor = 2, .rows = rows};
    for (const Over over : {Over::Copies, Over::Nccl}) {
      const Program program =
          divided(order, model, layout, policies_of(over).front(), Numerics::Fast);
      DividedSetting setting(program, model, Numerics::Fast, layout);
      const CudaResult run =
          trained(over, HostOrder::Lazy, program, training_of(setting, Precision::Bfloat16));
      ASSERT_TRUE(run.finished());
      EXPECT_LE(run.verify->gradients.norm_rel, 3e-2) << run.verify->gradients.worst;
      EXPECT_GT(run.verify->gradients.norm_rel, 1e-4);
    }
  }
}

TEST(CudaDivided, WhatNoGpuDividesIsRefusedByName) {
  const Order order = planner::make_order("1f1b", {1, 2, 1, {}});
  const auto refusal = [&](const Model& model, const Layout& layout) -> std::string {
    const Program program = divided(order, model, layout);
    DividedSetting setting(program, model, Numerics::Exact, layout);
    try {
      trained(Over::Copies, HostOrder::Eager, program, training_of(setting, Precision::Exact));
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  const Model eight = with_eight_tokens(Json::object());
  EXPECT_NE(refusal(eight, {.tensor = 1, .context = 2}).find("(cp)"), std::string::npos);
}

}  // namespace cuda_divided_test
}  // namespace pipewright::tests
