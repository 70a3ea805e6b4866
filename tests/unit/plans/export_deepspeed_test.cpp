// What DeepSpeed is given of a plan. tests/peers/deepspeed_groups.py gives the same to DeepSpeed.
#include <gtest/gtest.h>

#include "core/base/json.hpp"
#include "tests/support/exported_plan.hpp"
#include "tests/support/other_tools_files.hpp"

namespace pipewright::test {
namespace export_deepspeed_test {

/// Of a file that the reader finds nothing wrong with.
Json configuration(const Plan& plan) {
  Json document = Json::parse(text_of(plan, "deepspeed"));
  for (const std::string& problem : problems_of_deepspeed(document, plan.mesh.size("dp")))
    ADD_FAILURE() << problem;
  return document;
}

TEST(DeepSpeed, TheConfigurationSaysWhatThePlanSays) {
  Plan plan = plan_of(2, {2, 2}, "1f1b", 2);
  plan.mesh = Mesh::grid(2, 2, 1, 1);
  plan.sharding_stage = 1;
  plan.training.clip_grad_norm = 0.5;
  const Json document = configuration(plan);
  EXPECT_EQ(document["zero_optimization"]["stage"], 1);
  EXPECT_EQ(document["pipeline"]["stages"], 2);
  // What a PipelineModule is constructed with: of this file DeepSpeed takes no stages.
  EXPECT_EQ(document["pipewright"]["for"], "DeepSpeed 0.19");
  EXPECT_EQ(document["pipewright"]["parts"], Json({0, 3, 6}));
  EXPECT_EQ(document["pipewright"]["topology"]["axes"], Json({"pipe", "data", "model"}));
  EXPECT_EQ(document["pipewright"]["topology"]["dims"], Json({2, 2, 1}));
  EXPECT_TRUE(notes(exported(plan, "deepspeed"), "partition_method=\"type:\""));
  EXPECT_EQ(document["gradient_clipping"], 0.5);
  EXPECT_EQ(document["bf16"]["enabled"], true);
  Plan alone = plan_of(1, {4}, "1f1b", 4);
  alone.sharding_stage = 3;
  const Json sharded = configuration(alone);
  EXPECT_FALSE(sharded.contains("pipeline"));
  EXPECT_FALSE(sharded["pipewright"].contains("parts"));
  const Plan uneven = plan_of(2, {3, 1}, "1f1b", 1);
  EXPECT_EQ(configuration(uneven)["pipewright"]["parts"], Json({0, 4, 6}));
  EXPECT_TRUE(notes(exported(uneven, "deepspeed"), "not as told"));
}

TEST(DeepSpeed, CountsTensorParallelRanksInItsBatchUnlessAPipelineHasThem) {
  Plan plan = plan_of(1, {4}, "1f1b", 2);
  plan.mesh = Mesh::grid(1, 2, 1, 2);
  plan.sharding_stage = 3;
  const Json document = configuration(plan);
  EXPECT_EQ(document["tensor_parallel"]["autotp_size"], 2);
  EXPECT_FALSE(document.contains("train_batch_size"));
  EXPECT_TRUE(notes(exported(plan, "deepspeed"), "counts tensor parallel ranks as replicas"));
  plan = plan_of(2, {2, 2}, "1f1b", 2);
  plan.mesh = Mesh::grid_of_replicas(2, 2, 1, 2);
  const Json piped = configuration(plan);
  EXPECT_FALSE(piped.contains("tensor_parallel"));
  EXPECT_EQ(piped["pipewright"]["topology"]["axes"], Json({"data", "pipe", "model"}));
  EXPECT_EQ(piped["pipewright"]["topology"]["dims"], Json({2, 2, 2}));
}

TEST(DeepSpeed, DividesTheStateOfSgdOnlyIfToldSo) {
  Plan plan = plan_of(2, {2, 2}, "1f1b", 2);
  plan.training.optimizer = "sgd";
  EXPECT_FALSE(configuration(plan).contains("zero_allow_untested_optimizer"));
  plan.sharding_stage = 1;
  const Json document = configuration(plan);
  EXPECT_EQ(document["zero_allow_untested_optimizer"], true);
}

TEST(DeepSpeed, DealsExpertsToNeighbouringRanks) {
  Plan plan = plan_of(2, {2, 2}, "1f1b", 2);
  plan.expert_parallel = 2;
  plan.mesh = Mesh::grid(2, 2, 1, 1);
  EXPECT_TRUE(notes(exported(plan, "deepspeed"), "ep_size=2"));
  plan.mesh = Mesh::grid_of_replicas(2, 2, 1, 1);
  EXPECT_NE(refusal_of(plan, "deepspeed").find("ranks of neighbouring numbers"), std::string::npos);
}

TEST(DeepSpeed, RefusesOtherSchedulesAndZeroBesideAPipeline) {
  EXPECT_NE(refusal_of(plan_of(2, {2, 2}, "gpipe", 1), "deepspeed").find("runs 1f1b"),
            std::string::npos);
  Plan plan = plan_of(2, {2, 2}, "1f1b", 2);
  plan.sharding_stage = 2;
  EXPECT_NE(refusal_of(plan, "deepspeed").find("refuses ZeRO 2 and 3"), std::string::npos);
}

}  // namespace export_deepspeed_test
}  // namespace pipewright::test
