// Steps over NCCL as CUDA graphs, one for each rank, with NCCL's calls in them, on the host's
// tables: what they compute is what the same steps compute that are put on streams, for layers,
// sequences and weights that ranks divide, in whatever order the graphs' dependencies allow.
#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "planner/schedules/registry.hpp"
#include "tests/parity/divided/cuda_divided.hpp"

namespace pipewright::tests {
namespace nccl_graph_test {

using namespace cuda_divided;

constexpr int kReplays = 3, kAllSteps = exec::cuda::kLeastCapturedSteps + kReplays;

/// SGD: AdamW would make of a gradient's rounding another update.
CudaTraining how_of(const DividedSetting& setting, Precision precision, bool clips) {
  CudaTraining how = training_of(setting, precision);
  how.training.optimizer.kind = exec::OptimizerKind::Sgd;
  how.training.optimizer.clip_grad_norm = clips ? 0.01 : 0;
  how.training.verified_steps = exec::cuda::kLeastCapturedSteps + 1;
  return how;
}

void expect_the_same(const CudaResult& replayed, const CudaResult& enqueued) {
  ASSERT_TRUE(replayed.finished());
  ASSERT_TRUE(replayed.verify.has_value());
  EXPECT_EQ(replayed.verify->gradients.norm_rel, enqueued.verify->gradients.norm_rel);
  EXPECT_EQ(replayed.verify->parameters.norm_rel, enqueued.verify->parameters.norm_rel);
  ASSERT_EQ(replayed.steps.size(), enqueued.steps.size());
  for (std::size_t step = 0; step < replayed.steps.size(); ++step)
    EXPECT_EQ(replayed.steps[step].loss, enqueued.steps[step].loss) << "step " << step;
}

/// Of NCCL, and those that connect communicators.
int calls_so_far() {
  return host_nccl_sums() + host_nccl_scattered_sums() + host_nccl_gatherings() + host_nccl_calls();
}
int connecting_calls(const Program& program) {
  int calls = connecting_sums(program);
  const auto plan = exec::nccl::communicators_of(program, costs_of(program, 1000));
  for (const auto& warm_up : plan.warm_ups) calls += 2 * static_cast<int>(warm_up.edges.size());
  return calls;
}

/// NCCL's calls are made in the steps before the first that is replayed; each rank launches those.
void expect_replayed_as_enqueued(const Order& pipeline, const Model& model, const Layout& layout,
                                 bool clips = false, Precision precision = Precision::Float32) {
  for (const CommPolicy& policy : policies_of(Over::Nccl)) {
    SCOPED_TRACE(to_string(policy.issue));
    const Program program = divided(pipeline, model, layout, policy, Numerics::Fast);
    DividedSetting setting(program, model, Numerics::Fast, layout);
    CudaTraining how = how_of(setting, precision, clips);
    for (const HostOrder order : kOrders) {
      how.as_graph = false;
      const int before = calls_so_far();
      const CudaResult enqueued = trained(Over::Nccl, order, program, how, kAllSteps);
      ASSERT_TRUE(enqueued.finished());
      const int then = calls_so_far();
      how.as_graph = true;
      const std::int64_t launches = host_counts().launches;
      const CudaResult replayed = trained(Over::Nccl, order, program, how, kAllSteps);
      EXPECT_EQ(host_counts().launches - launches, program.ranks() * (kAllSteps - 1));
      expect_the_same(replayed, enqueued);
      const int connecting = connecting_calls(program);
      // Gradients that replicas divide are gathered in the steps that are looked at, too.
      if (!layout.sharded) {
        EXPECT_EQ((calls_so_far() - then - connecting) * kAllSteps,
                  (then - before - connecting) * exec::cuda::kLeastCapturedSteps);
      }
      for (InstructionId id = 0; id < program.code.size(); ++id)
        EXPECT_GE(replayed.timeline.end[id], replayed.timeline.start[id]) << program.text(id);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

const Order& alone() {
  static const Order one = planner::make_order("1f1b", {1, 2, 1, {}});
  return one;
}
const Order& pipeline() {
  static const Order one = planner::make_order("1f1b", {2, 4, 1, {}});
  return one;
}

TEST(NcclGraph, DividedLayersAreReplayedAsTheyAreEnqueued) {
  for (const Model& model : {divisible_model(), divisible_llama()}) {
    expect_replayed_as_enqueued(alone(), model, {.tensor = 2});
    expect_replayed_as_enqueued(pipeline(), model, {.tensor = 2});
  }
  expect_replayed_as_enqueued(alone(), divisible_model(), {.tensor = 4});
  expect_replayed_as_enqueued(pipeline(), divisible_model(), {.tensor = 2}, false,
                              Precision::Bfloat16);
}

TEST(NcclGraph, DividedRowsReplicasAndTiedHeadsToo) {
  expect_replayed_as_enqueued(pipeline(), with_eight_tokens(Json::object()),
                              {.tensor = 2, .rows = true});
  expect_replayed_as_enqueued(pipeline(), divisible_tied(), {.tensor = 2}, true);
  for (const bool sharded : {false, true}) {
    expect_replayed_as_enqueued(alone(), divisible_model(),
                                {.tensor = 2, .replicas = 2, .sharded = sharded}, !sharded);
  }
}

TEST(NcclGraph, DividedGradientsAndWeightsToo) {
  for (const int zero : {2, 3}) {
    SCOPED_TRACE(zero);
    expect_replayed_as_enqueued(pipeline(), divisible_model(),
                                {.tensor = 1, .replicas = 2, .sharded = true, .zero = zero});
  }
}

TEST(NcclGraph, DividedSequencesToo) {
  const Model model = with_eight_tokens(Json::object());
  for (const bool ring : {false, true})
    expect_replayed_as_enqueued(pipeline(), model, {.tensor = 1, .context = 2, .ring = ring});
}

TEST(NcclGraph, OtherSchedulesToo) {
  for (const char* schedule : {"gpipe", "zb-h1", "zbv"}) {
    SCOPED_TRACE(schedule);
    const int chunks = std::string(schedule) == "zbv" ? 2 : 1;
    expect_replayed_as_enqueued(planner::make_order(schedule, {2, 4, chunks, {}}),
                                divisible_llama(), {.tensor = 2});
  }
}

TEST(NcclGraph, WhatHostsBringTogetherIsRefused) {
  const Program program =
      divided(pipeline(), divisible_model(), {.tensor = 2}, {.post = Post::Deferred});
  DividedSetting setting(program, divisible_model(), Numerics::Exact, {.tensor = 2});
  CudaTraining how = training_of(setting, Precision::Exact);
  how.as_graph = true;
  try {
    trained(Over::Nccl, HostOrder::Eager, program, how, kAllSteps);
    ADD_FAILURE() << "was captured";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("wait for one another inside a step"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace nccl_graph_test
}  // namespace pipewright::tests
