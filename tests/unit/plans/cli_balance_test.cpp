// pipewright balance: what it writes is what simulate then takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/command_runner.hpp"
#include "tests/support/json_schema.hpp"

namespace pipewright::test {
namespace cli_balance_test {

using ::testing::HasSubstr;

const std::string kPasses = std::string(PIPEWRIGHT_SOURCE_DIR) + "/examples/passes.csv";
const std::string kStep = " -s 1f1b -p 2 -m 4 --dp 2 --json --costs ";

Json printed(const std::string& words, const Folder& folder) {
  const auto result = pipewright(words, folder);
  EXPECT_EQ(result.status, 0) << result.err;
  const Json document = Json::parse(result.out);
  const SchemaSet schemas(std::string(PIPEWRIGHT_SOURCE_DIR) + "/docs/schemas");
  for (const std::string& problem : schemas.problems("result", document)) ADD_FAILURE() << problem;
  return document;
}

TEST(BalanceCommand, WritesWhatSimulateTakes) {
  const Folder folder;
  const Json before = printed("simulate" + kStep + kPasses, folder);
  const Json balance =
      printed("balance" + kStep + kPasses + " --costs-out dealt.csv", folder).at("balance");
  const Json after = printed("simulate" + kStep + "dealt.csv", folder);
  EXPECT_EQ(balance.at("before_ns"), before.at("makespan_ns"));
  EXPECT_EQ(balance.at("after_ns"), after.at("makespan_ns"));
  EXPECT_LT(balance.at("after_ns").get<double>(), 0.7 * balance.at("before_ns").get<double>());
  EXPECT_TRUE(balance.at("slow_ranks").empty());
}

TEST(BalanceCommand, OrdersThePlansOwnMicroBatchesAndKeepsUpdates) {
  const Folder folder;
  folder.write("costs.csv",
               "replica,rank,action,ns\n0,0,0F0,90000000\n0,1,1B3,70000000\n"
               "0,1,OPT,4000000\n");
  const std::string plan = std::string(PIPEWRIGHT_SOURCE_DIR) + "/examples/plan.json";
  const auto result =
      pipewright("balance " + plan + " --costs costs.csv -o dealing.csv --costs-out - ", folder);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("0,1,OPT,4000000\n"));
  EXPECT_THAT(result.err, HasSubstr("dealt out"));
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"costs.csv", "dealing.csv"}));
}

TEST(BalanceCommand, SaysWhatItNeeds) {
  const Folder folder;
  const auto alike = pipewright("balance -s 1f1b -p 2 -m 4", folder);
  EXPECT_EQ(alike.status, 2);
  EXPECT_THAT(alike.err, HasSubstr("--costs FILE"));
  folder.write("order.csv", "0F0,0RECV_B0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n");
  folder.write("costs.csv", "replica,rank,action,ns\n0,0,0F0,9\n");
  const auto stuck =
      pipewright("balance order.csv --costs costs.csv --preset nccl-one-stream", folder);
  EXPECT_EQ(stuck.status, 1) << stuck.err;
  EXPECT_THAT(stuck.out, HasSubstr("DEADLOCK"));
}

}  // namespace cli_balance_test
}  // namespace pipewright::test
