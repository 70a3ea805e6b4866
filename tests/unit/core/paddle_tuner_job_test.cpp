// The job of Paddle's auto tuner as a job of ours.
#include "core/plan/paddle_tuner_job.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/plan/job.hpp"
#include "tests/support/expect_refusal.hpp"
#include "tests/support/json_schema.hpp"

namespace pipewright::test {
namespace paddle_tuner_job_test {

/// As Paddle's own tests of its tuner write it, with every field of the page.
Json tuner_job() {
  return Json::parse(R"({
    "dp_degree": "auto", "mp_degree": "auto", "pp_degree": [1, 2, 4], "vpp_degree": 1,
    "sharding_degree": "auto", "sharding_stage": "auto", "micro_batch_size": [1, 2],
    "use_recompute": [true, false], "recompute_granularity": "full",
    "use_sequence_parallel": "auto",
    "task_limit": 100, "max_time_per_task": 1800, "max_search_time": 7200,
    "search_algo": {"name": "grid"}, "schedule_mode": "memory", "need_baseline": true,
    "run_cmd": {"dp_degree": ["-o", "Global.dp_degree"]},
    "metric_cfg": {"name": "ips", "OptimizationDirection": "Maximize"},
    "nodes": 2, "gpus_per_node": 8,
    "model_cfg": {"hidden_size": 4096, "global_batch_size": 64, "num_layers": 32,
                  "num_attention_heads": 32, "vocab_size": 50304, "seq_length": 2048,
                  "max_sequence_length": 4096, "intermediate_size": 16384}})");
}

PaddleTunerJob read(const Json& document) {
  return read_paddle_tuner_job(JsonCursor(document, "tuner.json"));
}

Json strategy_of(const Json& document) { return read(document).job.at("strategy"); }

bool notes(const PaddleTunerJob& result, const std::string& words) {
  return std::any_of(result.notes.begin(), result.notes.end(), [&](const std::string& note) {
    return note.find(words) != std::string::npos;
  });
}

TEST(PaddleTunerJob, IsAJobThatOurReaderAndSchemaTake) {
  const Json document = tuner_job();
  EXPECT_TRUE(is_paddle_tuner_job(JsonCursor(document, "tuner.json")));
  const PaddleTunerJob result = read(document);
  const SchemaSet schemas(std::string(PIPEWRIGHT_SOURCE_DIR) + "/docs/schemas");
  for (const std::string& problem : schemas.problems("job", result.job)) ADD_FAILURE() << problem;
  const Job job = read_job(JsonCursor(result.job, "tuner.json"));
  ASSERT_TRUE(estimated_architecture(job).has_value());
  EXPECT_EQ(estimated_architecture(job)->hidden, 4096);
  EXPECT_EQ(estimated_architecture(job)->ffn, 16384);
  EXPECT_EQ(estimated_architecture(job)->sequence, 2048);
  EXPECT_EQ(job.global_batch, 64);
  EXPECT_EQ(job.cluster.devices(), 16);
  EXPECT_EQ(job.strategy.pp_degree, (Choice{"1", "2", "4"}));
  EXPECT_EQ(job.strategy.vpp_degree, (Choice{"1"}));
  EXPECT_TRUE(job.strategy.mp_degree.empty());
  EXPECT_EQ(job.strategy.recompute, (Choice{"none", "full"}));
}

TEST(PaddleTunerJob, NamesWhatHasNoEffectAndWhatWasAssumed) {
  const PaddleTunerJob result = read(tuner_job());
  EXPECT_TRUE(notes(result,
                    "of no effect, because nothing is launched to try it: task_limit, "
                    "max_time_per_task, max_search_time, search_algo, schedule_mode, "
                    "need_baseline, run_cmd, metric_cfg"));
  EXPECT_TRUE(notes(result, "NVIDIA A100-SXM4-80GB"));
  Json named = tuner_job();
  named["cluster"] = "dgx-h100";
  EXPECT_FALSE(notes(read(named), "assumed"));
  EXPECT_EQ(read(named).job.at("cluster").at("device").at("model"), "NVIDIA H100-SXM5-80GB");
  named["cluster"] = "cluster.json";
  EXPECT_EQ(read(named).job.at("cluster"), "cluster.json");
  EXPECT_TRUE(notes(read(named), "ignored"));
}

TEST(PaddleTunerJob, AFileWithoutSequencesAndMachinesGetsBothAndSaysSo) {
  Json document = tuner_job();
  for (const char* key : {"seq_length", "max_sequence_length", "intermediate_size"}) {
    document["model_cfg"].erase(key);
  }
  document.erase("nodes");
  document.erase("gpus_per_node");
  const PaddleTunerJob result = read(document);
  EXPECT_TRUE(notes(result, "sequences of 2048 tokens are assumed"));
  const Job job = read_job(JsonCursor(result.job, "tuner.json"));
  EXPECT_EQ(job.cluster.devices(), 8);
  EXPECT_EQ(estimated_architecture(job)->ffn, 4 * 4096);
}

TEST(PaddleTunerJob, WhatIsLeftOutIsOneOrOff) {
  Json document = tuner_job();
  for (const char* key :
       {"dp_degree", "mp_degree", "pp_degree", "vpp_degree", "sharding_degree", "sharding_stage",
        "micro_batch_size", "use_recompute", "recompute_granularity", "use_sequence_parallel"}) {
    document.erase(key);
  }
  EXPECT_EQ(strategy_of(document), Json::parse(R"({"mp_degree": 1, "pp_degree": 1, "vpp_degree": 1,
    "cp_degree": 1, "ep_degree": 1, "micro_batch_size": 1, "dp_degree": 1, "sharding_stage": 0,
    "recompute": "none", "use_sequence_parallel": false})"));
}

TEST(PaddleTunerJob, ReplicasAreShardedOrNot) {
  const auto replicas = [](const char* dp, const char* sharding, const char* stage) {
    Json document = tuner_job();
    document["dp_degree"] = Json::parse(dp);
    document["sharding_degree"] = Json::parse(sharding);
    document["sharding_stage"] = Json::parse(stage);
    const Json strategy = strategy_of(document);
    return strategy.at("dp_degree").dump() + " " + strategy.at("sharding_stage").dump();
  };
  EXPECT_EQ(replicas("8", "1", "2"), "8 0");
  EXPECT_EQ(replicas("1", "8", "2"), "8 [2]");
  EXPECT_EQ(replicas("1", "\"auto\"", "\"auto\""), "\"auto\" [1,2,3]");
  EXPECT_EQ(replicas("\"auto\"", "\"auto\"", "1"), "\"auto\" [0,1]");
  EXPECT_EQ(replicas("[1, 2]", "[1, 4]", "[1, 2]"), "[1,2,4] [0,1,2]");
  Json both = tuner_job();
  both["dp_degree"] = 2;
  both["sharding_degree"] = 4;
  EXPECT_EQ(refusal([&] { read(both); }).pointer(), "/sharding_degree");
}

TEST(PaddleTunerJob, RecomputeIsFullOrOfAttention) {
  const auto recompute = [](const char* used, const char* kinds) {
    Json document = tuner_job();
    document["use_recompute"] = Json::parse(used);
    document["recompute_granularity"] = Json::parse(kinds);
    return strategy_of(document).at("recompute").dump();
  };
  EXPECT_EQ(recompute("false", "\"auto\""), "\"none\"");
  EXPECT_EQ(recompute("true", "\"core_attn\""), "\"selective\"");
  EXPECT_EQ(recompute("\"auto\"", "\"auto\""), R"(["none","selective","full"])");
  EXPECT_EQ(recompute("true", R"(["full", "full_attn"])"), "\"full\"");
  Json only = tuner_job();
  only["use_recompute"] = true;
  only["recompute_granularity"] = "full_attn";
  EXPECT_EQ(refusal([&] { read(only); }).pointer(), "/recompute_granularity");
}

TEST(PaddleTunerJob, SizesAgreeAndMemoryIsALimit) {
  Json document = tuner_job();
  document["num_gpus"] = 16;
  document["max_mem_usage"] = 72;
  const PaddleTunerJob result = read(document);
  EXPECT_EQ(result.job.at("strategy").at("memory_limit"), std::int64_t{72} << 30);
  document.erase("gpus_per_node");
  EXPECT_EQ(read(document).job.at("cluster").at("devices_per_node"), 8);
  document.erase("nodes");
  EXPECT_EQ(read(document).job.at("cluster").at("devices_per_node"), 16);
  document["gpus_per_node"] = 4;
  EXPECT_EQ(read(document).job.at("cluster").at("nodes"), 4);
  document["nodes"] = 2;
  EXPECT_EQ(refusal([&] { read(document); }).pointer(), "/num_gpus");
}

TEST(PaddleTunerJob, RefusedAtItsPlace) {
  const auto pointer = [](const char* place, const char* value) {
    Json document = tuner_job();
    document[Json::json_pointer(place)] = Json::parse(value);
    const InputError error = refusal([&] { read(document); });
    expect_one_line(error);
    return error.pointer();
  };
  EXPECT_EQ(pointer("/mp_degre", "2"), "/mp_degre");
  EXPECT_EQ(pointer("/mp_degree", "0"), "/mp_degree");
  EXPECT_EQ(pointer("/mp_degree", "\"all\""), "/mp_degree");
  EXPECT_EQ(pointer("/pp_degree/1", "2.5"), "/pp_degree/1");
  EXPECT_EQ(pointer("/pp_degree", "[]"), "/pp_degree");
  EXPECT_EQ(pointer("/sharding_stage", "4"), "/sharding_stage");
  EXPECT_EQ(pointer("/use_recompute", "1"), "/use_recompute");
  EXPECT_EQ(pointer("/recompute_granularity", "\"half\""), "/recompute_granularity");
  EXPECT_EQ(pointer("/model_cfg/hidden_size", "0"), "/model_cfg/hidden_size");
  EXPECT_EQ(pointer("/model_cfg/num_attention_heads", "30"), "/model_cfg/num_attention_heads");
  EXPECT_EQ(pointer("/model_cfg/global_batch_size", "\"auto\""), "/model_cfg/global_batch_size");
  EXPECT_EQ(pointer("/model_cfg/max_sequence_length", "1024"), "/model_cfg/max_sequence_length");
  EXPECT_EQ(pointer("/model_cfg/layers", "2"), "/model_cfg/layers");
  EXPECT_EQ(pointer("/nodes", "0"), "/nodes");
  EXPECT_EQ(pointer("/max_mem_usage", "81920"), "/max_mem_usage");
  EXPECT_EQ(pointer("/cluster", "\"dgx-a10\""), "/cluster");
  EXPECT_EQ(pointer("/invalid_strategy", R"(["mp8_pp1"])"), "/invalid_strategy");
  EXPECT_EQ(pointer("/custom_search_dim", R"({"x": {"value": [1]}})"), "/custom_search_dim");
  Json document = tuner_job();
  document["model_cfg"].erase("vocab_size");
  EXPECT_EQ(refusal([&] { read(document); }).pointer(), "/model_cfg");
}

}  // namespace paddle_tuner_job_test
}  // namespace pipewright::test
