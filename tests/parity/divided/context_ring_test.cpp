// Keys and values that go round the ranks which divide sequences (ring attention): whatever the
// schedule and the layout, in exact numerics losses, gradients and weights are those of the serial
// run bit for bit; in fast ones nearly. A step takes what its plan says.
#include <gtest/gtest.h>

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
namespace context_ring_test {

using exec::Numerics;
using planner::Schedule;

// Of eight tokens two ranks have chunks of two, four ranks chunks of one.
Model gpt() { return with_eight_tokens(Json::object()); }
Model llama() { return with_eight_tokens({{"style", "llama"}, {"kv_heads", 4}}); }
Model tied() { return with_eight_tokens({{"tied_head", true}}); }

class ContextRing : public testing::TestWithParam<const Schedule*> {};

TEST_P(ContextRing, HasTheSerialRunsBits) {
  for (const Model& model : {gpt(), llama()}) {
    SCOPED_TRACE(model.name);
    expect_serial_bits_under(*GetParam(), model,
                             [](int) { return Layout{.tensor = 1, .context = 2, .ring = true}; });
  }
}

TEST_P(ContextRing, IsNearTheSerialRunInFastNumerics) {
  const Schedule& schedule = *GetParam();
  const int ranks = schedule.name == "paddle-vpp" ? 4 : 2;  // which hangs on two
  const int m = micro_batches_for(schedule, ranks);
  ASSERT_GT(m, 0);
  const char* policy = schedule.policy.empty() ? "torch" : schedule.policy.data();
  const Order order = planner::make_order(schedule.name, {ranks, m, schedule.default_chunks, {}});
  const Layout layout{.tensor = 1, .context = 2, .ring = true};
  const Program program = divided(order, llama(), layout, policy, Numerics::Fast);
  const exec::VerifyReport verify = train(program, llama(), Numerics::Fast, layout).verify;
  EXPECT_LT(verify.gradients.norm_rel, 1e-6);
  EXPECT_LT(verify.parameters.norm_rel, 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Registry, ContextRing, testing::ValuesIn(synchronous_schedules()),
                         [](const auto& one) { return name_of(*one.param); });

TEST(ContextRingLayouts, HaveTheSerialRunsBits) {
  const Order order = planner::make_order("1f1b", {2, 4, 1, {}});
  for (const Model& model : {gpt(), llama(), tied()}) {
    expect_serial_bits_beside_zero(order, model, {.tensor = 1, .context = 2, .ring = true});
    expect_serial_bits(order, model, {.tensor = 1, .context = 4, .ring = true});
    expect_serial_bits(order, model, {.tensor = 2, .context = 2, .ring = true});
    expect_serial_bits(order, model, {.rows = true, .context = 2, .ring = true});
  }
}

TEST(ContextRingLayouts, RecomputedLayersSendTheirKeysRoundAgain) {
  const Order order = planner::make_order("zb-h1", {2, 4, 1, {}});
  const Model model = llama();
  for (const LayerRecompute what : {LayerRecompute::Whole, LayerRecompute::Attention}) {
    const Layout layout{.tensor = 1,
                        .recompute = std::vector<LayerRecompute>(model.layers.size(), what),
                        .context = 2,
                        .ring = true};
    expect_serial_bits(order, model, layout);
    expect_near_serial_run(model, layout);
  }
}

TEST(ContextRingLayouts, FastNumericsAreNearTheSerialRun) {
  for (const int ranks : {2, 4}) {
    expect_near_serial_run(gpt(), {.tensor = 1, .context = ranks, .ring = true}, kWithKeyBiases);
    expect_near_serial_run(llama(), {.tensor = 1, .context = ranks, .ring = true});
  }
  const Model longer = with_eight_tokens({{"style", "llama"}, {"kv_heads", 4}, {"sequence", 24}});
  for (const int ranks : {3, 4})
    expect_near_serial_run(longer, {.tensor = 1, .context = ranks, .ring = true});
  expect_near_serial_run(tied(), {.tensor = 1, .context = 2, .ring = true}, kWithKeyBiases);
  expect_near_serial_run(llama(), {.tensor = 2, .context = 2, .ring = true});
  expect_near_serial_run(llama(), {.rows = true, .context = 2, .ring = true});
  for (const int zero : {1, 2, 3}) {
    expect_near_serial_run(
        llama(),
        {.tensor = 1, .replicas = 2, .sharded = true, .zero = zero, .context = 2, .ring = true});
  }
}

/// Each rank's block takes its own time there, and nobody's clock stands while another one
/// computes.
TEST(ContextRingLayouts, OnTheVirtualClockNobodyWaitsForAnothersBlock) {
  const Layout layout{.tensor = 1, .context = 4, .ring = true};
  const Program program =
      divided(planner::make_order("1f1b", {1, 4, 1, {}}), llama(), layout, "torch", Numerics::Fast);
  DividedSetting setting(program, llama(), Numerics::Fast, layout);
  setting.training.clock = exec::local::ClockKind::Virtual;
  setting.training.verified_steps = 1;
  const auto result =
      exec::cpu::run_on_cpu(program, costs_of(program, 1000), setting.training, {.steps = 2});
  ASSERT_TRUE(result.finished());
  EXPECT_LT(result.verify.value().gradients.norm_rel, 1e-6);
}

/// Experts see their rank's rows, as ever.
TEST(ContextRingLayouts, AMixtureBesideItHasTheSerialRunsBits) {
  const Order order = planner::make_order("1f1b", {2, 4, 1, {}});
  const Model mixtral = divisible_mixtral({{"sequence", 8}, {"capacity_factor", 0.8}});
  expect_serial_bits(order, mixtral, {.tensor = 1, .context = 2, .ring = true});
  expect_serial_bits(order, mixtral, {.tensor = 1, .experts = 2, .context = 2, .ring = true});
  expect_near_serial_run(mixtral, {.tensor = 1, .context = 2, .ring = true});
}

using Calls = std::vector<std::string>;

/// What a block of Llama's shape tells others, in order; what goes on beside a computation with &.
Calls told(ActionKind kind, Numerics numerics, int context) {
  const StageDivision ranks{.tensor = 1, .context = context, .ring = true};
  Calls calls;
  for (const ActionParts& action : exec::divided_parts(llama(), 2, 3, 1, {}, ranks, numerics)) {
    if (action.kind != kind) continue;
    for (const Part& part : action.parts) {
      if (!part.is_computation()) calls.push_back(to_string(part));
    }
  }
  return calls;
}

std::string hop(const std::string& number, const std::string& shape) {
  return "RING_SEND(cp:2.block_1/0.attend/1.attention-keys-" + number + ":" + shape + ":float32)";
}

/// Keys and values of four heads, four wide.
TEST(ContextRingLayouts, KeysGoRoundAndTheirGradientsBehindThem) {
  EXPECT_EQ(told(ActionKind::F, Numerics::Fast, 2), Calls{"&" + hop("1", "4x32")});
  EXPECT_EQ(told(ActionKind::I, Numerics::Fast, 2),
            (Calls{"&" + hop("1", "4x32"), hop("home", "4x32")}));
  EXPECT_EQ(told(ActionKind::F, Numerics::Fast, 4),
            (Calls{"&" + hop("1", "2x32"), "&" + hop("2", "2x32"), "&" + hop("3", "2x32")}));
  EXPECT_EQ(told(ActionKind::I, Numerics::Fast, 4),
            (Calls{"&" + hop("1", "2x32"), "&" + hop("2", "2x32"), "&" + hop("3", "2x64"),
                   "&" + hop("4", "2x32"), hop("home", "2x32")}));
  EXPECT_EQ(told(ActionKind::W, Numerics::Fast, 4), Calls{});
}

TEST(ContextRingLayouts, InExactNumericsWhatComesRoundIsKept) {
  EXPECT_EQ(told(ActionKind::F, Numerics::Exact, 4),
            (Calls{hop("1", "2x32"), hop("2", "2x32"), hop("3", "2x32")}));
  EXPECT_EQ(told(ActionKind::I, Numerics::Exact, 4),
            (Calls{hop("1", "2x32"), hop("2", "2x32"), hop("3", "2x32"),
                   "REDUCE_SCATTER(cp:2.block_1/0.attend/1.attention-keys:8x32:float32)"}));
}

Job job_with(int context, int tensor, int replicas) {
  Job job;
  job.model = llama();
  job.cluster = cluster_preset("local-cpu", 8);
  job.cluster.device.model = "core";  // one for each rank
  job.global_batch = 8;
  job.strategy.mp_degree = {std::to_string(tensor)};
  job.strategy.cp_degree = {std::to_string(context)};
  job.strategy.cp_comm_type = {"p2p"};
  job.strategy.pp_degree = {"2"};
  job.strategy.dp_degree = {std::to_string(replicas)};
  job.strategy.accumulate_steps = {"4"};
  return job;
}

/// A plan that was searched for.
Plan tuned(int context, int tensor, int replicas, int zero, bool rows = false) {
  Job job = job_with(context, tensor, replicas);
  if (rows) job.strategy.use_sequence_parallel = {"true"};
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
  on_text.training.options.ranks.ring = plan.division().ring;
  on_text.training.verified_steps = 2;
  return exec::cpu::run_on_cpu(program, planner::costs_of_run(plan), on_text.training,
                               {.steps = 2});
}

void expect_runs_as_it_is(const Plan& plan) {
  EXPECT_TRUE(plan.ring);
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

TEST(ContextRingPlans, RunAsTheyAreAndTakeTheStepThatIsPredicted) {
  expect_runs_as_it_is(tuned(2, 1, 1, 0));
  expect_runs_as_it_is(tuned(4, 1, 1, 0));
  expect_runs_as_it_is(tuned(2, 2, 1, 0));
  expect_runs_as_it_is(tuned(2, 2, 1, 0, true));
  for (const int zero : {0, 1, 2, 3}) expect_runs_as_it_is(tuned(2, 1, 2, zero));
}

TEST(ContextRingPlans, TheCheaperWayIsChosen) {
  Job job = job_with(2, 1, 1);
  const auto step = [&](const Choice& types, bool open = false) {
    job.strategy.cp_comm_type = types;
    job.strategy.opens_cp_comm_type = open;
    return planner::search(job).best.value();
  };
  const Plan gather = step({"all_gather"}), ring = step({"p2p"});
  EXPECT_FALSE(gather.ring);
  EXPECT_TRUE(ring.ring);
  EXPECT_NE(gather.predicted.step, ring.predicted.step);
  const Plan& cheaper = gather.predicted.step < ring.predicted.step ? gather : ring;
  for (const Plan& found : {step({}, true), step({"p2p", "all_gather"})}) {
    EXPECT_EQ(found.ring, cheaper.ring);
    EXPECT_EQ(found.predicted.step, cheaper.predicted.step);
  }
  EXPECT_FALSE(step({}).ring) << "nobody asked";
}

std::string refusal(const Model& model, const Layout& planned, const Layout& layout) {
  const Program program =
      divided(planner::make_order("1f1b", {2, 4, 1, {}}), gpt(), planned, "torch", Numerics::Fast);
  DividedSetting setting(program, model, Numerics::Fast, layout);
  try {
    exec::cpu::run_on_cpu(program, costs_of(program, 1000), setting.training);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(ContextRingLayouts, WhatDoesNotGoRoundIsRefused) {
  const Layout ring{.tensor = 1, .context = 2, .ring = true}, gather{.tensor = 1, .context = 2};
  const auto expect_words = [](const std::string& text, const std::string& words) {
    EXPECT_NE(text.find(words), std::string::npos) << text;
  };
  expect_words(refusal(divisible_deepseek({{"sequence", 8}}), ring, ring),
               "keys and values do not go round the ranks along cp (cp_comm_type p2p) in layer "
               "\"1.block 0/0.attend/1.attention\" (latent_attention) yet; take cp_comm_type "
               "all_gather");
  expect_words(refusal(gpt(), gather, ring), "stands where a layer asks for &RING_SEND(cp:");
  expect_words(refusal(gpt(), ring, gather), "&RING_SEND(cp:");
}

}  // namespace context_ring_test
}  // namespace pipewright::tests
