// Every policy at once against one policy at a time, and the least credit against orders for which
// it is known.
#include "sim/policy_matrix.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "planner/schedules/registry.hpp"
#include "sim/engine.hpp"

namespace pipewright::sim {
namespace policy_matrix_test {

CostTable sizes(int stages, std::int64_t bytes) {
  CostTable costs = CostTable::uniform(stages, {});
  costs.activation_bytes.assign(static_cast<std::size_t>(stages) - 1, Bytes(bytes));
  costs.gradient_bytes = costs.activation_bytes;
  return costs;
}

TEST(PolicyMatrix, HoldsEveryPresetAndEveryCombinationOnce) {
  const Order order = planner::make_order("1f1b", {2, 4, 1, {}});
  const auto matrix = policy_matrix(order, {}, sizes(2, 1));
  // Stream: 5 channels, 3 posts, 3 protocols; inline and grouped: 2 posts, 3 protocols.
  EXPECT_EQ(matrix.size(), comm_policy_presets().size() + 5 * 3 * 3 + 2 * (2 * 3));
  for (std::size_t i = 0; i < matrix.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      EXPECT_FALSE(matrix[i].preset == matrix[j].preset && matrix[i].policy == matrix[j].policy)
          << i << " " << j;
    }
  }
}

TEST(PolicyMatrix, SaysWhatCheckSaysOfEachPolicyAlone) {
  struct Case {
    const char* schedule;
    int ranks, micro_batches, chunks;
  };
  for (const Case& c : {Case{"1f1b", 4, 8, 1}, Case{"paddle-vpp", 4, 8, 2}, Case{"zbv", 4, 8, 2},
                        Case{"dualpipev", 4, 10, 2}}) {
    const Order order = planner::make_order(c.schedule, {c.ranks, c.micro_batches, c.chunks, {}});
    const CostTable costs = sizes(order.stages(), 5000);
    int mixed = 0;
    for (const PolicyVerdict& each : policy_matrix(order, {}, costs)) {
      EXPECT_EQ(each.verdict, check(lower(order, each.policy), costs).verdict)
          << c.schedule << " " << each.preset << " " << to_string(each.policy.issue);
      mixed += each.verdict == Verdict::Ok ? 0 : 1;
    }
    EXPECT_GT(mixed, 0) << c.schedule;
  }
}

TEST(PolicyMatrix, TellsADeadlockFromAMismatch) {
  // Both stages of rank 1 receive from rank 0; the order takes them the other way round.
  const Order order = read_order_csv("0SEND_F0,0SEND_F1\n1RECV_F1,1RECV_F0\n", "swapped");
  const LowerOptions fragment{.fragment = true, .optimizer = false};
  for (const PolicyVerdict& each : policy_matrix(order, fragment, sizes(2, 1))) {
    const CommPolicy& policy = each.policy;
    const bool tag = policy.issue == Issue::Stream && policy.channel == Channel::Tag;
    EXPECT_EQ(each.verdict, tag ? Verdict::Ok : Verdict::Mismatch) << to_string(policy.issue);
  }
}

/// Rank 0 sends `messages` activations to rank 1 and then the gradient that rank 1 waits for first,
/// round by rank 2: on one lane it ends with a credit of `messages` and with no less.
Order needs_credit_of(int messages) {
  std::string first, second = "1RECV_B0";
  for (int m = 0; m < messages; ++m) {
    first += "0SEND_F" + std::to_string(m) + ",";
    second += ",1RECV_F" + std::to_string(m);
  }
  return read_order_csv(first + "3SEND_B0\n" + second + "\n2RECV_B0,2SEND_B0\n", "credit");
}

TEST(LeastCredit, IsTheNumberOfMessagesThatMustLeaveFirst) {
  for (const int messages : {1, 2, 3, 7, 64}) {
    const Program program = lower(needs_credit_of(messages), {.issue = Issue::Inline},
                                  {.fragment = true, .optimizer = false});
    const LeastCredit least = least_credit(program, sizes(4, 1000));
    EXPECT_EQ(least.messages, messages);
    EXPECT_EQ(least.bytes, messages * std::int64_t{1000});
  }
}

TEST(LeastCredit, NeedsSizesForBytes) {
  const Program program =
      lower(needs_credit_of(2), {.issue = Issue::Inline}, {.fragment = true, .optimizer = false});
  const LeastCredit least = least_credit(program, CostTable::uniform(4, {}));
  EXPECT_EQ(least.messages, 2);
  EXPECT_FALSE(least.sizes_known);
  EXPECT_EQ(least.bytes, std::nullopt);
}

TEST(LeastCredit, IsNoneWhereARendezvousDoesAndNothingWhereOrdersAreSwapped) {
  const Program good = lower(planner::make_order("1f1b", {4, 8, 1, {}}), {});
  EXPECT_EQ(least_credit(good, sizes(4, 8)).messages, 0);
  EXPECT_EQ(least_credit(good, sizes(4, 8)).bytes, 0);
  const Order order = read_order_csv("0SEND_F0,0SEND_F1\n1RECV_F1,1RECV_F0\n", "swapped");
  const Program swapped = lower(order, {}, {.fragment = true, .optimizer = false});
  EXPECT_EQ(least_credit(swapped, sizes(2, 8)).messages, std::nullopt);
  EXPECT_EQ(least_credit(swapped, sizes(2, 8)).bytes, std::nullopt);
}

TEST(LeastCredit, IsTheThresholdOfEverySchedule) {
  int thresholds = 0;
  for (const char* name :
       {"1f1b", "interleaved", "zb-h1", "hanayo", "chimera", "grouped-interleaved"}) {
    const auto& schedule = planner::find_schedule(name);
    const Order order = planner::make_order(name, {4, 8, schedule.default_chunks, {}});
    const CostTable costs = sizes(order.stages(), 100);
    Program program = lower(order, {.issue = Issue::Inline, .post = Post::Deferred});
    const LeastCredit least = least_credit(program, costs);
    if (!least.messages) continue;  // receives swapped by deferring them
    for (const bool bytes : {false, true}) {
      const std::int64_t credit = bytes ? *least.bytes : *least.messages;
      const auto ends = [&](std::int64_t amount) {
        const auto kind = bytes ? Protocol::Kind::EagerBytes : Protocol::Kind::EagerMessages;
        program.policy.send_f = program.policy.send_b = {kind, amount};
        return simulate(program, costs).finished;
      };
      EXPECT_TRUE(ends(std::max<std::int64_t>(credit, 1))) << name;
      if (credit > 1) {
        EXPECT_FALSE(ends(credit - 1)) << name;
        ++thresholds;
      }
    }
  }
  EXPECT_GE(thresholds, 3);
}

}  // namespace policy_matrix_test
}  // namespace pipewright::sim
