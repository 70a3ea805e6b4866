// `check --fix`: what it prints, what it writes, and that what it wrote ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "core/plan/plan.hpp"
#include "core/program/lower.hpp"
#include "planner/plans/program_of_plan.hpp"
#include "tests/support/command_runner.hpp"
#include "tests/support/sample_documents.hpp"

namespace pipewright::test {
namespace cli_fix_test {

using nlohmann::json;

const char* const kPaddlesHang = "check -s paddle-vpp --jobs fused -p 4 -m 8 -v 2";

TEST(CheckFix, PrintsTheFixAsJsonAndAnswersYes) {
  const Folder folder;
  const std::string hang(kPaddlesHang);
  EXPECT_EQ(pipewright(hang + " --json", folder).status, 1);  // without --fix the answer stays no
  const auto result = pipewright(hang + " --fix --json", folder);
  ASSERT_EQ(result.status, 0) << result.err;
  const json document = json::parse(result.out);
  EXPECT_EQ(document.at("verdict"), "deadlock");
  const json& fix = document.at("fix");
  EXPECT_EQ(fix.at("name"), "hoist");
  EXPECT_EQ(fix.at("changes"), "transfers");
  EXPECT_EQ(fix.at("policy").at("channel"), "pair");
  EXPECT_EQ(fix.at("policy").at("send_f"), "eager:1");
  EXPECT_FALSE(fix.at("sentence").get<std::string>().empty());
  EXPECT_EQ(fix.at("difference").size(), 4U);  // a line for each rank
  EXPECT_EQ(fix.at("order").size(), 4U);
  EXPECT_GT(fix.at("step_ns_before").get<std::int64_t>(), 0);
  // The order it prints ends under the policy it prints, in the step it prints.
  std::string csv;
  for (const json& row : fix.at("order")) {
    for (const json& cell : row) csv += cell.get<std::string>() + ",";
    csv += "\n";
  }
  folder.write("printed.csv", csv);
  const auto again = pipewright("simulate printed.csv --preset paddle-vpp --json", folder);
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(json::parse(again.out).at("makespan_ns"), fix.at("step_ns_after"));
}

TEST(CheckFix, WritesAnOrderThatEnds) {
  const Folder folder;
  const auto result = pipewright(std::string(kPaddlesHang) + " --fix --out fixed.csv", folder);
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.out.find("fix: hoist"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("proved: it ends under paddle-vpp"), std::string::npos);
  EXPECT_NE(result.err.find("it ends under --preset paddle-vpp"), std::string::npos) << result.err;
  EXPECT_EQ(pipewright("check fixed.csv --preset paddle-vpp", folder).status, 0);
}

TEST(CheckFix, NamesTheFlagsUnderWhichTheFileEnds) {
  const Folder folder;
  const std::string hang = "check -s zbv -p 4 -m 8 --channel pair --post deferred";
  ASSERT_EQ(pipewright(hang, folder).status, 1);
  const auto result = pipewright(hang + " --fix -o fixed.csv", folder);
  ASSERT_EQ(result.status, 0) << result.err;
  const auto begin = result.err.find("ends under ") + 11;
  const std::string flags = result.err.substr(begin, result.err.find('\n', begin) - begin);
  EXPECT_EQ(pipewright("check fixed.csv " + flags, folder).status, 0) << flags;
}

TEST(CheckFix, NothingToFixAndNothingThatHelps) {
  const Folder folder;
  const auto ends = pipewright("check -s 1f1b -p 2 -m 2 --fix --out none.csv --json", folder);
  EXPECT_EQ(ends.status, 0);
  EXPECT_TRUE(json::parse(ends.out).at("fix").is_null());
  // Stage 1 wants its gradient before stage 2, on the same rank, makes it.
  folder.write("cycle.csv", "0F0,0B0\n1F0,2F0,1B0,2B0\n");
  const auto hopeless = pipewright("check cycle.csv --fix --out none.csv", folder);
  EXPECT_EQ(hopeless.status, 1);
  EXPECT_NE(hopeless.out.find("no fix"), std::string::npos) << hopeless.out;
  const auto as_json = pipewright("check cycle.csv --fix --json", folder);
  EXPECT_TRUE(json::parse(as_json.out).at("fix").is_null());
  EXPECT_EQ(folder.names(), std::vector<std::string>{"cycle.csv"});
}

TEST(CheckFix, APlanKeepsItsScheduleWhereThePolicyIsEnough) {
  const Folder folder;
  Plan plan = sample_plan();
  plan.schedule.order.reset();
  plan.schedule.parameters.clear();
  plan.policy = {.issue = Issue::Inline, .post = Post::Deferred};
  save_plan(plan, folder.path() / "plan.json");
  ASSERT_EQ(pipewright("check plan.json", folder).status, 1);
  const auto result = pipewright("check plan.json --fix -o fixed.json", folder);
  ASSERT_EQ(result.status, 0) << result.out << result.err;
  const Plan fixed = load_plan(folder.path() / "fixed.json");
  EXPECT_EQ(fixed.policy.issue, Issue::Grouped);
  EXPECT_EQ(fixed.schedule.name, plan.schedule.name);
  EXPECT_EQ(pipewright("check fixed.json", folder).status, 0);
  // The prediction is that of the fixed plan.
  const auto simulated = pipewright("simulate fixed.json --json", folder);
  EXPECT_EQ(json::parse(simulated.out).at("makespan_ns"), fixed.predicted.step.value);
}

TEST(CheckFix, APlanWhoseTransfersMoveBecomesCustom) {
  const Folder folder;
  Plan plan = sample_plan();
  Order order = with_transfers(planner::order_of_plan(plan));
  auto& row = order.ranks[1];  // the first two receives of rank 1 change places: a mismatch
  const auto receives = [](const Cell& cell) { return is_recv(cell.action.kind); };
  const auto first = std::find_if(row.begin(), row.end(), receives);
  const auto second = std::find_if(first + 1, row.end(), receives);
  std::swap(*first, *second);
  plan.schedule.order = order;
  save_plan(plan, folder.path() / "plan.json");
  ASSERT_EQ(pipewright("check plan.json", folder).status, 1);
  const auto result = pipewright("check plan.json --fix -o fixed.json", folder);
  ASSERT_EQ(result.status, 0) << result.out << result.err;
  const Plan fixed = load_plan(folder.path() / "fixed.json");
  EXPECT_EQ(fixed.schedule.name, "custom");
  ASSERT_TRUE(fixed.schedule.order);
  EXPECT_TRUE(fixed.schedule.order->has_transfers());
  EXPECT_EQ(pipewright("check fixed.json", folder).status, 0);
}

TEST(CheckFix, TextIsNoWiderThanEightyColumnsInAPipe) {
  const Folder folder;
  const auto result = pipewright(std::string(kPaddlesHang) + " --fix", folder);
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
}

}  // namespace cli_fix_test
}  // namespace pipewright::test
