// What `check` says besides the verdict: the matrix of policies, the credit, the notes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/command_runner.hpp"

namespace pipewright::test {
namespace cli_check_test {

using nlohmann::json;
using testing::HasSubstr;

constexpr const char* kPaddle = "check -s paddle-vpp --jobs fused -p 4 -m 8 -v 2 --matrix ";

TEST(CheckMatrix, HasAVerdictForEachPolicyInJson) {
  const Folder folder;
  const json result =
      json::parse(pipewright(std::string(kPaddle) + "--json --message-bytes 1KiB", folder).out);
  EXPECT_EQ(result.at("matrix").size(), 71U);
  int ok = 0, deadlock = 0;
  for (const json& each : result.at("matrix")) {
    ok += each.at("verdict") == "ok";
    deadlock += each.at("verdict") == "deadlock";
    if (each.at("preset") == "paddle-vpp") {
      EXPECT_EQ(each.at("send_f"), "eager:1");
      EXPECT_EQ(each.at("send_b"), "rendezvous");
      EXPECT_EQ(each.at("verdict"), "deadlock");
    }
  }
  EXPECT_EQ(ok + deadlock, 71);
  EXPECT_GT(ok, 0);
  EXPECT_GT(deadlock, 0);
  EXPECT_EQ(result.at("least_credit"), json::parse(R"({"messages": 1, "bytes": 1024})"));
}

TEST(CheckMatrix, IsATableThatFitsATerminal) {
  const Folder folder;
  const auto result = pipewright(kPaddle, folder);
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.out, HasSubstr("stream   edge    ok    ok    ok     ok    ok    ok"));
  EXPECT_THAT(result.out, HasSubstr("passes from 1 message on (for bytes give --message-bytes)"));
  EXPECT_THAT(result.out, HasSubstr("mpi-eager counts bytes"));
  for (std::size_t begin = 0; begin < result.out.size();) {
    const std::size_t end = result.out.find('\n', begin);
    EXPECT_LE(end - begin, 80U) << result.out.substr(begin, end - begin);
    begin = end + 1;
  }
}

TEST(CheckMatrix, IsEmptyForAnOrderThatIsNotWhole) {
  const Folder folder;
  folder.write("a.csv", "0F0\n1F0,1B0\n");
  const auto result = pipewright("check a.csv --matrix --json", folder);
  EXPECT_EQ(result.status, 1);
  const json fields = json::parse(result.out);
  EXPECT_EQ(fields.at("verdict"), "invalid");
  EXPECT_TRUE(fields.at("matrix").empty());
  EXPECT_TRUE(fields.at("least_credit").at("messages").is_null());
}

TEST(CheckMatrix, TheSizeOfAMessageDecidesWhetherASendIsEager) {
  const Folder folder;
  folder.write("ring.csv", "0SEND_F1,0RECV_B0\n1SEND_B0,1RECV_F1\n");
  const std::string words = "check ring.csv --fragment --preset mpi-eager --message-bytes ";
  EXPECT_EQ(pipewright(words + "4095", folder).status, 0);
  EXPECT_EQ(pipewright(words + "4096", folder).status, 1);
  EXPECT_EQ(pipewright(words + "0", folder).status, 2);
}

TEST(CheckNotes, SaysThatMicroBatchesAreFewerThanRanks) {
  const Folder folder;
  const json few = json::parse(pipewright("check -s 1f1b -p 4 -m 2 --json", folder).out);
  EXPECT_EQ(few.at("verdict"), "ok");
  ASSERT_EQ(few.at("notes").size(), 1U);
  EXPECT_THAT(few.at("notes")[0].get<std::string>(), HasSubstr("2 micro-batches on 4 ranks"));
  EXPECT_THAT(pipewright("check -s 1f1b -p 4 -m 2", folder).out,
              HasSubstr("note: 2 micro-batches"));
  const json enough = json::parse(pipewright("check -s 1f1b -p 4 -m 4 --json", folder).out);
  EXPECT_TRUE(enough.at("notes").empty());
}

TEST(OrderFiles, JsonIsReadWhereACsvIs) {
  const Folder folder;
  const std::string sizes = "schedules export zbv -p 2 -m 4 ";
  ASSERT_EQ(pipewright(sizes + "--format json -o order.json", folder).status, 0);
  ASSERT_EQ(pipewright(sizes + "-o order.csv", folder).status, 0);
  for (const std::string command : {"simulate", "check"}) {
    const auto from_json = pipewright(command + " order.json --json", folder);
    EXPECT_EQ(from_json.status, 0) << from_json.err;
    EXPECT_EQ(from_json.out, pipewright(command + " order.csv --json", folder).out);
  }
  EXPECT_EQ(pipewright("analyze order.json", folder).status, 0);
  EXPECT_EQ(pipewright("run order.json --device paced --cost F=10us,B=20us", folder).status, 0);
  EXPECT_THAT(pipewright("check order.json", folder).out,
              HasSubstr("order.json: p=2 m=4 stages=4"));
}

TEST(OrderFiles, AWrongOneIsRefusedAtItsPlace) {
  const Folder folder;
  folder.write("o.json", R"({"schema": "pipewright.order/1", "ranks": [["0F0", "0X0"]]})");
  const auto result = pipewright("check o.json", folder);
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("/ranks/0/1"));
  folder.write("p.json", R"({"schema": "pipewright.order/1", "rank": [["0F0"]]})");
  EXPECT_THAT(pipewright("check p.json", folder).err, HasSubstr("ranks"));
}

}  // namespace cli_check_test
}  // namespace pipewright::test
