// Replicas of stages from the job to the run, as a user types it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/json.hpp"
#include "tests/support/command_runner.hpp"

namespace pipewright::test {
namespace cli_replicas_test {

using ::testing::HasSubstr;

void write_job(const Folder& folder, const std::string& replicas) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "the quick brown fox number " + std::to_string(i * i);
  folder.write("text", text);
  folder.write("job.json", R"({"schema": "pipewright.job/1", "model": {"name": "small",
    "loss": "softmax_cross_entropy", "sequence": 8, "layers": [
    {"kind": "embedding", "vocabulary": 256, "out": 16}, {"kind": "linear", "out": 24},
    {"kind": "gelu"}, {"kind": "linear", "out": 256}]},
    "cluster": {"preset": "local-cpu", "devices": 4}, "global_batch": 12,
    "strategy": {"schedule_mode": "1f1b-rr", "pp_degree": 4, "accumulate_steps": 6)" +
                               replicas +
                               R"(}, "tuner_save_path": "plan.json",
    "training": {"steps": 3, "learning_rate": 0.01, "data": "text"}})");
}

TEST(StageReplicas, AreTunedSimulatedCheckedAndRun) {
  for (const std::string counts : {"2,1,1", "3,1", "1,3"}) {
    const Folder folder;
    write_job(folder, ", \"stage_replicas\": [" + counts + "]");
    const auto tuned = pipewright("tune job.json", folder);
    ASSERT_EQ(tuned.status, 0) << tuned.err;
    EXPECT_THAT(tuned.out, HasSubstr("1f1b-rr " + counts));
    EXPECT_THAT(tuned.out, HasSubstr("stage_replicas stays " + counts));
    const Json plan = parse_json(read_text((folder.path() / "plan.json").string()), "plan.json");
    EXPECT_EQ(plan.at("schedule").at("parameters").at("replicas"), counts);
    const auto simulated = pipewright("simulate plan.json --json", folder);
    ASSERT_EQ(simulated.status, 0) << simulated.err;
    EXPECT_EQ(Json::parse(simulated.out).at("makespan_ns"), plan.at("predicted").at("step_ns"));
    EXPECT_EQ(pipewright("check plan.json", folder).status, 0);
    const auto run = pipewright("run plan.json --device cpu", folder);
    EXPECT_EQ(run.status, 0) << run.err;
  }
}

TEST(StageReplicas, AreChosenShownAndExplained) {
  const Folder folder;
  write_job(folder, "");
  const auto tuned = pipewright("tune job.json --json --explain replicas=1,2,1", folder);
  ASSERT_EQ(tuned.status, 0) << tuned.err;
  const Json result = Json::parse(tuned.out);
  int sum = 0;
  for (const Json& count : result.at("best").at("stage_replicas")) sum += count.get<int>();
  EXPECT_EQ(sum, 4);
  EXPECT_GE(result.at("ranked").size(), 5u);
  EXPECT_TRUE(result.at("baselines").at(0).at("stage_replicas").empty());
  const Json& explained = result.at("explained").at("configuration");
  EXPECT_EQ(explained.at("stage_replicas"), Json({1, 2, 1}));
  EXPECT_GE(explained.at("step_ns"), result.at("best").at("step_ns"));
}

TEST(StageReplicas, OfOtherSchedulesAreRefused) {
  const Folder folder;
  write_job(folder, R"(, "stage_replicas": [[2, 1, 1], [3, "one"]])");
  const auto wrong = pipewright("tune job.json", folder);
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.err, HasSubstr("/strategy/stage_replicas/1/1"));
  write_job(folder, R"(, "stage_replicas": [2, 1, 1])");
  const auto other = shell("sed -i 's/1f1b-rr/1f1b/' job.json && $PW tune job.json", folder);
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("only the stages of 1f1b-rr have replicas"));
}

}  // namespace cli_replicas_test
}  // namespace pipewright::test
