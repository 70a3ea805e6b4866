// simulate --expand and check --expand: every device as a rank says what the ranks that stand for
// them say (docs/semantics.md §3.5).
#include <gtest/gtest.h>

#include "core/base/json.hpp"
#include "tests/support/command_runner.hpp"

namespace pipewright::test {
namespace cli_expand_test {

Json result_of(const std::string& words, const Folder& folder, int status = 0) {
  const auto result = pipewright(words + " --json", folder);
  EXPECT_EQ(result.status, status) << words << "\n" << result.err;
  return result.status == status ? Json::parse(result.out) : Json();
}

/// The same figures, and each device's are its rank's.
void expect_alike(const std::string& file, const Folder& folder, std::size_t each) {
  const Json ranks = result_of("simulate " + file, folder);
  const Json devices = result_of("simulate " + file + " --expand", folder);
  for (const char* figure : {"makespan_ns", "bubble_ratio", "span_bubble_ratio", "ranks"})
    EXPECT_EQ(devices.at(figure), ranks.at(figure)) << figure;
  EXPECT_FALSE(ranks.contains("devices"));
  ASSERT_EQ(devices.at("devices").size(), each * ranks.at("ranks").size());
  for (std::size_t d = 0; d < devices.at("devices").size(); ++d) {
    Json rank = ranks.at("ranks")[d / each];
    EXPECT_EQ(rank.at("devices"), each);
    rank.erase("devices");
    EXPECT_EQ(devices.at("devices")[d], rank);
  }
}

TEST(Expand, DevicesOfAnOrderTakeWhatTheirRankTakes) {
  const Folder folder;
  folder.write("order.csv",
               "# parts 0F: a ALL_REDUCE(tp:x)*2 b*3\n# parts 1B: a ALL_GATHER(cp:y)*2 b\n"
               "# mesh tp=2 cp=3\n0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  expect_alike("order.csv", folder, 6);
}

TEST(Expand, APlanWithReplicasAsWell) {
  const Folder folder;
  Json job = Json::parse(read_text(PIPEWRIGHT_SOURCE_DIR "/examples/tensor-parallel.json"));
  job["cluster"]["devices_per_node"] = 8;
  job["strategy"] = {{"mp_degree", 2}, {"dp_degree", 2}, {"pp_degree", 2}};
  folder.write("job.json", to_text(job));
  result_of("tune job.json -o plan.json", folder);
  expect_alike("plan.json", folder, 2);
  EXPECT_EQ(result_of("simulate plan.json --expand", folder).at("devices").size(), 8U);
}

TEST(Expand, WithoutItOneReplicaStandsForAHundredThousandDevices) {
  const Folder folder;
  folder.write("job.json", R"({"schema": "pipewright.job/1", "model": "deepseek-v3",
      "cluster": {"preset": "dgx-h100", "devices": 131072}, "global_batch": 32768,
      "strategy": {"mp_degree": 8, "pp_degree": 16, "ep_degree": 64, "sharding_stage": 1,
                   "micro_batch_size": 1, "schedule_mode": "1F1B"}})");
  result_of("tune job.json -o plan.json --no-synthesis", folder);
  const Json plan = Json::parse(read_text((folder.path() / "plan.json").string()));
  EXPECT_EQ(plan.at("mesh").at("shape"), Json({16, 1024, 8}));
  const Json simulated = result_of("simulate plan.json", folder);
  EXPECT_EQ(simulated.at("makespan_ns"), plan.at("predicted").at("step_ns"));
  ASSERT_EQ(simulated.at("ranks").size(), 16U);
  for (const Json& rank : simulated.at("ranks")) EXPECT_EQ(rank.at("devices"), 8192);
  EXPECT_EQ(result_of("check plan.json", folder).at("verdict"), "ok");
}

TEST(Expand, OneReplicaThatStandsForAllBecomesAllOfThem) {
  const Folder folder;
  const std::string job = PIPEWRIGHT_SOURCE_DIR "/examples/gpt3-175b-64.json";
  result_of("tune " + job + " -o plan.json --no-synthesis", folder);
  const Json ranks = result_of("simulate plan.json", folder);
  const Json devices = result_of("simulate plan.json --expand", folder);
  EXPECT_EQ(devices.at("devices").size(), 64U);
  EXPECT_EQ(devices.at("makespan_ns"), ranks.at("makespan_ns"));
  EXPECT_EQ(result_of("check plan.json --expand", folder).at("verdict"), "ok");
}

TEST(Expand, AHangIsOneOfEveryDevice) {
  const Folder folder;
  folder.write("order.csv",
               "# parts 0F: a ALL_REDUCE(tp:x)\n# mesh tp=2\n"
               "0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1SEND_B0\n");
  const Json rank = result_of("check order.csv --fragment --preset torch", folder, 1);
  const Json devices = result_of("check order.csv --fragment --preset torch --expand", folder, 1);
  EXPECT_EQ(devices.at("verdict"), rank.at("verdict"));
  EXPECT_EQ(devices.at("stuck").size(), 2 * rank.at("stuck").size());
}

TEST(Expand, WhereEachRankIsADeviceNothingChanges) {
  const Folder folder;
  const std::string plan = "simulate " PIPEWRIGHT_SOURCE_DIR "/examples/plan.json";
  EXPECT_EQ(result_of(plan + " --expand", folder), result_of(plan, folder));
}

}  // namespace cli_expand_test
}  // namespace pipewright::test
