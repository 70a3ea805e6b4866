// pipewright collectives: prices, the fit and its errors, the cluster file that it writes; and what
// a plan on such a cluster takes.
#include <gtest/gtest.h>

#include "core/base/json.hpp"
#include "tests/support/command_runner.hpp"

namespace pipewright::test {
namespace cli_collectives_test {

const std::string kRows = PIPEWRIGHT_SOURCE_DIR "/examples/nccl-all-reduce-a100.json";

Json result_of(const std::string& words, const Folder& folder) {
  const auto result = pipewright(words + " --json", folder);
  EXPECT_EQ(result.status, 0) << words << "\n" << result.err;
  return result.status == 0 ? Json::parse(result.out) : Json();
}

TEST(Collectives, EachSizeOfGroupsIsPredictedFromTheOthers) {
  const Folder folder;
  const Json fit = result_of("collectives dgx-a100 --fit " + kRows, folder).at("measured");
  ASSERT_EQ(fit.at("groups").size(), 3U);
  for (const Json& group : fit.at("groups")) {
    EXPECT_EQ(group.at("fitted").at("rows"), 28);
    EXPECT_LE(group.at("left_out").at("mean_error").get<double>(), 0.10) << group;
    EXPECT_LE(group.at("fitted").at("mean_error"), group.at("left_out").at("mean_error"));
  }
  const auto text = pipewright("collectives dgx-a100 --devices 16 --fit " + kRows, folder);
  for (const char* said : {"left out, mean error", "measured kind", "unproven", "ring", "bulk"})
    EXPECT_NE(text.out.find(said), std::string::npos) << said << "\n" << text.out;
}

TEST(Collectives, TheWrittenClusterHasThePrices) {
  const Folder folder;
  const std::string prices =
      " --members 2,8 --bytes 8,1MiB,1GiB --collective ALL_REDUCE "
      "--collective BROADCAST";
  const Json fitted =
      result_of("collectives dgx-a100 --fit " + kRows + " --out fitted.json" + prices, folder);
  const Json again = result_of("collectives fitted.json" + prices, folder);
  ASSERT_EQ(fitted.at("prices").size(), 12U);
  EXPECT_EQ(again.at("prices"), fitted.at("prices"));
  EXPECT_EQ(fitted.at("prices")[0].at("proven"), true);
  EXPECT_EQ(fitted.at("prices")[3].at("proven"), false) << "BROADCAST";
  const Json ring = result_of("collectives dgx-a100" + prices, folder);
  EXPECT_TRUE(ring.at("collectives").is_null());
  EXPECT_EQ(ring.at("prices")[0].at("proven"), false);
  // 2 x 5 us of latency, the launch left out; and a byte over the port.
  EXPECT_EQ(ring.at("prices")[0].at("time_ns"), 10'001);
}

TEST(Collectives, SimulateTakesThePricesOfAClusterForCalls) {
  const Folder folder;
  folder.write("calls.csv",
               "ALL_REDUCE(tp:a:1024x256:float32)\nALL_REDUCE(tp:a:1024x256:float32)\n");
  const Json fitted = result_of(
      "collectives dgx-a100 --fit " + kRows + " --out fitted.json --members 2 --bytes 1MiB",
      folder);
  const Json step = result_of("simulate calls.csv --collectives fitted.json", folder);
  EXPECT_EQ(step.at("makespan_ns"), fitted.at("prices")[0].at("time_ns"));
  EXPECT_EQ(result_of("simulate calls.csv", folder).at("makespan_ns"), 0);
  for (const char* refused : {"dgx-a100", "missing.json"}) {
    const auto result =
        pipewright(std::string("simulate calls.csv --collectives ") + refused, folder);
    EXPECT_EQ(result.status, 2) << refused;
    EXPECT_NE(result.err.find(refused), std::string::npos) << result.err;
  }
}

TEST(Collectives, APlanOfSuchAClusterPricesItsReductions) {
  const Folder folder;
  const std::string examples = PIPEWRIGHT_SOURCE_DIR "/examples/";
  result_of("collectives " + examples + "cluster.json --fit " + kRows + " --out fitted.json",
            folder);
  Json job = Json::parse(R"({"schema": "pipewright.job/1", "model": "gpt-tiny",
    "global_batch": 16, "strategy": {"pp_degree": 2, "dp_degree": 2, "schedule_mode": "1f1b"}})");
  const auto tuned = [&](const std::string& cluster, const std::string& name) {
    job["cluster"] = Json::parse(read_text(cluster));
    folder.write("job-" + name, job.dump());
    const auto result = pipewright("tune job-" + name + " -o " + name, folder);
    EXPECT_EQ(result.status, 0) << result.err;
    return Json::parse(read_text(folder.path() / name));
  };
  const Json by_ring = tuned(examples + "cluster.json", "ring.json");
  const Json by_model = tuned(folder.path() / "fitted.json", "model.json");
  EXPECT_FALSE(by_ring.at("costs").contains("collectives"));
  EXPECT_EQ(by_model.at("costs").at("collectives"), "cluster");
  // What tune foretold is what simulate makes of the file.
  const Json simulated = result_of("simulate model.json", folder);
  EXPECT_EQ(simulated.at("makespan_ns"), by_model.at("predicted").at("step_ns"));
  EXPECT_NE(by_model.at("predicted").at("step_ns"), by_ring.at("predicted").at("step_ns"));
}

TEST(Collectives, Refusals) {
  const Folder folder;
  folder.write("one.json", R"({"by_gpus": {"2": [[8, 8.6], [1048576, 60]]}})");
  const auto says = [&](const std::string& words, const char* why) {
    const auto result = pipewright("collectives " + words, folder);
    EXPECT_EQ(result.status, 2) << words;
    EXPECT_NE(result.err.find(why), std::string::npos) << result.err;
  };
  says("dgx-a100 --fit one.json", "at least two sizes of groups");
  says("dgx-a100 --members 9", "--members");
  says("dgx-a100 --bytes -1", "--bytes");
  says("dgx-a100 --fit absent.json", "absent.json");
  says("dgx-a1000", "did you mean");
}

}  // namespace cli_collectives_test
}  // namespace pipewright::test
