// --rank-cost and --rank-mem: a rank's work, cut into the stages of whatever is read, and the
// schedule auto, which then chooses how many stages a rank has.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/command_runner.hpp"

namespace pipewright::test {
namespace cli_rank_costs_test {

using nlohmann::json;

json result_of(const std::string& words, const Folder& folder = Folder()) {
  const auto result = pipewright(words + " --json", folder);
  EXPECT_LE(result.status, 1) << words << "\n" << result.err;
  const json document = json::parse(result.out, nullptr, false);
  EXPECT_FALSE(document.is_discarded()) << words << "\n" << result.out << result.err;
  return document;
}

const std::string kSizes = " -p 8 -m 16 ";
const std::string kTimes =
    "F=20ms:25ms:22ms:30ms:21ms:24ms:26ms:28ms,B=40ms:50ms:44ms:60ms:42ms:48ms:52ms:56ms";

/// The best row of `compare all` that auto must not lose to: synchronous, one copy of the weights
/// (the limits here leave weights out).
std::int64_t best_named(const std::string& costs) {
  std::int64_t best = 0;
  const json compared = result_of("compare all" + kSizes + costs);
  for (const json& row : compared.at("schedules")) {
    if (row.at("schedule") == "auto" || row.at("verdict") != "ok" || row.at("over_memory") ||
        row.at("weight_copies") > 1)
      continue;
    const std::int64_t step = row.at("makespan_ns");
    if (best == 0 || step < best) best = step;
  }
  return best;
}

TEST(RankCosts, AutoTriesSeveralStagesARankAndLosesToNoNamedSchedule) {
  for (const char* limit : {"36GiB", "28GiB"}) {
    const std::string memory = "F=4GiB,limit=" + std::string(limit);
    const std::int64_t named = best_named("--cost " + kTimes + " --mem " + memory);
    ASSERT_GT(named, 0);
    for (const std::string& costs : {" --cost " + kTimes + " --mem " + memory,
                                     " --rank-cost " + kTimes + " --rank-mem " + memory}) {
      const json found = result_of("simulate -s auto" + kSizes + costs);
      EXPECT_LE(found.at("makespan_ns"), named) << limit;
      EXPECT_EQ(found.at("makespan_ns"), found.at("synthesis").at("value_ns"));
      const json tuned = result_of("tune --synthesise" + kSizes + costs);
      EXPECT_LE(tuned.at("value_ns"), named) << limit;
    }
  }
}

TEST(RankCosts, AProofSaysOfWhichOrders) {
  const std::string command = "simulate -s auto -p 2 -m 3 --prove";
  const json stages = result_of(command + " --cost F=10,I=10,W=10").at("synthesis");
  EXPECT_EQ(stages.at("scope").at("text"), "one stage a rank, loop placement");
  EXPECT_EQ(stages.at("scope").at("most_stages_a_rank"), 1);
  EXPECT_EQ(stages.at("value_ns"), 100);
  const json ranks = result_of(command + " --rank-cost F=840us,I=840us,W=840us").at("synthesis");
  EXPECT_EQ(ranks.at("scope").at("text"), "all loops, V's and waves with up to 8 stages a rank");
  EXPECT_LT(ranks.at("value_ns"), 8'400'000);
  // Ten ns in three pieces are none of a third each.
  const json small = result_of(command + " --rank-cost F=10,I=10,W=10").at("synthesis");
  EXPECT_EQ(small.at("scope").at("text"),
            "all loops, V's and waves with up to 8 stages a rank, stages of whole ns and bytes, "
            "rounded up");
  const json fixed = result_of(command + " --rank-cost F=10,I=10,W=10 --vpp 2").at("synthesis");
  EXPECT_EQ(fixed.at("scope").at("text"), "2 stages a rank, loop placement");
  const json shape = result_of(command + " --rank-cost F=10,I=10,W=10 --placement v");
  EXPECT_EQ(shape.at("synthesis").at("scope").at("text"), "2 stages a rank, V placement");
  EXPECT_EQ(shape.at("makespan_ns"), 95);  // rank 1 waits for half a forward
  const Folder folder;
  const auto text = pipewright(command + " --cost F=10,I=10,W=10 --color never", folder);
  EXPECT_NE(text.out.find("one stage a rank, loop placement: no order takes less"),
            std::string::npos)
      << text.out;
}

TEST(RankCosts, AreCutAlikeInEveryCommand) {
  const Folder folder;
  const std::string costs = " --rank-cost F=6us:9us:6us:8us,B=14us --rank-mem F=6,limit=24 ";
  const json row = result_of("compare zbv -p 4 -m 8" + costs, folder).at("schedules").at(0);
  const json simulated = result_of("simulate -s zbv -p 4 -m 8" + costs, folder);
  EXPECT_EQ(simulated.at("makespan_ns"), row.at("makespan_ns"));
  EXPECT_EQ(simulated.at("ranks"), row.at("ranks"));
  ASSERT_EQ(pipewright("schedules export zbv -p 4 -m 8 -o zbv.csv" + costs, folder).status, 0);
  EXPECT_EQ(result_of("simulate zbv.csv" + costs, folder).at("makespan_ns"), row.at("makespan_ns"));
  // 8 activations of half of 6 bytes.
  EXPECT_EQ(pipewright("check zbv.csv --preset ideal --rank-mem F=6,limit=24", folder).status, 0);
  EXPECT_EQ(pipewright("check zbv.csv --preset ideal --rank-mem F=6,limit=23", folder).status, 1);
  EXPECT_EQ(pipewright("run zbv.csv" + costs, folder).status, 0);
  EXPECT_EQ(pipewright("schedules show zbv -p 4 -m 8" + costs, folder).status, 0);
}

TEST(RankCosts, AnOrderThatTuneWritesTakesWhatItSaid) {
  const Folder folder;
  const std::string costs = " --rank-cost F=10us:12us:10us:14us,B=24us --rank-mem F=8,limit=24 ";
  const auto made = pipewright("tune --synthesise -p 4 -m 6 --json -o order.csv" + costs, folder);
  ASSERT_EQ(made.status, 0) << made.err;
  const json seen = result_of("simulate order.csv" + costs, folder);
  EXPECT_EQ(seen.at("makespan_ns"), json::parse(made.out).at("value_ns"));
  EXPECT_NE(made.err.find("--rank-cost F=10us:12us:10us:14us,B=24us"), std::string::npos)
      << made.err;
}

TEST(RankCosts, TwoNamesForOneThingAreRefused) {
  const Folder folder;
  for (const std::string words : {"simulate -s 1f1b -p 2 -m 2 --cost F=1 --rank-cost F=1",
                                  "compare 1f1b -p 2 -m 2 --mem F=1 --rank-mem F=1"}) {
    const auto refused = pipewright(words, folder);
    EXPECT_EQ(refused.status, 2) << words;
    EXPECT_NE(refused.err.find("say the same"), std::string::npos) << refused.err;
  }
  const auto refused = pipewright("simulate -s zbv -p 2 -m 2 --rank-cost F=1:2:3", folder);
  EXPECT_NE(refused.err.find("one for each of the 2 ranks, found 3"), std::string::npos)
      << refused.err;
}

TEST(RankCosts, CompareSaysWhoseCostsItsFlagsAre) {
  const Folder folder;
  const auto by_alias = pipewright("compare 1f1b zbv -p 2 -m 4 --cost F=4,B=8", folder);
  const std::string first = by_alias.out.substr(0, by_alias.out.find("\npolicy"));
  EXPECT_NE(first.find("--rank-cost"), std::string::npos) << first;
  EXPECT_EQ(result_of("compare zbv -p 2 -m 4 --cost F=4,B=8"),
            result_of("compare zbv -p 2 -m 4 --rank-cost F=4,B=8"));
  const json update = result_of("compare 1f1b -p 2 -m 4 --rank-cost F=4,B=8,OPT=100");
  EXPECT_EQ(update.at("schedules").at(0).at("makespan_ns"), 5 * 12 + 100);
}

}  // namespace cli_rank_costs_test
}  // namespace pipewright::test
