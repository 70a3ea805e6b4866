#include "planner/fix/call_order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/program/lower.hpp"
#include "planner/fix/fix.hpp"
#include "sim/engine.hpp"

namespace pipewright::planner {
namespace call_order_test {

CommPolicy one_queue() {
  CommPolicy policy;
  policy.device_queues = 1;
  return policy;
}

Order order_of(const std::string& text) { return read_order_csv(text, "calls.csv"); }

FixReport fixes_of(const Order& order) {
  return find_fixes(order, one_queue(), CostTable::uniform(order.stages(), {}));
}

TEST(CallOrder, IsThatOfTheFirstRankWhichHasTheCalls) {
  const Order order = order_of(
      "ALL_REDUCE(a:0),HOST_SYNC,ALL_REDUCE(b:0)\n"
      "ALL_REDUCE(c:0),ALL_REDUCE(b:0)@2,ALL_REDUCE(a:0)\n"
      "ALL_REDUCE(c:0)\n");
  const FixReport report = fixes_of(order);
  EXPECT_EQ(report.verdict, Verdict::Deadlock);
  ASSERT_EQ(report.fixes.size(), 1U);
  EXPECT_EQ(report.fixes[0].name, "one-call-order");
  EXPECT_EQ(write_order_csv(report.fixes[0].order),
            "ALL_REDUCE(a:0),HOST_SYNC,ALL_REDUCE(b:0)\n"
            "ALL_REDUCE(a:0),ALL_REDUCE(b:0)@2,ALL_REDUCE(c:0)\n"
            "ALL_REDUCE(c:0)\n");
}

TEST(CallOrder, IsNoHelpWhereABatchWaitsForAllItsPeers) {
  CommPolicy policy = one_queue();
  policy.channel = Channel::Rank;
  policy.batches = Batches::Joined;
  policy.connect = Connect::FirstUse;
  const FixReport report = find_fixes(order_of("(SEND(>1:a);SEND(>2:s))BATCH_P2P\n"
                                               "RECV(<0:a),SEND(>2:b)\n"
                                               "(RECV(<0:s);RECV(<1:b))BATCH_P2P\n"),
                                      policy, CostTable::uniform(1, {}));
  ASSERT_EQ(report.fixes.size(), 2U);
  EXPECT_EQ(report.fixes[0].name, "batches-apart");
  EXPECT_EQ(report.fixes[1].name, "warm-up-exchange");
  EXPECT_EQ(report.failed.at(0).name, "one-call-order");
}

TEST(CallOrder, IsRefusedWhereARankLacksACall) {
  const FixReport report = fixes_of(order_of("ALL_REDUCE(a:0),ALL_REDUCE(a:1)\nALL_REDUCE(a:0)\n"));
  EXPECT_TRUE(report.fixes.empty());
  EXPECT_NE(report.sentence.find("rank 1 lacks ALL_REDUCE(a:1)"), std::string::npos)
      << report.sentence;
}

/// Whatever order the ranks had them in, under any number of queues.
TEST(CallOrder, AlwaysEnds) {
  int hung = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    std::mt19937_64 engine(seed);
    const auto below = [&](int n) { return static_cast<int>(engine() % static_cast<unsigned>(n)); };
    const int ranks = 2 + below(5);
    std::vector<std::vector<std::string>> rows(static_cast<std::size_t>(ranks));
    for (int call = 2 + below(9); call > 0; --call) {
      const int members = 1 + below(ranks);
      // Groups of one name have the same ranks.
      const std::string name = "ALL_REDUCE(first_" + std::to_string(members) + "_" +
                               std::to_string(below(2)) + ":" + std::to_string(call) + ")";
      for (int rank = 0; rank < members; ++rank)
        rows[static_cast<std::size_t>(rank)].push_back(below(5) == 0 ? name + "@s" : name);
    }
    std::string text;
    for (auto& row : rows) {
      for (std::size_t i = row.size(); i > 1; --i)
        std::swap(row[i - 1], row[static_cast<std::size_t>(below(static_cast<int>(i)))]);
      text += "HOST_SYNC";
      for (const std::string& call : row) text += "," + call;
      text += "\n";
    }
    CommPolicy policy;
    policy.device_queues = below(4);
    const Order order = order_of(text);
    const CostTable costs = CostTable::uniform(order.stages(), {});
    const LowerOptions options{.fragment = true};  // groups of one rank
    hung += sim::check(lower(order, policy, options), costs).verdict != Verdict::Ok;
    const CallOrder found = calls_in_one_order(order);
    ASSERT_EQ(found.refusal, "") << text;
    EXPECT_EQ(sim::check(lower(found.order, policy, options), costs).verdict, Verdict::Ok) << text;
  }
  EXPECT_GT(hung, 100);
}

}  // namespace call_order_test
}  // namespace pipewright::planner
