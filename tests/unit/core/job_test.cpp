#include "core/plan/job.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/expect_refusal.hpp"
#include "tests/support/sample_documents.hpp"

namespace pipewright {
namespace job_test {

namespace fs = std::filesystem;
using test::refusal;
using ::testing::HasSubstr;

Json minimal() {
  return parse_json(R"({"schema": "pipewright.job/1", "model": "gpt-tiny",
                        "cluster": "local-cpu", "global_batch": 16})",
                    "job.json");
}

Job read(const Json& document) { return read_job(JsonCursor(document, "job.json")); }

Strategy strategy(const char* text) {
  Json document = minimal();
  document["strategy"] = parse_json(text, "job.json");
  return read(document).strategy;
}

InputError refused(const char* pointer, const Json& value) {
  Json document = minimal();
  document[Json::json_pointer(pointer)] = value;
  return refusal([&] { read(document); });
}

TEST(ReadJob, LeavesAllToTheTunerWhereNothingIsSaid) {
  const Job job = read(minimal());
  EXPECT_EQ(job.model.name, "gpt-tiny");
  EXPECT_EQ(job.cluster.devices(), 4);
  EXPECT_TRUE(job.strategy.pp_degree.empty());
  EXPECT_FALSE(job.strategy.policy.has_value());
  EXPECT_EQ(job.tuner_run_mode, TunerRunMode::TunerAndRun);
  EXPECT_EQ(job.auto_mode, AutoMode::Full);
}

TEST(ReadJob, SlowDevicesAndSamplesThatTakeLonger) {
  Json document = minimal();
  document["cluster"] = {
      {"preset", "dgx-a100"},
      {"devices", 16},
      {"slow", {{{"device", 3}, {"factor", 1.25}}, {{"node", 1}, {"factor", 2}}}}};
  document["sample_scales"] = std::vector<double>(16, 0.5);
  const Job job = read(document);
  EXPECT_EQ(job.cluster.slowness(2), 1);
  EXPECT_EQ(job.cluster.slowness(3), 1.25);
  EXPECT_EQ(job.cluster.slowness(8), 2);
  EXPECT_EQ(job.cluster.slowness(15), 2);
  EXPECT_EQ(job.sample_scales, std::vector<double>(16, 0.5));
  const Json written = to_json(job);
  EXPECT_EQ(written["cluster"]["slow"], document["cluster"]["slow"]);
  EXPECT_EQ(to_json(read(written)), written);
  EXPECT_FALSE(to_json(read(minimal())).contains("sample_scales"));
  EXPECT_EQ(fingerprint(job.cluster), fingerprint(cluster_preset("dgx-a100", 16)));
}

TEST(ReadJob, AdaptersAreOfEstimatedJobs) {
  Json document = minimal();
  document["model"] = {
      {"schema", "pipewright.architecture/1"}, {"preset", "llama3-8b"}, {"lora", {{"rank", 16}}}};
  const InputError error = refusal([&] { read(document); });
  EXPECT_EQ(error.pointer(), "/model/lora");
  EXPECT_THAT(error.message(), HasSubstr("only a job that is estimated"));
  document["cluster"] = {{"preset", "dgx-h100"}, {"devices", 8}};
  EXPECT_EQ(read(document).architecture->lora.rank, 16);
}

TEST(ReadJob, LengthsOfSamplesInPlaceOfScales) {
  Json document = minimal();
  document["sample_lengths"] = std::vector<int>(16, 48);
  const Job job = read(document);
  EXPECT_EQ(job.sample_lengths, std::vector<int>(16, 48));
  EXPECT_EQ(to_json(job)["sample_lengths"], document["sample_lengths"]);
  EXPECT_EQ(refused("/sample_lengths", {1, 2}).pointer(), "/sample_lengths");
  EXPECT_EQ(refused("/sample_lengths", std::vector<int>(16, 0)).pointer(), "/sample_lengths/0");
  document["sample_scales"] = std::vector<double>(16, 0.5);
  EXPECT_EQ(refusal([&] { read(document); }).pointer(), "/sample_lengths");
}

TEST(ReadJob, WhatMakesNoSenseOfSlowDevicesAndSamplesIsRefusedAtItsPlace) {
  const auto slow = [](const char* text) {
    Json document = minimal();
    document["cluster"] = {{"preset", "dgx-a100"}, {"slow", Json::parse(text)}};
    return refusal([&] { read(document); }).pointer();
  };
  EXPECT_EQ(slow(R"([{"factor": 2}])"), "/cluster/slow/0");
  EXPECT_EQ(slow(R"([{"device": 1, "node": 0, "factor": 2}])"), "/cluster/slow/0");
  EXPECT_EQ(slow(R"([{"device": 8, "factor": 2}])"), "/cluster/slow/0/device");
  EXPECT_EQ(slow(R"([{"node": 1, "factor": 2}])"), "/cluster/slow/0/node");
  EXPECT_EQ(slow(R"([{"node": 0, "factor": 0.9}])"), "/cluster/slow/0/factor");
  EXPECT_EQ(slow(R"([{"node": 0, "factor": 2}, {"device": 7, "factor": 2}])"),
            "/cluster/slow/1/device");
  EXPECT_EQ(slow(R"([{"device": 7, "factor": 2}, {"node": 0, "factor": 2}])"),
            "/cluster/slow/1/node");
  EXPECT_EQ(refused("/sample_scales", {1, 2}).pointer(), "/sample_scales");
  EXPECT_EQ(refused("/sample_scales", std::vector<double>(16, 0)).pointer(), "/sample_scales/0");
}

Json estimated_job(const Json& framework) {
  return {{"schema", "pipewright.job/1"},
          {"model", "llama3-8b"},
          {"cluster", "dgx-h100"},
          {"global_batch", 64},
          {"strategy", {{"framework", framework}}}};
}

TEST(ReadJob, AFrameworkByNameByFileAndInFull) {
  EXPECT_EQ(read(estimated_job("megatron-lm")).strategy.framework.gradient_bytes, 4);

  const Json own = {
      {"schema", "pipewright.framework/1"}, {"name", "ours"},        {"like", "megatron-lm"},
      {"launch_seconds", 1.5e-5},           {"forward_kernels", 17}, {"dropout", false}};
  const fs::path folder = fs::temp_directory_path() / ("framework-" + std::to_string(::getpid()));
  fs::create_directories(folder);
  write_file(folder / "ours.json", own.dump());
  const Json by_file = estimated_job("ours.json");
  const Job from_file = read_job(JsonCursor(by_file, (folder / "job.json").string()));
  fs::remove_all(folder);
  const Job in_full = read(estimated_job(own));

  for (const Job& job : {from_file, in_full}) {
    const FrameworkTraits& framework = job.strategy.framework;
    EXPECT_EQ(framework.name, "ours");
    EXPECT_EQ(framework.launch_seconds, 1.5e-5);
    EXPECT_EQ(framework.forward_kernels, 17);
    EXPECT_FALSE(framework.dropout);
    EXPECT_EQ(framework.backward_kernels, megatron_lm().backward_kernels);
    EXPECT_EQ(to_json(job).at("strategy").at("framework"), own);
  }
}

TEST(ReadJob, SaysWhatIsWrongWithAFramework) {
  const auto said = [](const Json& framework) {
    return std::string(refusal([&] { read(estimated_job(framework)); }).what());
  };
  EXPECT_THAT(said("megatron"), HasSubstr("expected an object, a preset (megatron-core, "));
  const Json own = {{"name", "ours"}, {"like", "megatron-lm"}};
  const auto with = [&](const char* key, const Json& value) {
    Json changed = own;
    changed[key] = value;
    return said(changed);
  };
  EXPECT_THAT(with("like", "megatron"), HasSubstr("/strategy/framework/like: expected one of"));
  EXPECT_THAT(with("name", "megatron-core"), HasSubstr("a name of its own"));
  EXPECT_THAT(with("launch_second", 1), HasSubstr("did you mean \"launch_seconds\"?"));
  EXPECT_THAT(with("forward_kernels", 1.5), HasSubstr("/strategy/framework/forward_kernels"));
  EXPECT_THAT(with("gradient_bytes", -4), HasSubstr("/strategy/framework/gradient_bytes"));
  EXPECT_THAT(with("flash_rate", 0), HasSubstr("a rate above 0"));
}

TEST(ReadJob, PaddlesNamesFlatAndInsidePipeline) {
  const char* flat = R"({"pp_degree": 2, "accumulate_steps": [4, 8], "schedule_mode": "1F1B",
                         "vpp_degree": "auto", "mp_degree": 1})";
  const char* inside = R"({"pipeline": {"enable": true, "pp_degree": 2, "mp_degree": 1,
                          "accumulate_steps": [4, 8], "schedule_mode": "1F1B",
                          "vpp_degree": "auto"}})";
  for (const char* text : {flat, inside}) {
    const Strategy read = strategy(text);
    EXPECT_EQ(read.pp_degree, Choice{"2"});
    EXPECT_EQ(read.accumulate_steps, (Choice{"4", "8"}));
    EXPECT_EQ(read.schedule_mode, Choice{"1F1B"});
    EXPECT_TRUE(read.vpp_degree.empty());
  }
}

TEST(ReadJob, SendRecvOverlapIsAPolicy) {
  EXPECT_EQ(strategy(R"({"enable_send_recv_overlap": true})").policy->issue, Issue::Stream);
  EXPECT_EQ(strategy(R"({"enable_send_recv_overlap": false})").policy->issue, Issue::Inline);
  EXPECT_EQ(refused("/strategy", {{"enable_send_recv_overlap", true}, {"comm_policy", "torch"}})
                .pointer(),
            "/strategy/enable_send_recv_overlap");
}

TEST(ReadJob, MemoryLimitWithOrWithoutAUnit) {
  EXPECT_EQ(strategy(R"({"memory_limit": 4096})").memory_limit, Bytes(4096));
  EXPECT_EQ(strategy(R"({"memory_limit": "4KiB"})").memory_limit, Bytes(4096));
  for (const Json& wrong : {Json("much"), Json("-4KiB"), Json(-1), Json(0.5), Json(true)}) {
    EXPECT_EQ(refused("/strategy/memory_limit", wrong).pointer(), "/strategy/memory_limit");
  }
}

TEST(ReadJob, ReplicasOfStagesAreOneListOrSeveral) {
  using Lists = std::vector<std::vector<int>>;
  EXPECT_EQ(strategy(R"({"stage_replicas": "auto"})").stage_replicas, Lists());
  EXPECT_EQ(strategy(R"({"stage_replicas": [2, 1]})").stage_replicas, (Lists{{2, 1}}));
  EXPECT_EQ(strategy(R"({"stage_replicas": [[2, 1], [1, 3]]})").stage_replicas,
            (Lists{{2, 1}, {1, 3}}));
  const Json wrong[] = {"2,1", 2, Json::array(), {2, 0}, {2, Json::array()}, {40000, 40000}};
  for (const Json& each : wrong)
    EXPECT_EQ(refused("/strategy/stage_replicas", each).pointer().substr(0, 24),
              "/strategy/stage_replicas");
}

TEST(ReadJob, HowKeysComeTogetherIsOneWayOrSeveral) {
  EXPECT_EQ(strategy(R"({"cp_comm_type": "p2p"})").cp_comm_type, Choice{"p2p"});
  EXPECT_EQ(strategy(R"({"cp_comm_type": ["all_gather", "p2p"]})").cp_comm_type,
            (Choice{"all_gather", "p2p"}));
  EXPECT_TRUE(strategy(R"({"cp_comm_type": "auto"})").opens_cp_comm_type);
  EXPECT_EQ(refused("/strategy/cp_comm_type", "a2a").pointer(), "/strategy/cp_comm_type");
}

TEST(ReadJob, AStrategysFieldsByTheNamesThatOtherToolsGiveThem) {
  const char* megatron = R"({"tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 2,
      "virtual_pipeline_model_parallel_size": 2, "context_parallel_size": 1,
      "expert_model_parallel_size": 1, "data_parallel_size": 2, "micro_batch_size": 1})";
  const char* torchtitan = R"({"tensor_parallel_degree": 1, "pipeline_parallel_degree": 2,
      "num_virtual_stages_per_pipeline_rank": 2, "context_parallel_degree": 1,
      "expert_parallel_degree": 1, "data_parallel_replicate_degree": 2,
      "pipeline_parallel_microbatch_size": 1})";
  const char* deepspeed = R"({"tp_size": 1, "pp_size": 2, "vpp": 2, "cp": 1, "ep_size": 1,
      "dp_size": 2, "train_micro_batch_size_per_gpu": 1})";
  const char* inside = R"({"pipeline": {"tp_degree": 1, "pp": 2, "vpp_degree": 2, "sep_degree": 1,
      "ep": 1, "dp": 2, "micro_batch_size": 1}})";
  for (const char* text : {megatron, torchtitan, deepspeed, inside}) {
    SCOPED_TRACE(text);
    const Strategy read = strategy(text);
    EXPECT_EQ(read.mp_degree, Choice{"1"});
    EXPECT_EQ(read.pp_degree, Choice{"2"});
    EXPECT_EQ(read.vpp_degree, Choice{"2"});
    EXPECT_EQ(read.cp_degree, Choice{"1"});
    EXPECT_EQ(read.ep_degree, Choice{"1"});
    EXPECT_EQ(read.dp_degree, Choice{"2"});
    EXPECT_EQ(read.micro_batch_size, Choice{"1"});
  }
}

TEST(ReadJob, TwoNamesOfOneFieldHaveToAgree) {
  EXPECT_EQ(strategy(R"({"pp_degree": 2, "pipeline_parallel_degree": 2})").pp_degree, Choice{"2"});
  const InputError error = refused("/strategy", {{"tp_degree", 1}, {"tensor_parallel_size", 2}});
  EXPECT_EQ(error.pointer(), "/strategy/tensor_parallel_size");
  EXPECT_THAT(error.message(), HasSubstr("expected 1 as at /strategy/tp_degree"));
  EXPECT_THAT(refused("/strategy", {{"zero_stage", 2}}).message(),
              HasSubstr("this job is planned layer by layer"));
  EXPECT_EQ(refused("/strategy", {{"zero_stage", 2}}).pointer(), "/strategy/zero_stage");
}

TEST(ReadJob, WhatAStrategyMayNotSay) {
  EXPECT_EQ(refused("/strategy/pp_degree", "two").message(),
            "expected \"auto\", a whole number from 1 to 65536, or a list of them, found \"two\"");
  EXPECT_EQ(refused("/strategy/pp_degree", Json::array()).pointer(), "/strategy/pp_degree");
  EXPECT_EQ(refused("/strategy/pp_degree", {2, 0}).pointer(), "/strategy/pp_degree/1");
  EXPECT_EQ(refused("/strategy/pp_degre", 2).message().substr(0, 40),
            "unknown key (did you mean \"pp_degree\"?)");
  EXPECT_EQ(refused("/strategy", {{"pp_degree", 2}, {"pipeline", {{"pp_degree", 2}}}}).message(),
            "stands at /strategy/pp_degree too; keep one of them");
  EXPECT_THAT(refused("/strategy/sharding_stage", 2).message(),
              HasSubstr("this job is planned layer by layer"));
  EXPECT_EQ(refused("/strategy/recompute", "some").pointer(), "/strategy/recompute");
  EXPECT_EQ(refused("/strategy/recompute", {"full", "by-stage"}).pointer(),
            "/strategy/recompute/1");
  EXPECT_EQ(refused("/strategy/pipeline", {{"program_runtimes", {1, 2}}}).message(),
            "Paddle has this field, but Pipewright makes no use of it; remove it");
  EXPECT_EQ(refused("/strategy/pipeline", {{"enable", false}}).pointer(),
            "/strategy/pipeline/enable");
}

TEST(ReadJob, BatchesHaveToAgreeWhereNothingIsLeftOpen) {
  EXPECT_EQ(
      refused("/strategy", {{"micro_batch_size", 2}, {"accumulate_steps", 4}, {"dp_degree", 1}})
          .message(),
      "expected micro_batch_size times accumulate_steps, 2 * 4 = 8, found 16");
  EXPECT_EQ(refused("/strategy", {{"micro_batch_size", 8}, {"accumulate_steps", 4}}).message(),
            "expected a multiple of micro_batch_size times accumulate_steps, 8 * 4 = 32 "
            "(dp_degree is the factor), found 16");
  EXPECT_NO_THROW(strategy(R"({"micro_batch_size": 2, "accumulate_steps": 4})"));
  EXPECT_EQ(
      refused("/strategy", {{"micro_batch_size", 4}, {"accumulate_steps", 4}, {"dp_degree", 2}})
          .message(),
      "expected micro_batch_size times accumulate_steps times dp_degree, 4 * 4 * 2 = 32, found 16");
  EXPECT_EQ(refused("/strategy", {{"dp_degree", 3}}).pointer(), "/global_batch");
  EXPECT_EQ(refused("/strategy", {{"micro_batch_size", 3}}).pointer(), "/global_batch");
  EXPECT_EQ(refused("/strategy", {{"accumulate_steps", 5}}).pointer(), "/global_batch");
  EXPECT_NO_THROW(strategy(R"({"micro_batch_size": 4, "accumulate_steps": 2, "dp_degree": 2})"));
  EXPECT_NO_THROW(strategy(R"({"micro_batch_size": [3, 4], "accumulate_steps": 4})"));
}

TEST(ReadJob, ModelAndClusterByNameOrAsAWhole) {
  const std::string message = refused("/model", "gpt-tinny").message();
  EXPECT_THAT(message, HasSubstr("expected an object, a preset (mlp, gpt-tiny, "));
  EXPECT_THAT(message,
              HasSubstr("nemotron-3-super) or the path of a file that exists (did you mean "
                        "\"gpt-tiny\"?), found \"gpt-tinny\""));
  EXPECT_EQ(refused("/model", 3).pointer(), "/model");
  EXPECT_EQ(refused("/cluster", {{"preset", "dgx-a100"}, {"devices", 12}}).pointer(),
            "/cluster/devices");
  EXPECT_EQ(refused("/model", {{"transformer", {{"hidden", 8}}}}).pointer(), "/model/transformer");
  EXPECT_EQ(refused("/tuner_run_mode", "run_only").pointer(), "/tuner_run_mode");
  EXPECT_EQ(refused("/tuner_run_mode", "run").pointer(), "/tuner_run_mode");
}

/// A folder with a plan and a job that loads it.
class TunedPlan : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("pipewright-job-" + std::to_string(::getpid()));
    fs::create_directories(folder_);
    Plan plan = test::sample_plan();
    plan.training.data.clear();
    plan.training.targets.clear();
    save_plan(plan, file("plan.json"));
    Json document = minimal();
    document["cluster"] = {{"preset", "local-cpu"}, {"devices", 2}};
    document["global_batch"] = 8;
    document["tuner_load_path"] = "plan.json";
    write_file(file("job.json"), to_text(document));
    job_ = load_job(file("job.json"));
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string file(const char* name) const { return (folder_ / name).string(); }

  fs::path folder_;
  Job job_;
};

TEST_F(TunedPlan, PathsStartAtTheJobsFolder) {
  EXPECT_EQ(job_.tuner_load_path, file("plan.json"));
  EXPECT_EQ(load_tuned_plan(job_).stages.size(), 2U);
}

TEST_F(TunedPlan, ModelAndClusterFilesTooAndTheyAreBlamedThemselves) {
  write_file(file("model.json"), to_text(to_json(model_preset("mlp"))));
  Json document = minimal();
  document["model"] = "model.json";
  write_file(file("other.json"), to_text(document));
  EXPECT_EQ(load_job(file("other.json")).model.name, "mlp");
  write_file(file("model.json"), R"({"schema": "pipewright.model/1", "preset": "mpl"})");
  const InputError error = refusal([&] { load_job(file("other.json")); });
  EXPECT_EQ(error.file(), file("model.json"));
  EXPECT_EQ(error.pointer(), "/preset");
}

TEST_F(TunedPlan, AnotherClusterIsShownOnBothSides) {
  job_.cluster = cluster_preset("dgx-a100");
  try {
    load_tuned_plan(job_);
    FAIL() << "a plan for another cluster was taken";
  } catch (const MachineError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find(fingerprint(job_.cluster)), std::string::npos) << text;
    EXPECT_NE(text.find(fingerprint(cluster_preset("local-cpu", 2))), std::string::npos) << text;
  }
}

TEST_F(TunedPlan, AnotherModelOrBatchIsRefused) {
  Job other = job_;
  other.model = model_preset("mlp");
  EXPECT_EQ(refusal([&] { load_tuned_plan(other); }).pointer(), "/model");
  other = job_;
  other.global_batch = 16;
  EXPECT_EQ(refusal([&] { load_tuned_plan(other); }).message(),
            "this plan trains 8 samples a step, but the job's global_batch is 16; tune again, or "
            "change the job");
}

TEST_F(TunedPlan, MissingBrokenOrAPickle) {
  fs::remove(file("plan.json"));
  EXPECT_EQ(refusal([&] { load_tuned_plan(job_); }).file(), file("plan.json"));
  write_file(file("plan.json"), "{\"schema\": ");
  EXPECT_EQ(refusal([&] { load_tuned_plan(job_); }).pointer(), "line 1, column 12");
  write_file(file("plan.json"), "\x80\x04\x95");
  EXPECT_NE(refusal([&] { load_tuned_plan(job_); }).message().find("pickle"), std::string::npos);
  job_.tuner_load_path.clear();
  EXPECT_NE(refusal([&] { load_tuned_plan(job_); }).message().find("tuner_load_path"),
            std::string::npos);
}

}  // namespace job_test
}  // namespace pipewright
