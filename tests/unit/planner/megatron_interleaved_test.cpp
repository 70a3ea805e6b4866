// Megatron-LM's interleaved loop: its lists, what it does not run, and whether the lists end.
// tests/peers/megatron_interleaved.py compares the lists with Megatron core itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "core/order/forward_order.hpp"
#include "core/order/problems.hpp"
#include "core/program/lower.hpp"
#include "planner/export/megatron_interleaved.hpp"
#include "planner/export/stock_verdicts.hpp"
#include "planner/plans/data_parallel.hpp"
#include "planner/plans/program_of_plan.hpp"
#include "planner/schedules/chunk_turns.hpp"
#include "planner/schedules/registry.hpp"
#include "sim/engine.hpp"
#include "tests/support/exported_plan.hpp"

namespace pipewright::planner {
namespace megatron_interleaved_test {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

Order interleaved(int p, int v, int m, int group) {
  return make_order("interleaved", {p, m, v, {{"group", std::to_string(group)}}});
}

std::string list_of(int p, int v, int m, int group, MegatronExchange exchange) {
  return write_order_csv(megatron_interleaved_list(interleaved(p, v, m, group), exchange));
}

TEST(MegatronInterleaved, OneByOneAndInBatches) {
  // Worked out by hand from forward_backward_pipelining_with_interleaving().
  EXPECT_EQ(list_of(2, 2, 2, 2, MegatronExchange::Overlap),
            "0F0,0SEND_F0,HOST_SYNC,0F1,0SEND_F1,2RECV_F0,HOST_SYNC,2F0,2SEND_F0,2RECV_F1,"
            "HOST_SYNC,2F1,2SEND_F1,HOST_SYNC,2RECV_B0,HOST_SYNC,2B0,2SEND_B0,2RECV_B1,HOST_SYNC,"
            "2B1,2SEND_B1,0RECV_B0,HOST_SYNC,0B0,0RECV_B1,HOST_SYNC,0B1\n"
            "1RECV_F0,HOST_SYNC,1F0,1RECV_F1,1SEND_F0,HOST_SYNC,1F1,3RECV_F0,1SEND_F1,HOST_SYNC,"
            "3F0,3RECV_F1,3B0,3SEND_B0,3F1,3B1,1RECV_B0,3SEND_B1,3WAIT_SEND_B0,1B0,1RECV_B1,"
            "1SEND_B0,1WAIT_SEND_B0,1B1,1SEND_B1,1WAIT_SEND_B1,3WAIT_SEND_B1\n");
  EXPECT_EQ(list_of(2, 2, 2, 2, MegatronExchange::Batched),
            "0F0,0SEND_F0,HOST_SYNC,0F1,(2RECV_F0;0SEND_F1)BATCH_P2P,HOST_SYNC,2F0,"
            "(2RECV_F1;2SEND_F0)BATCH_P2P,HOST_SYNC,2F1,2SEND_F1,HOST_SYNC,2RECV_B0,HOST_SYNC,2B0,"
            "(2SEND_B0;2RECV_B1)BATCH_P2P,HOST_SYNC,2B1,(2SEND_B1;0RECV_B0)BATCH_P2P,HOST_SYNC,0B0,"
            "0RECV_B1,HOST_SYNC,0B1\n"
            "1RECV_F0,HOST_SYNC,1F0,(1RECV_F1;1SEND_F0)BATCH_P2P,HOST_SYNC,1F1,"
            "(3RECV_F0;1SEND_F1)BATCH_P2P,HOST_SYNC,3F0,3B0,(3SEND_B0;3RECV_F1)BATCH_P2P,HOST_SYNC,"
            "3F1,3B1,(3SEND_B1;1RECV_B0)BATCH_P2P,HOST_SYNC,1B0,(1SEND_B0;1RECV_B1)BATCH_P2P,"
            "HOST_SYNC,1B1,1SEND_B1,HOST_SYNC\n");
}

TEST(MegatronInterleaved, FlushesWithoutWaitingForWhatItSent) {
  const std::string list = list_of(2, 2, 2, 2, MegatronExchange::WarmupFlush);
  EXPECT_THAT(list, HasSubstr("0F0,0SEND_F0,0F1,0SEND_F1,2RECV_F0,0WAIT_SEND_F0,2F0"));
  EXPECT_THAT(list, HasSubstr("1RECV_F0,HOST_SYNC,1RECV_F1,1F0,1SEND_F0,3RECV_F0,1F1"));
}

/// Every size of up to six ranks, with every group that the loop takes.
template <class Visit>
void for_each_size(Visit visit) {
  for (int p = 2; p <= 6; ++p) {
    for (int v = 2; v <= 3; ++v) {
      for (int m = p; m <= 2 * p + 3; ++m) {
        for (int group = p; group <= m; ++group) {
          if (m % group == 0 || m % group >= p) visit(p, v, m, group);
        }
      }
    }
  }
}

Verdict verdict_of(const Order& list, CommPolicy policy, Connect connect) {
  policy.connect = connect;
  return sim::check(lower(list, policy), CostTable::uniform(list.stages(), {})).verdict;
}

/// What `check` says of the list over each of its communicators.
Verdict expected(int p, int v, int m, int group, MegatronExchange exchange, bool eager,
                 Connect connect) {
  // Both ranks hand over a gradient and an activation for the same other rank, each its gradient
  // first, and each takes its activation first: where rank 0 has a forward beside a backward.
  if (exchange == MegatronExchange::Batched && p == 2) {
    const std::int64_t forwards = std::int64_t{m} * v;
    return interleaved_warm_up(p, 0, v, group, forwards) < forwards ? Verdict::Mismatch
                                                                    : Verdict::Ok;
  }
  // Each rank of an even ring has posted its next receive before it sends what it has made.
  if (exchange == MegatronExchange::WarmupFlush && eager && p % 2 == 0 && p > 2)
    return Verdict::Deadlock;
  // A rank whose warm-up just takes in all forwards sends the last one alone and waits for that.
  // The next rank takes it in a batch with its first gradient, which connects to both, or to none.
  const bool just_all = group == m && m % 2 == 0 && m <= 2 * (p - 1);
  if (exchange == MegatronExchange::Batched && connect == Connect::FirstUse && just_all)
    return Verdict::Deadlock;
  return Verdict::Ok;
}

TEST(MegatronInterleaved, EveryListIsWholeAndOnlyTheKnownOnesDoNotEnd) {
  for_each_size([](int p, int v, int m, int group) {
    const Order order = interleaved(p, v, m, group);
    for (const std::string& name : megatron_exchange_names()) {
      const MegatronExchange exchange = parse_megatron_exchange(name);
      const Order list = megatron_interleaved_list(order, exchange);
      EXPECT_THAT(problems_of(list), IsEmpty());
      for (const auto& [groups, policy] : megatron_interleaved_policies(exchange, p)) {
        const std::string what = name + " " + groups + " p=" + std::to_string(p) +
                                 " v=" + std::to_string(v) + " m=" + std::to_string(m) +
                                 " G=" + std::to_string(group);
        for (const Connect connect : {Connect::Ready, Connect::FirstUse}) {
          EXPECT_EQ(verdict_of(list, policy, connect),
                    expected(p, v, m, group, exchange, groups == "eager", connect))
              << what << " " << to_string(connect);
        }
      }
    }
  });
}

TEST(MegatronInterleaved, ForwardsAlone) {
  for (const std::string& name : megatron_exchange_names()) {
    const MegatronExchange exchange = parse_megatron_exchange(name);
    const Order list = megatron_interleaved_list(forward_order(interleaved(3, 2, 7, 4)), exchange);
    EXPECT_THAT(problems_of(list), IsEmpty());
    for (const auto& [groups, policy] : megatron_interleaved_policies(exchange, 3))
      EXPECT_EQ(verdict_of(list, policy, Connect::FirstUse), Verdict::Ok) << name << " " << groups;
  }
}

TEST(MegatronInterleaved, RefusesWhatTheLoopDoesNotRun) {
  const auto refusal = [](const Order& order) {
    return [order] { megatron_interleaved_list(order, MegatronExchange::Overlap); };
  };
  EXPECT_THAT(refusal(make_order("1f1b", {4, 8})),
              ThrowsMessage<InputError>(HasSubstr("stages r, p + r")));
  EXPECT_THAT(refusal(make_order("zbv", {4, 8, 2})),
              ThrowsMessage<InputError>(HasSubstr("stages r, p + r")));
  EXPECT_THAT(refusal(make_order("interleaved", {4, 3, 2})),
              ThrowsMessage<InputError>(HasSubstr("at least as many")));
  EXPECT_THAT(refusal(make_order("looped-bfs", {2, 4, 2})),
              ThrowsMessage<InputError>(HasSubstr("where the loop computes")));
  EXPECT_THAT(refusal(replicate(interleaved(2, 2, 4, 2), 2)),
              ThrowsMessage<InputError>(HasSubstr("on several ranks")));
  EXPECT_THAT(refusal(with_transfers(interleaved(2, 2, 4, 2))),
              ThrowsMessage<InputError>(HasSubstr("transfers")));
  Order short_of_one = interleaved(2, 2, 4, 2);
  short_of_one.ranks[1].pop_back();
  EXPECT_THAT(refusal(short_of_one),
              ThrowsMessage<InputError>(HasSubstr("rank 1 computes nothing more where")));
}

TEST(MegatronInterleaved, APlanThatTheLoopRunsEndsAndAnotherOrderIsNamed) {
  Plan plan = test::plan_of(4, {1, 1, 1, 1, 1, 1, 1, 1}, "interleaved", 1);
  EXPECT_THAT(stock_verdicts(plan, "megatron"), IsEmpty());
  plan.schedule.order = pipeline_order(plan);
  auto& row = plan.schedule.order->ranks[3];
  std::erase_if(row, [](const Cell& cell) { return cell.action.kind == ActionKind::Idle; });
  std::swap(row[0], row[1]);
  EXPECT_THAT(stock_verdicts(plan, "megatron"),
              testing::ElementsAre(HasSubstr("rank 3 computes 3F1 where the loop computes 3F0")));
}

}  // namespace megatron_interleaved_test
}  // namespace pipewright::planner
