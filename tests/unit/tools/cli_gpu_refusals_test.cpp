// `run` on GPUs says what no GPU runs, in the plan's words or its own, before it looks for one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/support/small_job.hpp"

namespace pipewright::test {
namespace cli_gpu_refusals_test {

using nlohmann::json;
using testing::HasSubstr;

constexpr const char* kGpuWays[] = {"--device cuda", "--transport nccl", "--device cuda --dry-run",
                                    "--transport nccl --dry-run"};

constexpr const char* kCallsOfNccl = "--transport nccl --dry-run";

/// Exit status, and one line that says it.
void expect_refused(const Folder& folder, const std::string& words, int status,
                    const std::string& says) {
  const CommandResult result = pipewright("run " + words, folder);
  EXPECT_EQ(result.status, status) << words << "\n" << result.err;
  EXPECT_THAT(result.err, HasSubstr(says)) << words;
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_EQ(result.out, "") << words;
}

/// A job whose plan no executor has; `words` of its "executable".
void expect_plan_refused(const std::string& job, const std::string& words) {
  const Folder folder;
  folder.write("job.json", job);
  const CommandResult tuned = pipewright("tune job.json -o plan.json -q", folder);
  ASSERT_EQ(tuned.status, 0) << tuned.err;
  for (const char* way : kGpuWays)
    expect_refused(folder, std::string("plan.json ") + way, 3,
                   "this plan does not run on GPUs: not in the executor: " + words);
  expect_refused(folder, "plan.json --device cpu", 3,
                 "this plan does not run on CPUs: not in the executor: " + words);
}

/// Without a preset of that name the model is JSON.
std::string job_on_a100s(const std::string& model, const std::string& strategy) {
  const std::string quote = model.front() == '{' ? "" : "\"";
  return R"({"schema": "pipewright.job/1", "model": )" + quote + model + quote +
         R"(, "cluster": {"preset": "dgx-a100", "devices": 8}, "global_batch": 16,
             "strategy": )" +
         strategy + "}";
}

/// CPUs train it; what GPUs would call is shown.
void expect_trained_on_cpus_alone(const std::string& job, const std::string& words,
                                  const std::string& group) {
  const Folder folder;
  folder.write("job.json", job);
  ASSERT_EQ(pipewright("tune job.json -o plan.json -q", folder).status, 0);
  for (const char* way : kGpuWays) {
    if (way != std::string(kCallsOfNccl))
      expect_refused(
          folder, std::string("plan.json ") + way, 3,
          "this plan does not run on GPUs: not in the executor: " + words + "; use --device cpu\n");
  }
  const CommandResult shown = pipewright("run plan.json --transport nccl --dry-run", folder);
  EXPECT_EQ(shown.status, 0) << shown.err;
  EXPECT_THAT(shown.err, HasSubstr("GPUs do not train layers that are divided so yet"));
  EXPECT_THAT(shown.out, HasSubstr("group " + group + " 0 1, at most"));
  EXPECT_THAT(shown.out, HasSubstr("the calls, read back: ok"));
}

/// Device by device: two ranks of a stage are two of NCCL's. With sequence parallelism and without.
TEST(GpuRefusals, APlanWithTensorParallelismIsShownWithoutAGpu) {
  for (const char* divides_rows : {"false", "true"}) {
    const Folder folder;
    folder.write("job.json", job_on_a100s("megatron-1.7b",
                                          R"({"mp_degree": 2, "pp_degree": 4, "sharding_stage": 0,
                                              "use_sequence_parallel": )" +
                                              std::string(divides_rows) + "}"));
    ASSERT_EQ(pipewright("tune job.json -o plan.json -q", folder).status, 0);
    const CommandResult calls = pipewright("run plan.json --transport nccl --dry-run", folder);
    EXPECT_EQ(calls.status, 0) << calls.err;
    EXPECT_EQ(calls.err, "");
    EXPECT_THAT(calls.out, HasSubstr("group tp 0 1, at most"));
    EXPECT_THAT(calls.out, HasSubstr("the calls, read back: ok"));
    const CommandResult order = pipewright("run plan.json --device cuda --dry-run", folder);
    EXPECT_EQ(order.status, 0) << order.err;
    EXPECT_THAT(order.out, HasSubstr(divides_rows == std::string("true") ? "ALL_GATHER(tp:"
                                                                         : "ALL_REDUCE(tp:"));
  }
}

/// Keys and values gathered, and sent round.
TEST(GpuRefusals, APlanWithContextParallelismIsShownWithoutAGpu) {
  for (const auto& [type, call] :
       {std::pair{"all_gather", "ncclAllGather"}, {"p2p", "ncclSend + ncclRecv"}}) {
    const Folder folder;
    folder.write("job.json", job_on_a100s(R"({"schema": "pipewright.model/1",
                                              "transformer": {"hidden": 32, "layers": 6, "heads": 8,
                                              "ffn": 64, "vocabulary": 256, "sequence": 16},
                                              "bytes_per_element": 4})",
                                          R"({"mp_degree": 1, "cp_degree": 2, "pp_degree": 4,
                                              "sharding_stage": 0, "cp_comm_type": ")" +
                                              std::string(type) + "\"}"));
    ASSERT_EQ(pipewright("tune job.json -o plan.json -q", folder).status, 0);
    const CommandResult calls = pipewright("run plan.json --transport nccl --dry-run", folder);
    EXPECT_EQ(calls.status, 0) << calls.err;
    EXPECT_EQ(calls.err, "");
    EXPECT_THAT(calls.out, HasSubstr("group cp 0 1, at most"));
    EXPECT_THAT(calls.out, HasSubstr(call));
    EXPECT_THAT(calls.out, HasSubstr("the calls, read back: ok"));
  }
}

/// Of 1,028 tokens each rank along cp has 514, which four along tp do not divide.
TEST(GpuRefusals, APlanWithRowsThatContextLeavesUnevenIsRefusedInItsOwnWords) {
  expect_plan_refused(job_on_a100s(R"({"schema": "pipewright.architecture/1", "name": "ours",
                       "hidden": 2048, "layers": 8, "heads": 16, "biases": true,
                       "vocabulary": 32000, "sequence": 1028})",
                                   R"({"mp_degree": 4, "cp_degree": 2, "sharding_stage": 0,
                       "use_sequence_parallel": true})"),
                      "rows of this model for cp 2 beside sequence parallelism with tp 4\n");
}

/// Of an estimated transformer, on any device: its times are of sums that nobody makes.
TEST(GpuRefusals, APlanWithZero2IsRefusedInItsOwnWords) {
  expect_plan_refused(job_on_a100s("megatron-1.7b", R"({"mp_degree": 1, "sharding_stage": 2,
                                                        "dp_degree": 8})"),
                      "ZeRO stage 2\n");
}

TEST(GpuRefusals, APlanWithBlocksOfItsOwnIsRefusedInItsOwnWords) {
  expect_plan_refused(
      job_on_a100s(R"({"schema": "pipewright.architecture/1", "name": "ours",
                       "hidden": 2048, "layers": 8, "heads": 16, "gated": true, "biases": true,
                       "vocabulary": 32000, "sequence": 1024})",
                   R"({"mp_degree": 2, "sharding_stage": 0, "use_sequence_parallel": false})"),
      "the layers of ours\n");
}

/// A plan that needs nothing but GPUs goes on to look for them, or is shown without one.
TEST(GpuRefusals, APlanThatNeedsAGpuIsShownWithoutOne) {
  const Folder folder;
  ASSERT_EQ(write_small_job(folder).status, 0);
  for (const char* way : {"--device cuda --dry-run", "--transport nccl --dry-run"}) {
    const CommandResult shown = pipewright(std::string("run plan.json ") + way, folder);
    EXPECT_EQ(shown.status, 0) << way << "\n" << shown.err;
  }
}

TEST(GpuRefusals, ImagesAreTakenWhateverReplicasDivide) {
  const Folder folder;
  for (const int zero : {0, 1, 2, 3}) {
    const std::string name = "zero" + std::to_string(zero);
    const std::string degree = zero == 0 ? "pp_degree" : "sharding_degree";
    folder.write(name + ".json", R"({"schema": "pipewright.job/1", "model": "resnet-tiny",
      "cluster": {"preset": "local-cpu", "devices": 2}, "global_batch": 8,
      "strategy": {"accumulate_steps": 2, ")" +
                                     degree + R"(": 2, "sharding_stage": )" + std::to_string(zero) +
                                     "}}");
    const CommandResult tuned =
        pipewright("tune " + name + ".json -q -o " + name + ".plan", folder);
    ASSERT_EQ(tuned.status, 0) << tuned.err;
    for (const char* device : {" --device cuda", " --transport nccl"}) {
      const CommandResult shown =
          pipewright("run " + name + ".plan" + device + " --dry-run", folder);
      EXPECT_EQ(shown.status, 0) << name << device << shown.err;
    }
  }
}

}  // namespace cli_gpu_refusals_test
}  // namespace pipewright::test
