// Sequences divided among ranks (context parallelism): whatever the schedule and the model, in
// exact numerics losses, gradients and weights are those of the serial run bit for bit; in fast
// ones nearly.
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "exec/devices/paced/device.hpp"
#include "planner/plans/run_of_plan.hpp"
#include "planner/search/search.hpp"
#include "tests/parity/divided/divided_outcome.hpp"
#include "tests/parity/plan_training.hpp"

namespace pipewright::tests {
namespace context_parallel_test {

using exec::Numerics;
using planner::Schedule;

// Of eight tokens two ranks have chunks of two, four ranks chunks of one.
Model gpt() { return with_eight_tokens(Json::object()); }
Model llama() { return with_eight_tokens({{"style", "llama"}, {"kv_heads", 4}}); }
Model tied() { return with_eight_tokens({{"tied_head", true}}); }

class ContextParallel : public testing::TestWithParam<const Schedule*> {};

TEST_P(ContextParallel, HasTheSerialRunsBits) {
  for (const Model& model : {gpt(), llama()}) {
    SCOPED_TRACE(model.name);
    expect_serial_bits_under(*GetParam(), model,
                             [](int) { return Layout{.tensor = 1, .context = 2}; });
  }
}

/// Each of two ranks has half a sequence, and its two along tp have half of these rows each.
TEST_P(ContextParallel, BesideSequenceParallelismHasTheSerialRunsBits) {
  expect_serial_bits_under(*GetParam(), llama(),
                           [](int) { return Layout{.rows = true, .context = 2}; });
}

INSTANTIATE_TEST_SUITE_P(Registry, ContextParallel, testing::ValuesIn(synchronous_schedules()),
                         [](const auto& one) { return name_of(*one.param); });

TEST(ContextParallelLayouts, HaveTheSerialRunsBits) {
  const Order order = planner::make_order("1f1b", {2, 4, 1, {}});
  for (const Model& model : {gpt(), llama(), tied()})
    expect_serial_bits_beside_zero(order, model, {.tensor = 1, .context = 2});
}

TEST(ContextParallelLayouts, FourRanksAndTensorParallelOnesHaveTheSerialRunsBits) {
  const Order order = planner::make_order("zb-h1", {2, 4, 1, {}});
  for (const Model& model : {gpt(), llama(), tied()}) {
    expect_serial_bits(order, model, {.tensor = 1, .context = 4});
    expect_serial_bits(order, model, {.tensor = 2, .context = 2});
  }
  expect_serial_bits(order, with_eight_tokens({{"vocabulary", 258}}), {.tensor = 4, .context = 2});
}

Model mixtral() { return divisible_mixtral({{"sequence", 8}, {"capacity_factor", 0.8}}); }

TEST(ContextParallelLayouts, BesideSequenceParallelismHaveTheSerialRunsBits) {
  const Order one = planner::make_order("1f1b", {1, 4, 1, {}});
  const Order two = planner::make_order("zb-h1", {2, 4, 1, {}});
  for (const Model& model :
       {gpt(), llama(), tied(), mixtral(), divisible_deepseek({{"sequence", 8}})}) {
    expect_serial_bits(two, model, {.rows = true, .context = 2});
    expect_serial_bits(one, model, {.tensor = 4, .rows = true, .context = 2});
    expect_serial_bits(one, model, {.tensor = 2, .rows = true, .context = 4});
    expect_serial_bits_beside_zero(one, model, {.rows = true, .context = 2});
  }
  for (const bool is_tied : {false, true})  // a whole table and head
    expect_serial_bits(one, with_eight_tokens({{"vocabulary", 258}, {"tied_head", is_tied}}),
                       {.tensor = 4, .rows = true, .context = 2});
  expect_serial_bits(one, mixtral(), {.experts = 2, .rows = true, .context = 2});
}

TEST(ContextParallelLayouts, ATiedHeadBesideItsEmbeddingIsRoundedByItself) {
  expect_serial_bits(planner::make_order("1f1b", {1, 4, 1, {}}), tied(),
                     {.tensor = 1, .context = 2});
}

TEST(ContextParallelLayouts, RecomputedLayersAskForTheirKeysAgain) {
  const Order order = planner::make_order("zb-h1", {2, 4, 1, {}});
  for (const LayerRecompute what : {LayerRecompute::Whole, LayerRecompute::Attention}) {
    const Model model = llama();
    expect_serial_bits(order, model,
                       {.tensor = 1,
                        .recompute = std::vector<LayerRecompute>(model.layers.size(), what),
                        .context = 2});
    expect_serial_bits(order, model,
                       {.recompute = std::vector<LayerRecompute>(model.layers.size(), what),
                        .rows = true,
                        .context = 2});
  }
}

TEST(ContextParallelLayouts, FastNumericsAreNearTheSerialRun) {
  for (const int ranks : {2, 4}) {
    expect_near_serial_run(gpt(), {.tensor = 1, .context = ranks}, kWithKeyBiases);
    expect_near_serial_run(llama(), {.tensor = 1, .context = ranks});
  }
  expect_near_serial_run(gpt(), {.rows = true, .context = 2}, kWithKeyBiases);
  expect_near_serial_run(llama(), {.rows = true, .context = 2});
}

/// What the stage of a block of Llama's shape and the head tells others, in order.
std::vector<std::string> told(ActionKind kind, Numerics numerics) {
  const StageDivision ranks{.tensor = 1, .experts = 1, .rows = false, .context = 2};
  const Model model = llama();
  const int end = static_cast<int>(model.layers.size());
  return calls_in(exec::divided_parts(model, 6, end, 1, {}, ranks, numerics), kind);
}

TEST(ContextParallelLayouts, KeysAreGatheredAndTheirGradientsScattered) {
  const std::string keys = "cp:6.block_5/0.attend/1.attention-keys:8x32:float32)";
  using Calls = std::vector<std::string>;
  for (const Numerics numerics : {Numerics::Fast, Numerics::Exact}) {
    EXPECT_EQ(told(ActionKind::F, numerics),
              (Calls{"ALL_GATHER(" + keys, "ALL_GATHER(cp:loss.rows:8x2:float32)"}));
    EXPECT_EQ(told(ActionKind::I, numerics),
              (Calls{"ALL_GATHER(" + keys, "REDUCE_SCATTER(" + keys}));
  }
  EXPECT_EQ(told(ActionKind::W, Numerics::Fast), Calls{});
  EXPECT_EQ(told(ActionKind::W, Numerics::Exact).size(), 1U);
}

/// In W, of a block and the head behind it, whose rows two ranks along tp divide, too: in fast
/// numerics these sum norms' gradients. In exact ones they gather what all layers have kept, then
/// ranks along cp go on with the sums.
TEST(ContextParallelLayouts, RowsAreGatheredBeforeGradientsAreSummedInTurns) {
  const StageDivision ranks{.tensor = 2, .experts = 1, .rows = true, .context = 2};
  const auto told_by = [&](Numerics numerics) {
    return calls_in(exec::divided_parts(llama(), 1, 2, 1, {}, ranks, numerics), ActionKind::W);
  };
  const std::string block = "1.block_0/", attend = block + "0.attend/",
                    feed = block + "1.feed_forward/";
  const auto gather = [](const std::string& what, int width) {
    return "ALL_GATHER(tp:" + what + ":4x" + std::to_string(width) + ":float32)";
  };
  using Calls = std::vector<std::string>;
  EXPECT_EQ(told_by(Numerics::Fast),
            (Calls{"ALL_REDUCE(tp:norms:1x64:float32)", gather(feed + "3.down-out", 32),
                   gather(feed + "1.gate_and_up-in", 32), gather(attend + "1.attention-in", 32),
                   gather(attend + "1.attention-out", 32)}));
  Calls exact = told_by(Numerics::Exact);
  ASSERT_FALSE(exact.empty());
  EXPECT_EQ(exact.back().substr(0, 24), "ALL_REDUCE(cp:gradients:");
  exact.pop_back();
  const auto kept = [&](const std::string& norm) {
    return Calls{gather(norm + "-kept-0", 32), gather(norm + "-kept-1", 32),
                 gather(norm + "-kept-2", 1)};
  };
  Calls expected{gather(feed + "3.down-out", 32), gather(feed + "1.gate_and_up-in", 32)};
  for (const std::string& call : kept(feed + "0.norm")) expected.push_back(call);
  expected.push_back(gather(attend + "1.attention-in", 32));
  expected.push_back(gather(attend + "1.attention-out", 32));
  for (const std::string& call : kept(attend + "0.norm")) expected.push_back(call);
  EXPECT_EQ(exact, expected);
}

/// A plan that was searched for.
Plan tuned(int context, int tensor, int replicas, int zero, bool rows = false) {
  Job job;
  job.model = llama();
  job.cluster = cluster_preset("local-cpu", 8);
  job.cluster.device.model = "core";  // one for each rank
  job.global_batch = 8;
  job.strategy.mp_degree = {std::to_string(tensor)};
  job.strategy.cp_degree = {std::to_string(context)};
  job.strategy.pp_degree = {"2"};
  if (rows) job.strategy.use_sequence_parallel = {"true"};
  job.strategy.dp_degree = {std::to_string(replicas)};
  job.strategy.accumulate_steps = {"4"};
  if (zero > 0) {
    job.strategy.sharding_degree = replicas;
    job.strategy.sharding_stage = {std::to_string(zero)};
  }
  const planner::SearchResult result = planner::search(job);
  if (!result.best) throw std::runtime_error("no plan");
  return read_plan(JsonCursor(to_json(*result.best), "plan.json"));
}

exec::cpu::CpuResult trained(const Plan& plan, const Program& program, Numerics numerics) {
  PlanTraining on_text(plan, numerics);
  on_text.training.options.ranks.rows = plan.division().rows;
  on_text.training.verified_steps = 2;
  return exec::cpu::run_on_cpu(program, planner::costs_of_run(plan), on_text.training,
                               {.steps = 2});
}

void expect_runs_as_it_is(const Plan& plan) {
  EXPECT_EQ(plan.executable.at("cpu"), Executable{});
  const Program program = planner::program_of_run(plan);
  const CostTable costs = planner::costs_of_run(plan);
  const exec::RunResult paced =
      exec::paced::run_paced(program, costs, exec::local::ClockKind::Virtual, {.steps = 1});
  ASSERT_TRUE(paced.finished());
  EXPECT_EQ(Nanoseconds(figures_of(program, paced.timeline, costs).makespan_ns),
            plan.predicted.step);
  EXPECT_LT(trained(plan, program, Numerics::Fast).verify.value().gradients.norm_rel, 1e-6);
  const Program exact = planner::program_of_run(plan, Numerics::Exact);
  const exec::VerifyReport report = trained(plan, exact, Numerics::Exact).verify.value();
  EXPECT_TRUE(report.gradients.bitwise) << report.gradients.worst;
  EXPECT_TRUE(report.parameters.bitwise) << report.parameters.worst;
}

TEST(ContextParallelPlans, RunAsTheyAreAndTakeTheStepThatIsPredicted) {
  expect_runs_as_it_is(tuned(2, 1, 1, 0));
  expect_runs_as_it_is(tuned(4, 1, 1, 0));
  expect_runs_as_it_is(tuned(2, 2, 1, 0));
  expect_runs_as_it_is(tuned(2, 2, 1, 0, true));
  for (const int zero : {0, 1, 2, 3}) expect_runs_as_it_is(tuned(2, 1, 2, zero));
}

std::string refusal(const Model& model, const Layout& layout, Numerics numerics) {
  const Program program =
      divided(planner::make_order("1f1b", {2, 4, 1, {}}), gpt(),
              {.tensor = layout.tensor, .experts = 1, .context = layout.context});
  DividedSetting setting(program, model, numerics, layout);
  try {
    exec::cpu::run_on_cpu(program, costs_of(program, 1000), setting.training);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(ContextParallelLayouts, WhatDoesNotDivideIsRefused) {
  const auto expect_words = [](const std::string& text, const std::string& words) {
    EXPECT_NE(text.find(words), std::string::npos) << text;
  };
  const Layout two{.tensor = 1, .context = 2};
  expect_words(refusal(with_eight_tokens({{"sequence", 10}}), two, Numerics::Fast),
               "cp 2 gives each rank 2 of 4 chunks of a sample, and its 10 tokens do not divide "
               "into them; the nearest lengths that do are 8 and 12");
  expect_words(refusal(model_preset("resnet-tiny"), two, Numerics::Fast),
               "context parallelism does not divide the rows of layer \"0.stem/0.conv\" (conv2d) "
               "yet; take cp 1");
  expect_words(refusal(gpt(), {.tensor = 8, .rows = true, .context = 2}, Numerics::Fast),
               "cp 2 gives each rank 4 tokens of a sample, which sequence parallelism with tp 8 "
               "does not divide; the nearest lengths of a sample that both divide are 16");
  // Parts of exact numerics, in which each W has one call more.
  expect_words(refusal(gpt(), two, Numerics::Fast), "are not those of the model's layers");
}

}  // namespace context_parallel_test
}  // namespace pipewright::tests
