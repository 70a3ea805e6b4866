#include "planner/memory/memory.hpp"

#include <gtest/gtest.h>

#include "planner/plans/program_of_plan.hpp"

namespace pipewright::planner {
namespace memory_test {

/// mlp: linear 1024 -> 4096 (with bias), relu, linear 4096 -> 1024 (with bias).
constexpr std::int64_t kUp = 1024 * 4096 + 4096, kDown = 4096 * 1024 + 1024;

Plan mlp_plan(const char* schedule, int micro_batches) {
  Plan plan;
  plan.model = model_preset("mlp");
  plan.mesh = Mesh::pipeline(2);
  plan.micro_batches = micro_batches;
  plan.micro_batch_size = 2;
  plan.stages = {{0, 2, RankId(0)}, {2, 3, RankId(1)}};
  plan.schedule.name = schedule;
  plan.costs = CostTable::uniform(2, {});
  return plan;
}

TEST(Memory, StateOfAStage) {
  const Model model = model_preset("mlp");
  const StageState adamw = state_of(model, {0, 2, RankId(0)}, "adamw");
  EXPECT_EQ(adamw.parameters, Bytes(4 * kUp));
  EXPECT_EQ(adamw.gradients, Bytes(4 * kUp));
  EXPECT_EQ(adamw.optimizer, Bytes(2 * 4 * kUp));
  EXPECT_EQ(state_of(model, {0, 2, RankId(0)}, "sgd").optimizer, Bytes(0));
}

/// 2-byte elements: weights of 2 bytes, and 4-byte gradients, master weights and moments: 18.
TEST(Memory, NarrowElementsKeepMasterWeights) {
  Model model = model_preset("mlp");
  model.bytes_per_element = 2;
  const StageState state = state_of(model, {2, 3, RankId(0)}, "adamw");
  EXPECT_EQ(state.parameters, Bytes(2 * kDown));
  EXPECT_EQ(state.gradients, Bytes(4 * kDown));
  EXPECT_EQ(state.optimizer, Bytes(3 * 4 * kDown));
  EXPECT_EQ(state.sum(), Bytes(18 * kDown));
}

/// Stage 0 saves the inputs of its linear (2 x 1024 floats) and its relu (2 x 4096), stage 1 the
/// input of its linear (2 x 4096) and the loss's input (2 x 1024).
TEST(Memory, ActivationsOfAStage) {
  const Model model = model_preset("mlp");
  const auto table =
      memory_of(model, std::vector<StagePlan>{{0, 2, RankId(0)}, {2, 3, RankId(1)}}, 2, "sgd");
  EXPECT_EQ(table[0].f, Bytes(4 * 2 * (1024 + 4096)));
  EXPECT_EQ(table[1].f, Bytes(4 * 2 * (4096 + 1024)));
  EXPECT_EQ(table[0].w, Bytes(-4 * 2 * (1024 + 4096)));
  EXPECT_EQ(table[0].i, Bytes(0)) << "the relu's output goes, the gradient for W comes";
}

/// Beside its input, of 5 bytes a row as whole elements, and until W.
TEST(Memory, ACustomLayerKeepsWhatItsDescriptionSays) {
  Model model;
  model.name = "own";
  model.loss = LossKind::Mse;
  Layer layer;
  layer.kind = LayerKind::Custom;
  layer.in = layer.out = 10;
  layer.custom = {.type = "own", .settings = {}, .weights = 3, .operations = 1, .kept = 0};
  model.layers.assign(2, layer);
  const std::vector<StagePlan> stages = {{0, 1, RankId(0)}, {1, 2, RankId(1)}};
  const auto plain = memory_of(model, stages, 2, "sgd");
  model.layers[0].custom.kept = 5;
  const auto more = memory_of(model, stages, 2, "sgd");
  EXPECT_EQ(more[0].f - plain[0].f, Bytes(2 * 8));
  EXPECT_EQ(more[0].i, plain[0].i);
  EXPECT_EQ(more[0].w - plain[0].w, Bytes(-2 * 8));
  EXPECT_EQ(more[1].f, plain[1].f);
  model.layers[0].custom.held = 13;  // of 4 bytes as whole elements, while an action runs
  const auto most = memory_of(model, stages, 2, "sgd");
  EXPECT_EQ(most[0].in_f - more[0].in_f, Bytes(2 * 16));
  EXPECT_EQ(most[0].in_w - more[0].in_w, Bytes(2 * 16));
  EXPECT_EQ(most[0].f, more[0].f);
  EXPECT_EQ(most[0].i, more[0].i);
}

/// The relu's output is the next linear's input, and is held once.
TEST(Memory, WhatTwoLayersShareIsHeldOnce) {
  const Model model = model_preset("mlp");
  EXPECT_EQ(memory_of(model, {0, 3, RankId(0)}, 2, "sgd").f, Bytes(4 * 2 * (1024 + 4096 + 1024)));
}

/// Recomputed whole, only what comes in is kept, until I has made the rest again.
TEST(Memory, RecomputedLayersKeepTheirInput) {
  const Model model = model_preset("mlp");
  const std::vector<LayerRecompute> whole(3, LayerRecompute::Whole);
  const StageMemory kept = memory_of(model, {0, 2, RankId(0)}, 2, "sgd", whole);
  EXPECT_EQ(kept.f, Bytes(4 * 2 * 1024));
  EXPECT_EQ(kept.f + kept.i + kept.w, Bytes(0));
  EXPECT_EQ(kept.i, Bytes(4 * 2 * 4096));
}

/// gpipe holds all 6 micro-batches, 1f1b two on rank 0 and one on rank 1. Within the last F of rank
/// 0 the linear's output lies beside the relu's, within a B of either the gradient of that width.
TEST(Memory, PeakFollowsTheProgram) {
  const std::int64_t activation = 4 * 2 * (1024 + 4096), within = 4 * 2 * 4096;
  const Plan gpipe = mlp_plan("gpipe", 6), one = mlp_plan("1f1b", 6);
  const auto all = memory_by_rank(gpipe, program_of_plan(gpipe));
  const auto few = memory_by_rank(one, program_of_plan(one));
  EXPECT_EQ(all[0].activations, Bytes(6 * activation + within));
  EXPECT_EQ(all[1].activations, Bytes(6 * activation + within));
  EXPECT_EQ(few[0].activations, Bytes(2 * activation + within));
  EXPECT_EQ(few[1].activations, Bytes(activation + within));
  EXPECT_EQ(few[1].peak(), Bytes(activation + within + 4 * 4 * kDown));
}

}  // namespace memory_test
}  // namespace pipewright::planner
