// What PyTorch's schedules of one stage a rank do, and which orders its runtime cannot take.
// tests/python/torch compares both with PyTorch itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "core/order/problems.hpp"
#include "core/program/lower.hpp"
#include "planner/export/pytorch_actions.hpp"
#include "planner/export/pytorch_single.hpp"
#include "planner/schedules/registry.hpp"
#include "sim/engine.hpp"

namespace pipewright::planner {
namespace pytorch_lists_test {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

TEST(PytorchSingle, OneFOneBBatchesASendWithTheReceiveBehindIt) {
  // Worked out by hand from Schedule1F1B._step_microbatches.
  EXPECT_EQ(write_order_csv(torch_single_list("Schedule1F1B", 2, 3)),
            "0F0,0SEND_F0,0F1,0WAIT_SEND_F0,(0SEND_F1;0RECV_B0)BATCH_P2P,0WAIT_SEND_F1,0B0,0F2,"
            "(0SEND_F2;0RECV_B1)BATCH_P2P,0WAIT_SEND_F2,0B1,0RECV_B2,0B2\n"
            "1RECV_F0,1F0,1B0,(1SEND_B0;1RECV_F1)BATCH_P2P,1WAIT_SEND_B0,1F1,1B1,"
            "(1SEND_B1;1RECV_F2)BATCH_P2P,1WAIT_SEND_B1,1F2,1B2,1SEND_B2,1WAIT_SEND_B2\n");
}

TEST(PytorchSingle, GpipeWaitsForItsSendsAfterEachHalf) {
  EXPECT_EQ(write_order_csv(torch_single_list("ScheduleGPipe", 2, 2)),
            "0F0,0SEND_F0,0F1,0SEND_F1,0WAIT_SEND_F0,0WAIT_SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
            "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1,1WAIT_SEND_B0,1WAIT_SEND_B1\n");
}

std::string computations(Order order) {
  for (auto& row : order.ranks)
    std::erase_if(row, [](const Cell& cell) { return !is_compute(cell.action.kind); });
  return write_order_csv(order);
}

/// The computations of the registry's schedules of these names.
TEST(PytorchSingle, ComputesWhatTheSchedulesOfThatNameDo) {
  for (const auto& [theirs, ours] :
       {std::pair("Schedule1F1B", "1f1b"), std::pair("ScheduleGPipe", "gpipe")}) {
    for (int p = 1; p <= 6; ++p) {
      for (int m = p; m <= 14; ++m) {
        EXPECT_EQ(computations(torch_single_list(theirs, p, m)),
                  computations(make_order(ours, {p, m})))
            << theirs << " p=" << p << " m=" << m;
      }
    }
  }
}

TEST(PytorchSingle, EndsHoweverItsGroupSends) {
  for (const char* schedule : {"Schedule1F1B", "ScheduleGPipe"}) {
    for (int p = 1; p <= 5; ++p) {
      for (int m = p; m <= 12; m += 3) {
        const Order order = torch_single_list(schedule, p, m);
        EXPECT_THAT(problems_of(order), IsEmpty());
        for (const char* preset :
             {"torch-2.11", "torch-2.12-lazy", "torch-2.12-eager", "torch-2.14-per-direction",
              "torch-2.15-per-edge", "torch-gloo"}) {
          const Program program = lower(order, comm_policy_preset(preset));
          EXPECT_EQ(sim::check(program, CostTable::uniform(p, {})).verdict, Verdict::Ok)
              << schedule << " p=" << p << " m=" << m << " " << preset;
        }
      }
    }
  }
}

TEST(PytorchSingle, RefusesWhatPyTorchRefuses) {
  EXPECT_THAT([] { torch_single_list("Schedule1F1B", 4, 3); },
              ThrowsMessage<InputError>(HasSubstr("as many micro-batches as ranks")));
  EXPECT_THAT([] { torch_single_list("_ScheduleForwardOnly", 2, 3); },
              ThrowsMessage<InputError>(HasSubstr("_ScheduleForwardOnly")));
  EXPECT_THAT([] { torch_single_list("ScheduleGPipe", 0, 3); },
              ThrowsMessage<InputError>(HasSubstr("at least")));
}

std::string refusal(const char* csv) {
  return torch_refusal_of(read_order_csv(csv, "order.csv")).value_or("");
}

TEST(PytorchRuntime, TakesLossesInTheOrderOfTheMicroBatches) {
  EXPECT_EQ(refusal("0F1,0F0,0B1,0B0\n1F0,1F1,1B0,1B1\n"), "");
  EXPECT_THAT(refusal("0F0,0F1,0B0,0B1\n1F1,1F0,1B0,1B1\n"),
              HasSubstr("computes 1F1 where micro-batch 0 would be next"));
}

TEST(PytorchRuntime, HasNoCallsOfOnesOwn) {
  EXPECT_THAT(refusal("0F0,0B0,ALL_REDUCE(dp)\n1F0,1B0,ALL_REDUCE(dp)\n"), HasSubstr("calls"));
}

TEST(PytorchRuntime, IsGivenComputationsAloneUnlessTheOrderWritesMore) {
  const Order plain = make_order("1f1b", {2, 2});
  EXPECT_EQ(torch_file(plain, TorchRelease::V2_13).format, "compute_only");
  EXPECT_EQ(torch_file(plain, TorchRelease::V2_13).csv, write_order_csv(plain));
  const TorchFile whole = torch_file(with_transfers(plain), TorchRelease::V2_13);
  EXPECT_EQ(whole.format, "compute_comms");
  EXPECT_EQ(whole.csv,
            "0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD,0RESHARD\n"
            "1RECV_F0,1UNSHARD,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1,1REDUCE_GRAD,1RESHARD\n");
}

}  // namespace pytorch_lists_test
}  // namespace pipewright::planner
