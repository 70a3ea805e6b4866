// A plan in other tools' files: each is read by a strict reader of that tool's documentation, and
// says what the plan says; what the tool cannot do is refused.
#include "planner/export/export.hpp"

#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "core/model/architecture_model.hpp"
#include "core/plan/job.hpp"
#include "core/plan/paddle_tuner_job.hpp"
#include "core/program/lower.hpp"
#include "planner/export/megatron_layout.hpp"
#include "planner/schedules/registry.hpp"
#include "tests/support/exported_plan.hpp"
#include "tests/support/other_tools_files.hpp"

namespace pipewright::test {
namespace export_test {

using planner::ExportedPlan;

void expect_none(const Problems& problems) {
  for (const std::string& problem : problems) ADD_FAILURE() << problem;
}

std::map<std::string, std::string> megatron(const Plan& plan) {
  Problems problems;
  const std::string text = text_of(plan, "megatron");
  const auto flags = read_megatron_flags(text, problems);
  expect_none(problems);
  return flags;
}

TEST(MegatronReader, UnrollsTheExampleOfTheUserGuide) {
  Problems problems;
  const auto stages = read_megatron_layout("Et*3|(tt|)*29,m|L", problems);
  expect_none(problems);
  ASSERT_EQ(stages.size(), 32U);
  EXPECT_EQ(stages[0], "Ettt");
  EXPECT_EQ(stages[29], "tt");
  EXPECT_EQ(stages[30], "m");
  EXPECT_EQ(stages[31], "L");
  for (const char* bad : {"tt|L", "Ett|(tt|L", "Ex|L", "Et*|L", "E(tt)|L", "EtL|t"}) {
    Problems found;
    read_megatron_layout(bad, found);
    EXPECT_FALSE(found.empty()) << bad;
  }
}

TEST(Megatron, TheLayoutHasEveryStagesBlocksAndItsEnds) {
  const std::vector<std::vector<int>> splits = {
      {2, 2},       {3, 4, 4, 2}, {0, 5, 5, 5, 1}, {2, 2, 2, 2, 2, 2, 2, 2},
      {7, 7, 7, 0}, {1},          {0, 0, 3},       {12, 12, 13, 13, 13, 2}};
  for (const auto& split : splits) {
    std::vector<planner::StageBlocks> stages;
    std::vector<std::string> expected;
    for (std::size_t stage = 0; stage < split.size(); ++stage) {
      const bool first = stage == 0, last = stage + 1 == split.size();
      stages.push_back({first, last, 0, split[stage]});
      expected.push_back((first ? "E" : "") +
                         std::string(static_cast<std::size_t>(split[stage]), 't') +
                         (last ? "L" : ""));
    }
    Problems problems;
    EXPECT_EQ(read_megatron_layout(planner::megatron_layout(stages), problems), expected);
    expect_none(problems);
  }
  const auto flags = megatron(plan_of(4, {1, 2, 2, 2, 2, 2, 2, 1}, "interleaved", 1));
  EXPECT_EQ(flags.at("--pipeline-model-parallel-layout"), "Et|(tt|)*6tL");
}

TEST(Megatron, FlagsSayWhatThePlanSays) {
  Plan plan = plan_of(4, {3, 4, 4, 3}, "1f1b", 2);
  plan.sharding_stage = 1;
  plan.training.clip_grad_norm = 1;
  plan.training.recompute.kind = RecomputeSpec::Kind::Full;
  const auto flags = megatron(plan);
  EXPECT_EQ(flags.at("--pipeline-model-parallel-size"), "4");
  EXPECT_EQ(flags.at("--micro-batch-size"), "2");
  EXPECT_EQ(flags.at("--global-batch-size"), "32");
  EXPECT_EQ(flags.at("--num-layers"), "14");
  EXPECT_EQ(flags.at("--hidden-size"), "64");
  EXPECT_EQ(flags.at("--ffn-hidden-size"), "256");
  EXPECT_EQ(flags.at("--recompute-granularity"), "full");
  EXPECT_EQ(flags.at("--recompute-num-layers"), "1");
  EXPECT_EQ(flags.at("--clip-grad"), "1");
  EXPECT_EQ(flags.count("--use-distributed-optimizer"), 1U);
  EXPECT_EQ(flags.count("--bf16"), 1U);
  // The mesh {dp, pp} has neighbours in a pipeline.
  EXPECT_EQ(flags.count("--use-tp-pp-dp-mapping"), 1U);
  EXPECT_EQ(megatron(plan_of(1, {4}, "1f1b", 2)).count("--pipeline-model-parallel-layout"), 0U);
}

TEST(Megatron, GroupsOfMicroBatchesAreAFlag) {
  Plan plan = plan_of(2, {1, 1, 1, 1}, "interleaved", 1);
  EXPECT_EQ(megatron(plan).count("--microbatch-group-size-per-virtual-pipeline-stage"), 0U);
  plan.schedule.parameters["group"] = "4";
  EXPECT_EQ(megatron(plan).at("--microbatch-group-size-per-virtual-pipeline-stage"), "4");
  Plan rounds = plan_of(4, {1, 1, 1, 1, 1, 1, 1, 1}, "interleaved", 1);
  rounds.micro_batches = 10;  // PyTorch's two rounds of five
  EXPECT_EQ(megatron(rounds).at("--microbatch-group-size-per-virtual-pipeline-stage"), "5");
  rounds.micro_batches = 3;
  EXPECT_NE(refusal_of(rounds, "megatron").find("3 on 4 ranks"), std::string::npos);
}

/// As a tuner's plan of a published model: `blocks` by stage, one stage a rank.
Plan plan_of_architecture(const std::string& name, const std::vector<int>& blocks) {
  Plan plan = plan_of(static_cast<int>(blocks.size()), blocks, "1f1b", 1);
  plan.architecture = architecture_preset(name);
  plan.model = model_of(*plan.architecture);
  return plan;
}

TEST(Megatron, AnArchitectureIsWrittenWithItsExpertsAndItsAttention) {
  Plan plan = plan_of_architecture("deepseek-v3", {15, 16, 16, 14});
  plan.mesh = {{4, 2, 2}, {"pp", "dp", "tp"}, {}};
  for (int device = 0; device < 16; ++device) plan.mesh.devices.push_back(device);
  plan.expert_parallel = 2;
  plan.sequence_parallel = true;
  const auto flags = megatron(plan);
  EXPECT_EQ(flags.at("--num-layers"), "61");
  EXPECT_EQ(flags.at("--num-experts"), "256");
  EXPECT_EQ(flags.at("--moe-router-topk"), "8");
  EXPECT_EQ(flags.at("--moe-layer-freq"), "([0]*3+[1]*58)");
  EXPECT_EQ(flags.at("--kv-lora-rank"), "512");
  EXPECT_EQ(flags.at("--q-lora-rank"), "1536");
  EXPECT_EQ(flags.at("--qk-pos-emb-head-dim"), "64");
  EXPECT_EQ(flags.at("--tensor-model-parallel-size"), "2");
  EXPECT_EQ(flags.at("--expert-model-parallel-size"), "2");
  EXPECT_EQ(flags.count("--expert-tensor-parallel-size"), 0U) << "its default is tp";
  plan.expert_tensor_parallel = 1;
  EXPECT_EQ(megatron(plan).at("--expert-tensor-parallel-size"), "1");
  EXPECT_EQ(flags.count("--sequence-parallel"), 1U);
  EXPECT_EQ(flags.count("--multi-latent-attention"), 1U);
  EXPECT_EQ(flags.count("--num-query-groups"), 0U);
  // The pipeline is the outermost dimension of this mesh, as it is in Megatron-LM.
  EXPECT_EQ(flags.count("--use-tp-pp-dp-mapping"), 0U);
  EXPECT_EQ(flags.at("--pipeline-model-parallel-layout"), "Et*15|(t*16|)*2t*14L");
  // Outside the pipeline it has replicas only where experts are divided among tp * cp ranks.
  plan.mesh.dim_names = {"dp", "pp", "tp"};
  plan.mesh.shape = {2, 4, 2};
  EXPECT_EQ(megatron(plan).count("--use-tp-pp-dp-mapping"), 1U);
  plan.expert_tensor_parallel = 0;
  EXPECT_NE(refusal_of(plan, "megatron").find("cp 1 and ep 2"), std::string::npos);
  plan.expert_tensor_parallel = 1;
  plan.architecture->further_tokens = 1;
  EXPECT_EQ(megatron(plan).at("--pipeline-model-parallel-layout"), "Et*15|(t*16|)*2t*14mL");
  const auto llama = megatron(plan_of_architecture("llama3-70b", {40, 40}));
  EXPECT_EQ(llama.at("--num-query-groups"), "8");
  EXPECT_EQ(llama.count("--swiglu") + llama.count("--disable-bias-linear"), 2U);
  EXPECT_EQ(llama.at("--position-embedding-type"), "rope");
}

TEST(Megatron, LayersOfOtherKindsAreWritten) {
  const auto oss = megatron(plan_of_architecture("gpt-oss-20b", {12, 12}));
  EXPECT_EQ(oss.at("--window-size"), "128,0");
  EXPECT_EQ(oss.at("--window-attn-skip-freq"), "2");
  const auto llama4 = megatron(plan_of_architecture("llama4-maverick", {24, 24}));
  EXPECT_TRUE(llama4.at("--moe-layer-freq").starts_with("[0,1,0,1,"));
  const auto super = megatron(plan_of_architecture("nemotron-3-super", {88}));
  EXPECT_EQ(super.at("--hybrid-override-pattern").size(), 88U);
  EXPECT_EQ(super.at("--moe-latent-size"), "1024");
  EXPECT_EQ(super.at("--mamba-state-dim"), "128");
  EXPECT_NE(
      refusal_of(plan_of_architecture("nemotron-3-super", {44, 44}), "megatron").find("hybrid"),
      std::string::npos);
}

TEST(Export, AdaptersAreNotWritten) {
  Plan plan = plan_of_architecture("llama3-70b", {40, 40});
  plan.architecture->lora = {16, {"linear_qkv"}};
  for (const char* tool : {"megatron", "torchtitan", "paddle-tuner"})
    EXPECT_NE(refusal_of(plan, tool).find("no LoRA is written for"), std::string::npos) << tool;
}

TEST(Megatron, HowKeysComeTogetherIsWhatThePlanWasPricedWith) {
  Plan plan = plan_of_architecture("llama3-70b", {40, 40});
  plan.mesh = Mesh::grid(2, 1, 2, 1);
  EXPECT_EQ(megatron(plan).count("--cp-comm-type"), 0U) << "the framework's affair";
  plan.mesh = Mesh::grid_of_parts(2, 1, 2, 1);
  plan.replicas_are_ranks = true;
  EXPECT_EQ(megatron(plan).at("--cp-comm-type"), "all_gather");
  plan.ring = true;
  EXPECT_EQ(megatron(plan).at("--cp-comm-type"), "p2p");
}

/// As read from a plan whose training has these fields.
Plan with_training(Plan plan, const Json& training) {
  Json document = to_json(plan);
  document["training"] = training;
  return read_plan(JsonCursor(document, "plan.json"));
}

TEST(Export, OnlyWhatTheJobSaysOfTheTrainingIsWritten) {
  const Plan plan = plan_of(2, {2, 2}, "1f1b", 1);
  const Plan silent = with_training(plan, {{"seed", 1}});
  for (const char* flag : {"--lr", "--clip-grad", "--train-iters"})
    EXPECT_EQ(megatron(silent).count(flag), 0U) << flag;
  const ExportedPlan flags = exported(silent, "megatron");
  for (const char* missing : {"add --lr", "--clip-grad 0", "add --train-iters"})
    EXPECT_TRUE(notes(flags, missing)) << missing;
  EXPECT_EQ(text_of(silent, "torchtitan").find("max_norm "), std::string::npos);
  EXPECT_EQ(text_of(silent, "torchtitan").find("--training.steps"), std::string::npos);
  const Json deepspeed = Json::parse(text_of(silent, "deepspeed"));
  EXPECT_FALSE(deepspeed.contains("gradient_clipping"));
  EXPECT_FALSE(deepspeed["optimizer"].contains("params"));

  // The values are the ones that are assumed otherwise: what counts is that the job gives them.
  const Plan said = with_training(
      plan, {{"learning_rate", 0.001}, {"steps", 20}, {"clip_grad_norm", 0}, {"seed", 1}});
  EXPECT_EQ(megatron(said).at("--lr"), "0.001");
  EXPECT_EQ(megatron(said).at("--train-iters"), "20");
  EXPECT_EQ(megatron(said).at("--clip-grad"), "0");
  EXPECT_EQ(Json::parse(text_of(said, "deepspeed"))["gradient_clipping"], 0);
  // And a plan that was written and read again remembers who said what.
  EXPECT_EQ(megatron(with_training(plan, to_json(silent)["training"])).count("--lr"), 0U);
  EXPECT_EQ(megatron(with_training(plan, to_json(said)["training"])).at("--clip-grad"), "0");
}

TEST(Megatron, NormsWithoutShiftsAreRmsNormsAndTheRotaryBaseIsSaidToBeMissing) {
  const Plan llama = plan_of_architecture("llama3-70b", {40, 40});
  EXPECT_EQ(megatron(llama).at("--normalization"), "RMSNorm");
  EXPECT_TRUE(notes(exported(llama, "megatron"), "--rotary-base"));
  const Plan gpt = plan_of(2, {2, 2}, "1f1b", 1);
  EXPECT_EQ(megatron(gpt).count("--normalization"), 0U);
  EXPECT_FALSE(notes(exported(gpt, "megatron"), "rotary"));
}

TEST(Torchtitan, ItsOwnModelsAreNamedAndOthersAskedFor) {
  auto values = [](const Plan& plan) {
    Problems problems;
    return read_torchtitan_flags(text_of(plan, "torchtitan"), problems);
  };
  const Plan llama = plan_of_architecture("llama3-70b", {40, 40});
  EXPECT_EQ(values(llama)["module"], "llama3");
  EXPECT_EQ(values(llama)["config"], "llama3_70b");
  const Plan own = plan_of(2, {2, 2}, "1f1b", 1);
  EXPECT_EQ(values(own).count("module"), 0U);
  EXPECT_TRUE(notes(exported(own, "torchtitan"), "give --module and --config with 4 layers"));
}

/// The same plan with its ranks in either order: each tool is told, or says that it has another.
TEST(Export, SaysWhereAToolNumbersRanksOtherwise) {
  const auto notes_of = [](const Plan& plan, const char* format) {
    std::string all;
    for (const std::string& note : exported(plan, format).notes) all += note + "\n";
    return all;
  };
  Plan plan = plan_of(2, {2, 2}, "1f1b", 2);
  plan.mesh = Mesh::grid(2, 2, 1, 1);
  Plan inside = plan;
  inside.mesh = Mesh::grid_of_replicas(2, 2, 1, 1);
  EXPECT_EQ(megatron(plan).count("--use-tp-pp-dp-mapping"), 0U);
  EXPECT_EQ(megatron(inside).count("--use-tp-pp-dp-mapping"), 1U);
  const std::string differ = "the plan numbers ranks with ";
  for (const char* format : {"torchtitan", "deepspeed"}) {
    EXPECT_EQ(notes_of(plan, format).find(differ), std::string::npos) << format;
    EXPECT_NE(notes_of(inside, format).find(differ + "replicas outermost"), std::string::npos)
        << format;
  }
  EXPECT_NE(notes_of(plan, "paddle").find("order to pp, dp, sharding"), std::string::npos);
  EXPECT_EQ(notes_of(inside, "paddle").find(differ), std::string::npos);
  plan.sharding_stage = inside.sharding_stage = 1;
  EXPECT_EQ(notes_of(plan, "paddle").find(differ), std::string::npos);
  EXPECT_NE(notes_of(inside, "paddle").find("order to dp, sharding, pp"), std::string::npos);
}

TEST(Megatron, RefusesWhatItCannotDo) {
  EXPECT_NE(refusal_of(plan_of(2, {2, 2}, "zb-h1", 1), "megatron").find("schedule is zb-h1"),
            std::string::npos);
  EXPECT_NE(refusal_of(plan_of(2, {2, 2}, "gpipe", 1), "megatron").find("gpipe"),
            std::string::npos);
  Plan sharded = plan_of(2, {2, 2}, "1f1b", 2);
  sharded.sharding_stage = 3;
  EXPECT_NE(refusal_of(sharded, "megatron").find("ZeRO 3"), std::string::npos);
  Plan mixed = plan_of(2, {2, 2}, "1f1b", 1);
  mixed.training.recompute = {RecomputeSpec::Kind::Listed, {2}};
  EXPECT_NE(refusal_of(mixed, "megatron").find("recomputes all blocks alike"), std::string::npos);
  Plan plain = plan_of(2, {2, 2}, "1f1b", 1);
  plain.model = model_preset("mlp");
  EXPECT_NE(refusal_of(plain, "megatron").find("decoder-only"), std::string::npos);
  plain.model = model_preset("mixtral-tiny");
  for (const char* format : {"megatron", "torchtitan", "paddle-tuner"})
    EXPECT_NE(refusal_of(plain, format).find("model is neither: its layer \"1.block 0/"),
              std::string::npos)
        << refusal_of(plain, format);
}

std::map<std::string, Json> torchtitan(const Plan& plan) {
  Problems problems;
  const std::string text = text_of(plan, "torchtitan");
  auto values = read_torchtitan_flags(text, problems);
  expect_none(problems);
  return values;
}

TEST(Torchtitan, FlagsSayWhatThePlanSays) {
  Plan plan = plan_of(2, {1, 2, 2, 1}, "interleaved", 2);
  plan.sharding_stage = 3;
  plan.training.recompute.kind = RecomputeSpec::Kind::Selective;
  auto values = torchtitan(plan);
  EXPECT_EQ(values["parallelism.pipeline_parallel_degree"], 2);
  EXPECT_EQ(values["parallelism.pipeline_parallel_schedule"], "Interleaved1F1B");
  EXPECT_EQ(values["parallelism.pipeline_parallel_microbatch_size"], 2);
  EXPECT_EQ(values["parallelism.data_parallel_shard_degree"], 2);
  EXPECT_EQ(values["parallelism.data_parallel_replicate_degree"], 1);
  EXPECT_EQ(values["parallelism.fsdp_reshard_after_forward"], "always");
  EXPECT_EQ(values["training.local_batch_size"], 16);
  EXPECT_EQ(values.count("training.disable_cuda_graphs"), 1U);
  EXPECT_EQ(values["training.global_batch_size"], 32);
  EXPECT_EQ(values["activation_checkpoint"], "selective");
  EXPECT_EQ(values["parallelism.module_fqns_per_model_part"],
            Json::parse(R"([["tok_embeddings", "layers.0"], ["layers.1", "layers.2"],
                            ["layers.3", "layers.4"], ["layers.5", "norm", "lm_head"]])"));
}

TEST(Torchtitan, WithoutAPipelineGradientsAccumulateOverSteps) {
  const Plan plan = plan_of(1, {4}, "1f1b", 2);
  auto values = torchtitan(plan);
  EXPECT_EQ(values["training.local_batch_size"], 2);
  EXPECT_EQ(values["training.global_batch_size"], 32);
  EXPECT_EQ(values["parallelism.data_parallel_replicate_degree"], 2);
  EXPECT_EQ(values.count("parallelism.pipeline_parallel_schedule"), 0U);
  EXPECT_EQ(values.count("training.disable_cuda_graphs"), 0U);
}

TEST(Torchtitan, HasExpertsWholeOnOneRank) {
  Plan plan = plan_of_architecture("mixtral-8x7b", {16, 16});
  plan.mesh = Mesh::grid(2, 4, 1, 1);
  plan.expert_parallel = 4;
  EXPECT_EQ(torchtitan(plan)["parallelism.expert_parallel_degree"], 4);
  plan.mesh = Mesh::grid(2, 4, 1, 2);
  EXPECT_NE(refusal_of(plan, "torchtitan").find("each among 2 too"), std::string::npos);
}

TEST(Torchtitan, AnOrderThatPyTorchHasNotIsLoadedFromItsCsv) {
  const Plan plan = plan_of(2, {2, 2}, "zb-h1", 1);
  auto values = torchtitan(plan);
  EXPECT_EQ(values["parallelism.pipeline_parallel_schedule_csv"], "schedule.csv");
  EXPECT_TRUE(notes(exported(plan, "torchtitan"), "pytorch-csv"));
  Plan v_shape = plan_of(2, {1, 1, 1, 1}, "v-half", 1);
  v_shape.stages[2].rank = RankId(1);
  v_shape.stages[3].rank = RankId(0);
  EXPECT_NE(refusal_of(v_shape, "torchtitan").find("v-half puts stages elsewhere"),
            std::string::npos);
}

TEST(Torchtitan, SaysWhereWeightsAreShardedOtherwiseThanPlanned) {
  const Plan replicas = plan_of(2, {2, 2}, "1f1b", 2);
  EXPECT_EQ(torchtitan(replicas)["parallelism.data_parallel_shard_degree"], 2);
  EXPECT_TRUE(notes(exported(replicas, "torchtitan"), "does not replicate weights"));
  Plan sgd = plan_of(2, {2, 2}, "1f1b", 1);
  sgd.training.optimizer = "sgd";
  EXPECT_NE(refusal_of(sgd, "torchtitan").find("sgd"), std::string::npos);
}

Json json_of(const Plan& plan, const std::string& format) {
  return Json::parse(text_of(plan, format));
}

TEST(Paddle, TheStrategySaysWhatThePlanSays) {
  Plan plan = plan_of(2, {1, 1, 1, 1}, "paddle-vpp", 2);
  plan.sharding_stage = 1;
  const Json document = json_of(plan, "paddle");
  expect_none(problems_of_paddle_strategy(document));
  EXPECT_EQ(document["pipeline"]["schedule_mode"], "VPP");
  EXPECT_EQ(document["pipeline"]["vpp_degree"], 2);
  EXPECT_EQ(document["pipeline"]["accumulate_steps"], 8);
  EXPECT_EQ(document["pipeline"]["micro_batch_size"], 2);
  EXPECT_EQ(document["sharding"], Json({{"enable", true}, {"stage", 1}, {"degree", 2}}));
  EXPECT_EQ(document["hybrid_configs"]["sharding_degree"], 2);
  EXPECT_EQ(document["hybrid_configs"]["dp_degree"], 1);
  EXPECT_TRUE(notes(exported(plan, "paddle"), "vpp_seg_method"));
  const Json alone = json_of(plan_of(1, {4}, "1f1b", 1), "paddle");
  expect_none(problems_of_paddle_strategy(alone));
  EXPECT_EQ(alone["gradient_merge"]["k_steps"], 8);
}

TEST(Paddle, EveryModeOfItsOwnIsWrittenAndOtherOrdersAreRefused) {
  const std::vector<std::pair<std::string, std::string>> modes = {
      {"gpipe", "FThenB"}, {"1f1b", "1F1B"}, {"eager-1f1b", "Eager1F1B"}, {"paddle-zbh1", "ZBH1"}};
  for (const auto& [schedule, mode] : modes) {
    EXPECT_EQ(json_of(plan_of(2, {2, 2}, schedule, 1), "paddle")["pipeline"]["schedule_mode"],
              mode);
    // The same words that a job's strategy takes.
    EXPECT_NO_THROW(planner::find_schedule(mode)) << mode;
  }
  EXPECT_NE(refusal_of(plan_of(2, {2, 2}, "zb-h1", 1), "paddle").find("nearest is paddle-zbh1"),
            std::string::npos);
  EXPECT_NE(refusal_of(plan_of(2, {1, 1, 1, 1}, "interleaved", 1), "paddle").find("paddle-vpp"),
            std::string::npos);
  EXPECT_TRUE(notes(exported(plan_of(2, {3, 1}, "1f1b", 1), "paddle"),
                    "0: embedding and 3 blocks, 1: 1 block and head"));
}

TEST(Paddle, TheTunersJobHasThePlanAsItsOneConfiguration) {
  Plan plan = plan_of(2, {2, 2}, "1f1b", 2);
  plan.sharding_stage = 1;
  plan.training.recompute.kind = RecomputeSpec::Kind::Selective;
  const Json document = json_of(plan, "paddle-tuner");
  expect_none(problems_of_paddle_tuner_job(document));
  EXPECT_EQ(document["sharding_degree"], Json({2}));
  EXPECT_EQ(document["dp_degree"], Json({1}));
  EXPECT_EQ(document["recompute_granularity"], "core_attn");
  EXPECT_EQ(document["model_cfg"]["global_batch_size"], 32);
  EXPECT_EQ(document["model_cfg"]["num_layers"], 4);
  plan.sharding_stage = 2;
  EXPECT_NE(refusal_of(plan, "paddle-tuner").find("sharding stage 1"), std::string::npos);
  expect_none(
      problems_of_paddle_tuner_job(json_of(plan_of(4, {1, 1, 1, 1}, "1f1b", 1), "paddle-tuner")));
}

TEST(Paddle, TheTunersNodesAreFull) {
  Plan plan = plan_of(3, {1, 1, 1}, "1f1b", 4);
  plan.cluster = cluster_preset("dgx-a100", 16);  // twelve of sixteen are in use
  const Json document = json_of(plan, "paddle-tuner");
  expect_none(problems_of_paddle_tuner_job(document));
  EXPECT_EQ(document["num_gpus"], 12);
  EXPECT_EQ(document["nodes"].get<int>() * document["gpus_per_node"].get<int>(), 12);
  EXPECT_NO_THROW(read_paddle_tuner_job(JsonCursor(document, "tuner.json")));
}

TEST(Paddle, TheTunersJobIsReadBackAsAJobOfThePlansValues) {
  Plan plan = plan_of_architecture("gpt3-175b", {24, 24, 24, 24});
  plan.mesh = {{4, 2, 2}, {"pp", "dp", "tp"}, {}};
  for (int device = 0; device < 16; ++device) plan.mesh.devices.push_back(device);
  plan.sequence_parallel = true;
  plan.sharding_stage = 1;
  plan.training.recompute.kind = RecomputeSpec::Kind::Full;
  const Json document = json_of(plan, "paddle-tuner");
  const Json read = read_paddle_tuner_job(JsonCursor(document, "tuner.json")).job;
  const Job job = read_job(JsonCursor(read, "tuner.json"));
  EXPECT_EQ(job.global_batch, 32);
  EXPECT_EQ(job.strategy.pp_degree, Choice{"4"});
  EXPECT_EQ(job.strategy.mp_degree, Choice{"2"});
  EXPECT_EQ(job.strategy.dp_degree, Choice{"2"});
  EXPECT_EQ(job.strategy.sharding_stage, Choice{"1"});
  EXPECT_EQ(job.strategy.micro_batch_size, Choice{"2"});
  EXPECT_EQ(job.strategy.recompute, Choice{"full"});
  EXPECT_EQ(job.strategy.use_sequence_parallel, Choice{"true"});
  EXPECT_EQ(estimated_architecture(job)->hidden, 12288);
  EXPECT_EQ(job.cluster.devices(), 16);
}

/// Its prune.py would drop the only candidate without a word, and the tuner would end with nothing.
TEST(Paddle, WhatTheTunerPrunesIsRefused) {
  EXPECT_NE(refusal_of(plan_of(2, {3, 4}, "1f1b", 1), "paddle-tuner").find("7 blocks over 2"),
            std::string::npos);
  Plan few = plan_of(4, {1, 1, 1, 1}, "1f1b", 1);
  few.micro_batches = 3;
  EXPECT_NE(refusal_of(few, "paddle-tuner").find("fewer micro-batches"), std::string::npos);
  // No recomputation is dropped too, unless the granularity that is not used is "full".
  const Json document = json_of(plan_of(2, {2, 2}, "1f1b", 1), "paddle-tuner");
  EXPECT_EQ(document["use_recompute"], false);
  EXPECT_EQ(document["recompute_granularity"], "full");
}

TEST(PyTorchCsv, IsTheOrderOfThePlan) {
  const Plan plan = plan_of(2, {2, 2}, "1f1b", 2);
  const Order order = read_order_csv(text_of(plan, "pytorch-csv"), "schedule.csv");
  EXPECT_EQ(order.rank_count(), 2);
  EXPECT_EQ(order.micro_batches, 8);
  EXPECT_EQ(write_order_csv(order), write_order_csv(planner::make_order("1f1b", {2, 8})));
  EXPECT_TRUE(notes(exported(plan, "pytorch-csv"), "one of 2 replicas"));
}

/// Taken literally by PyTorch, such a file trains with gradients that are too large.
TEST(PyTorchCsv, AnOrderWithTransfersHasAllThatPyTorchPerforms) {
  Plan plan = plan_of(2, {2, 2}, "1f1b", 1);
  plan.schedule.order = with_transfers(planner::make_order("1f1b", {2, 8}));
  const ExportedPlan result = exported(plan, "pytorch-csv");
  EXPECT_TRUE(notes(result, "compute_comms"));
  for (const char* action : {"0UNSHARD,", ",0REDUCE_GRAD", ",0RESHARD", "1SEND_B7"})
    EXPECT_NE(result.text.find(action), std::string::npos) << action;
  EXPECT_EQ(result.text.find("WAIT"), std::string::npos);
  const std::string newer = planner::export_pytorch_csv(plan, planner::TorchRelease::V2_15).text;
  for (const char* action : {",0WAIT_SEND_F0", "1WAIT_SEND_B7", ",1WAIT_REDUCE_GRAD,"})
    EXPECT_NE(newer.find(action), std::string::npos) << action;
}

TEST(PyTorchCsv, RefusesWhatItsRuntimeHasNot) {
  Plan plan = plan_of(2, {2, 2}, "1f1b", 1);
  plan.schedule.name = "pipedream";
  EXPECT_NE(refusal_of(plan, "pytorch-csv").find("weight versions"), std::string::npos);
}

TEST(ExportFormats, AreFoundByNameOrASuggestion) {
  EXPECT_EQ(planner::export_formats().size(), 6U);
  try {
    planner::find_export_format("megatorn");
    FAIL() << "nothing was thrown";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("megatron"), std::string::npos);
  }
}

}  // namespace export_test
}  // namespace pipewright::test
