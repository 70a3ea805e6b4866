// Experts divided among ranks (expert parallelism): whatever the schedule, the number of ranks that
// hold the experts, tensor parallelism and replicas besides, in exact numerics losses, gradients
// and weights are those of the serial run bit for bit; in fast ones nearly.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/order/devices.hpp"
#include "core/plan/tied_stages.hpp"
#include "exec/layers/divided_parts.hpp"
#include "planner/plans/data_parallel.hpp"
#include "sim/engine.hpp"
#include "tests/parity/outcome.hpp"

namespace pipewright::tests {
namespace expert_parallel_test {

using exec::Numerics;
using planner::Schedule;

Model model_of(Json changes) {
  Json transformer = {{"style", "llama"}, {"hidden", 32},      {"layers", 6},
                      {"heads", 4},       {"ffn", 12},         {"experts", 4},
                      {"top_k", 2},       {"vocabulary", 256}, {"balance_loss", 0.05},
                      {"z_loss", 0.01},   {"sequence", 5}};
  transformer.update(changes);
  return read_model(
      JsonCursor(Json{{"schema", "pipewright.model/1"}, {"transformer", transformer}}, "model"));
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

struct Layout {
  StageDivision ranks{.experts = 2};
  int replicas = 1;
  std::vector<LayerRecompute> recompute = {};
};

/// The pipeline's order, with the parts that the model's layers have, for all devices.
Program divided(const Order& pipeline, const Model& model, const Layout& layout,
                const char* policy) {
  Order order = planner::replicate(pipeline, layout.replicas);
  const std::vector<StagePlan> stages =
      equal_stages(model, lower(order, comm_policy_preset(policy)));
  for (std::size_t s = 0; s < stages.size(); ++s) {
    auto parts = exec::divided_parts(model, stages[s].first_layer, stages[s].end_layer,
                                     kMicroBatchSize, layout.recompute, layout.ranks);
    for (ActionParts& one : parts) {
      one.stage = StageId(static_cast<std::int64_t>(s));
      order.parts.push_back(std::move(one));
    }
  }
  if (layout.ranks.tensor > 1)
    order.mesh.push_back({std::string(kTensorAxis), layout.ranks.tensor});
  order.mesh.push_back({std::string(kExpertAxis), layout.ranks.experts});
  const auto tied = tied_stages(model, stages);
  return lower(written_out(order), comm_policy_preset(policy),
               {.clips = true, .optimizer = true, .tied = {tied.begin(), tied.end()}});
}

exec::VerifyReport train(const Program& program, const Model& model, Numerics numerics,
                         const Layout& layout) {
  Setting setting(program, model);
  auto& training = setting.training;
  training.micro_batches = micro_batches_of_data(program.devices, program.micro_batches);
  training.options.numerics = numerics;
  training.options.recompute = layout.recompute;
  training.optimizer.clip_grad_norm = 0.5;
  training.verified_steps = kSteps;
  const auto data = exec::make_data(
      model, {.samples = kMicroBatchSize, .micro_batches = training.micro_batches, .seed = 7},
      PIPEWRIGHT_SOURCE_DIR "/LICENSE");
  training.data = data.get();
  std::vector<double> losses;
  exec::RunOptions options{.steps = kSteps};
  options.on_step = [&](int, const exec::StepResult& step) { losses.push_back(step.loss.value()); };
  const auto result = exec::cpu::run_on_cpu(program, costs_of(program, 1000), training, options);
  EXPECT_TRUE(result.finished());
  EXPECT_TRUE(result.verify.has_value());
  if (numerics == Numerics::Exact) {
    EXPECT_EQ(losses, serial(training).losses);
  }
  return result.verify.value_or(exec::VerifyReport{});
}

void expect_serial_bits(const Order& pipeline, const Model& model, const Layout& layout,
                        const char* policy = "torch") {
  const exec::VerifyReport verify =
      train(divided(pipeline, model, layout, policy), model, Numerics::Exact, layout);
  EXPECT_TRUE(verify.gradients.bitwise) << verify.gradients.worst;
  EXPECT_TRUE(verify.parameters.bitwise) << verify.parameters.worst;
}

class ExpertParallel : public testing::TestWithParam<const Schedule*> {};

TEST_P(ExpertParallel, HasTheSerialRunsBits) {
  const Schedule& schedule = *GetParam();
  const char* policy = schedule.policy.empty() ? "torch" : schedule.policy.data();
  int tried = 0;
  for (const int ranks : {2, 4}) {
    const bool hangs = schedule.name == "paddle-vpp" && ranks == 2;
    const int m = hangs ? 0 : micro_batches_for(schedule, ranks);
    if (m == 0) continue;
    SCOPED_TRACE(std::to_string(ranks) + " pipeline ranks");
    const Order order = planner::make_order(schedule.name, {ranks, m, schedule.default_chunks, {}});
    expect_serial_bits(order, mixtral(), {.ranks = {.experts = ranks == 2 ? 4 : 2}}, policy);
    ++tried;
  }
  EXPECT_GT(tried, 0);
}

INSTANTIATE_TEST_SUITE_P(Registry, ExpertParallel, testing::ValuesIn(synchronous_schedules()),
                         [](const auto& one) { return name_of(*one.param); });

TEST(ExpertParallelLayouts, HaveTheSerialRunsBits) {
  const Order order = planner::make_order("1f1b", {2, 4, 1, {}});
  for (const Model& model : {mixtral(), dropping(), deepseek(), tied()}) {
    for (const StageDivision ranks : {StageDivision{1, 2}, {1, 4}, {2, 2}}) {
      SCOPED_TRACE("tp " + std::to_string(ranks.tensor) + ", ep " + std::to_string(ranks.experts));
      expect_serial_bits(order, model, {.ranks = ranks});
    }
    expect_serial_bits(order, model, {.replicas = 2});
  }
}

TEST(ExpertParallelLayouts, RecomputedLayersExchangeRowsAgain) {
  const Model model = dropping();
  expect_serial_bits(
      planner::make_order("zb-h1", {2, 4, 1, {}}), model,
      {.recompute = std::vector<LayerRecompute>(model.layers.size(), LayerRecompute::Whole)});
}

TEST(ExpertParallelLayouts, FastNumericsAreNearTheSerialRun) {
  const Layout layout{.ranks = {.experts = 4}};
  const Program program =
      divided(planner::make_order("1f1b", {2, 4, 1, {}}), dropping(), layout, "torch");
  const exec::VerifyReport verify = train(program, dropping(), Numerics::Fast, layout);
  EXPECT_LT(verify.gradients.norm_rel, 1e-5);
  EXPECT_LT(verify.parameters.norm_rel, 1e-5);
  EXPECT_FALSE(verify.gradients.bitwise);  // else exact numerics would show nothing
}

}  // namespace expert_parallel_test
}  // namespace pipewright::tests
