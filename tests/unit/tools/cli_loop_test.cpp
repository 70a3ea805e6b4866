// The loop of the demo, command by command on files, as a user would go through it with a job of
// their own.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "exec/data/npy.hpp"
#include "tests/support/command_runner.hpp"

namespace pipewright::test {
namespace cli_loop_test {

using nlohmann::json;

constexpr const char* kJob = R"({
  "schema": "pipewright.job/1", "model": "gpt-tiny", "cluster": "local-cpu", "global_batch": 8,
  "strategy": {"pp_degree": 2, "accumulate_steps": 4, "schedule_mode": ["1f1b", "zb-h1"]},
  "profile_path": "profile.json", "tuner_load_path": "plan.json",
  "training": {"optimizer": "adamw", "learning_rate": 0.003, "steps": 12, "data": "text.txt"}
})";

/// A text with something to learn: half of its bytes are one letter.
std::string text_of(std::size_t bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes; ++i) text += i % 2 == 0 ? 'e' : static_cast<char>('a' + i % 7);
  return text;
}

TEST(Loop, ProfileTuneSimulateRunCompare) {
  const Folder folder;
  folder.write("job.json", kJob);
  folder.write("text.txt", text_of(20'000));

  const auto profile = pipewright("profile job.json --sizes 2 --budget 300ms --json", folder);
  ASSERT_EQ(profile.status, 0) << profile.err;
  EXPECT_EQ(json::parse(profile.out).at("file"), "profile.json");

  const auto tune = pipewright("tune job.json -o plan.json --json", folder);
  ASSERT_EQ(tune.status, 0) << tune.err;
  const json tuned = json::parse(tune.out);
  for (const char* key : {"best", "ranked", "baselines", "pruned", "evaluated", "elapsed_ns"}) {
    EXPECT_TRUE(tuned.contains(key)) << key;
  }
  // The job leaves the two schedules and the partitions open; the best is the first of the table.
  EXPECT_EQ(tuned.at("best"), tuned.at("ranked")[0]);
  EXPECT_EQ(tuned.at("best").at("pp"), 2);
  EXPECT_EQ(tuned.at("best").at("micro_batches"), 4);

  // Through tuner_load_path, and as a plan: the same prediction, and the one that tune printed.
  const auto by_job = pipewright("simulate job.json --json --trace sim.json.gz", folder);
  const auto by_plan = pipewright("simulate plan.json --json", folder);
  ASSERT_EQ(by_job.status, 0) << by_job.err;
  EXPECT_EQ(by_job.out, by_plan.out);
  EXPECT_EQ(json::parse(by_job.out).at("makespan_ns"), tuned.at("best").at("step_ns"));
  EXPECT_EQ(pipewright("check job.json", folder).status, 0);

  const auto drawn =
      pipewright("simulate plan.json --samples 20 --profile profile.json --json", folder);
  ASSERT_EQ(drawn.status, 0) << drawn.err;
  EXPECT_EQ(json::parse(drawn.out).at("drawn_steps").at("count"), 20);
  EXPECT_EQ(pipewright("simulate plan.json --samples 20", folder).status, 2);

  const auto run = pipewright("run job.json --verify --json --trace real.json.gz", folder);
  ASSERT_EQ(run.status, 0) << run.err << run.out;
  const json steps = json::parse(run.out).at("steps");
  ASSERT_EQ(steps.size(), 12U);
  EXPECT_LT(steps.back().at("loss").get<double>(), steps.front().at("loss").get<double>());
  EXPECT_LE(json::parse(run.out).at("verify").at("norm_rel").get<double>(), 1e-6);
  const json held = json::parse(run.out).at("peak_bytes");
  const json said = json::parse(run.out).at("predicted_peak_bytes");
  ASSERT_EQ(held.size(), 2U);
  ASSERT_EQ(said.size(), held.size());
  for (std::size_t r = 0; r < held.size(); ++r)
    EXPECT_NEAR(said[r].get<double>() / held[r].get<double>(), 1, 0.05) << "rank " << r;

  const auto compare = pipewright("compare sim.json.gz real.json.gz --json", folder);
  ASSERT_EQ(compare.status, 0) << compare.err;
  // Every computation of the plan is found in both: F, I, W or F, B of 2 stages and 4
  // micro-batches, and the 2 updates.
  const json compared = json::parse(compare.out);
  EXPECT_FALSE(compared.at("fit").at("scales").empty());
  const auto fitted =
      pipewright("compare sim.json.gz real.json.gz --fit profile.json -o fitted.json", folder);
  ASSERT_EQ(fitted.status, 0) << fitted.err;
  EXPECT_NE(fitted.out.find("what the prediction misses"), std::string::npos) << fitted.out;
  EXPECT_EQ(pipewright("tune job.json --profile fitted.json -o better.json -q", folder).status, 0);
  EXPECT_EQ(compared.at("only_predicted"), 0);
  EXPECT_EQ(compared.at("only_measured"), 0);
  EXPECT_EQ(pipewright("analyze real.json.gz", folder).status, 0);
  EXPECT_EQ(pipewright("run plan.json --device paced --clock virtual --json", folder).status, 0);
  const auto on_cpu = pipewright("run plan.json --clock virtual --steps 2 --verify", folder);
  EXPECT_EQ(on_cpu.status, 0) << on_cpu.err;
  EXPECT_NE(on_cpu.out.find("thread's CPU time"), std::string::npos) << on_cpu.out;
  EXPECT_NE(on_cpu.out.find("agree with a serial run"), std::string::npos) << on_cpu.out;
  EXPECT_NE(on_cpu.out.find("peak memory "), std::string::npos) << on_cpu.out;
}

TEST(Loop, OnTheVirtualClockEveryRankHasACoreOfItsOwn) {
  const Folder folder;
  folder.write("job.json", R"({
  "schema": "pipewright.job/1", "model": "gpt-tiny", "cluster": {"preset": "local-cpu", "devices": 4},
  "global_batch": 8,
  "strategy": {"pp_degree": 4, "accumulate_steps": 8, "schedule_mode": "1f1b"},
  "training": {"optimizer": "sgd", "learning_rate": 0.01, "steps": 2, "seed": 1}})");
  folder.write("text.txt", std::string(4000, 'x'));
  ASSERT_EQ(
      pipewright("profile job.json --sizes 1 --budget 200ms --clock virtual -q", folder).status, 0);
  ASSERT_EQ(pipewright("tune job.json --profile profile.json -o plan.json -q", folder).status, 0);
  const std::string plan = shell("cat plan.json", folder).out;
  EXPECT_NE(plan.find("CPU time"), std::string::npos);
  const auto run =
      pipewright("run plan.json --data text.txt --clock virtual --verify --json", folder);
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(json::parse(run.out).at("clock"), "virtual");
}

constexpr const char* kImageJob = R"({
  "schema": "pipewright.job/1", "model": "resnet-tiny", "cluster": "local-cpu", "global_batch": 8,
  "strategy": {"pp_degree": 2, "accumulate_steps": 4, "schedule_mode": "1f1b"},
  "training": {"learning_rate": 0.003, "steps": 12,
               "data": {"inputs": "x.npy", "labels": "y.npy"}}
})";

/// Black images are of class 1, white ones of class 2.
void write_images(const Folder& folder) {
  constexpr std::int64_t kImages = 32, kNumbers = 3 * 16 * 16;
  std::vector<float> inputs;
  std::vector<std::int32_t> labels;
  for (std::int64_t i = 0; i < kImages; ++i) {
    inputs.insert(inputs.end(), kNumbers, i % 2 == 0 ? 0.0F : 1.0F);
    labels.push_back(i % 2 == 0 ? 1 : 2);
  }
  folder.write("x.npy", exec::npy_bytes({kImages, 3, 16, 16}, inputs));
  folder.write("y.npy", exec::npy_bytes({kImages}, labels));
}

TEST(Loop, AResNetIsProfiledTunedAndTrainedOnArrays) {
  const Folder folder;
  folder.write("job.json", kImageJob);
  write_images(folder);
  ASSERT_EQ(pipewright("profile job.json --sizes 2 --budget 200ms -q", folder).status, 0);
  ASSERT_EQ(pipewright("tune job.json --profile profile.json -o plan.json -q", folder).status, 0);
  const auto run = pipewright("run plan.json --numerics exact --verify --json", folder);
  ASSERT_EQ(run.status, 0) << run.err;
  const json result = json::parse(run.out);
  EXPECT_EQ(result.at("verify").at("bitwise"), true);
  const json& steps = result.at("steps");
  EXPECT_LT(steps.back().at("loss").get<double>(), steps.front().at("loss").get<double>());

  // The same arrays by flags; then labels that are none.
  EXPECT_EQ(pipewright("run plan.json --steps 1 --data x.npy --labels y.npy -q", folder).status, 0);
  const auto wrong = pipewright("run plan.json --data x.npy --labels x.npy", folder);
  EXPECT_EQ(wrong.status, 2);
  EXPECT_NE(wrong.err.find("x.npy: its shape is [32, 3, 16, 16]"), std::string::npos) << wrong.err;
  EXPECT_EQ(pipewright("run plan.json --labels y.npy", folder).status, 2);
  EXPECT_EQ(pipewright("run plan.json --data x.npy --labels y.npy --targets y.npy", folder).status,
            2);
}

TEST(Loop, APlanForAnotherClusterIsStatus3) {
  const Folder folder;
  folder.write("job.json", kJob);
  const auto without_data = pipewright("profile job.json --sizes 2 --budget 100ms -q", folder);
  EXPECT_EQ(without_data.status, 2);
  EXPECT_NE(without_data.err.find("text.txt"), std::string::npos) << without_data.err;
  folder.write("text.txt", text_of(20'000));
  ASSERT_EQ(pipewright("profile job.json --sizes 2 --budget 100ms -q", folder).status, 0);
  ASSERT_EQ(pipewright("tune job.json -o plan.json -q", folder).status, 0);
  std::string other = kJob;
  other.replace(other.find("local-cpu"), 9, "dgx-a100");
  folder.write("other.json", other);
  const auto result = pipewright("simulate other.json", folder);
  EXPECT_EQ(result.status, 3) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_NE(result.err.find("A100"), std::string::npos) << result.err;
}

TEST(Loop, ATrainedPlanWithWeightVersionsSaysHowManyLivedAtOnce) {
  const Folder folder;
  folder.write("job.json", R"({
  "schema": "pipewright.job/1", "model": "gpt-tiny", "cluster": "local-cpu", "global_batch": 8,
  "strategy": {"pp_degree": 4, "accumulate_steps": 8, "schedule_mode": "pipedream"},
  "training": {"optimizer": "sgd", "learning_rate": 0.01, "steps": 1, "seed": 1}})");
  folder.write("text.txt", std::string(4000, 'x'));
  ASSERT_EQ(pipewright("tune job.json -o plan.json -q", folder).status, 0);
  const auto run = pipewright("run plan.json --data text.txt --json", folder);
  ASSERT_EQ(run.status, 0) << run.err;
  // Rank r runs p-1-r micro-batches ahead, and each keeps its weights besides the newest.
  EXPECT_EQ(nlohmann::json::parse(run.out).at("peak_weight_versions"),
            (nlohmann::json{4, 3, 2, 1}));
  const auto text = pipewright("run plan.json --data text.txt", folder);
  EXPECT_NE(text.out.find("most weight versions at once, by rank: 4 3 2 1"), std::string::npos);
}

}  // namespace cli_loop_test
}  // namespace pipewright::test
