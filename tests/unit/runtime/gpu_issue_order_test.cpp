// The order in which one host thread gives a Program to one GPU, and the pace of a slow link.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "core/program/lower.hpp"
#include "exec/devices/cuda/issue_order.hpp"
#include "exec/devices/cuda/slow_link.hpp"

namespace pipewright::exec::cuda {
namespace gpu_issue_order_test {

using testing::ElementsAre;

Program program_of(const std::string& csv, const CommPolicy& policy = {}, bool fragment = false) {
  return lower(read_order_csv(csv, "order.csv"), policy, {.fragment = fragment});
}

/// "0SEND_F0 <0F0 <1F9".
std::vector<std::string> lines_of(const Program& program, const IssueOrder& issued) {
  std::vector<std::string> lines;
  for (std::size_t place = 0; place < issued.order.size(); ++place) {
    std::string line = program.text(issued.order[place]);
    for (const InstructionId wait : issued.waits_of(place)) line += " <" + program.text(wait);
    lines.push_back(line);
  }
  return lines;
}

IssueOrder issued(const Program& program) {
  return issue_order_of(program, CostTable::uniform(program.stages, {}));
}

TEST(GpuIssueOrder, ACopyWaitsForItsDataAndForTheReceiverToStandAtItsReceive) {
  const Program program = program_of("0F0,0SEND_F0\n1F9,1RECV_F0,1F0\n", {}, true);
  EXPECT_THAT(
      lines_of(program, issued(program)),
      ElementsAre("0F0", "1F9", "0SEND_F0 <0F0 <1F9", "1RECV_F0 <0SEND_F0 <1F9", "1F0 <1RECV_F0"));
}

TEST(GpuIssueOrder, AnEagerCopyDoesNotWaitForTheReceiver) {
  const Program program = program_of("0F0,0SEND_F0\n1F9,1RECV_F0\n",
                                     {.send_f = {Protocol::Kind::EagerUnlimited, 0}}, true);
  EXPECT_THAT(lines_of(program, issued(program)),
              ElementsAre("0F0", "0SEND_F0 <0F0", "1F9", "1RECV_F0 <0SEND_F0 <1F9"));
}

TEST(GpuIssueOrder, CreditIsAWaitForTheReceiveThatGivesItBack) {
  const Program program = program_of("0F0,0SEND_F0,0SEND_F1\n1RECV_F0,1F0,1F9,1RECV_F1\n",
                                     {.send_f = {Protocol::Kind::EagerMessages, 1}}, true);
  EXPECT_THAT(lines_of(program, issued(program)),
              ElementsAre("0F0", "0SEND_F0 <0F0", "1RECV_F0 <0SEND_F0", "0SEND_F1 <0F0 <1RECV_F0",
                          "1F0 <1RECV_F0", "1F9", "1RECV_F1 <0SEND_F1 <1F9"));
}

TEST(GpuIssueOrder, AProgramWithoutOneIsRejectedWithTheCycle) {
  const Program program =
      program_of("0F0,0SEND_F0,0RECV_B1\n1F1,1SEND_B1,1RECV_F0\n", {.issue = Issue::Inline}, true);
  const IssueOrder order = issued(program);
  EXPECT_FALSE(order.is_whole());
  EXPECT_EQ(order.stuck.verdict, Verdict::Deadlock);
  EXPECT_EQ(describe(program, order.stuck),
            "rank 0  0SEND_F0 waits for rank 1's 1RECV_F0, which stands behind 1SEND_B1\n"
            "rank 1  1SEND_B1 waits for rank 0's 0RECV_B1, which stands behind 0SEND_F0\n");
}

TEST(SlowLink, IsABandwidthAndMaybeALatency) {
  EXPECT_EQ(parse_slow_link("25GB/s").bytes_per_second, 25e9);
  EXPECT_EQ(parse_slow_link("25GB/s").latency.value, 0);
  EXPECT_EQ(parse_slow_link("100Gb/s+5us").bytes_per_second, 12.5e9);
  EXPECT_EQ(parse_slow_link("100Gb/s+5us").latency.value, 5000);
  for (const char* bad : {"", "0GB/s", "fast", "25GB/s+", "25GB/s+soon"})
    EXPECT_THROW(parse_slow_link(bad), InputError) << bad;
}

TEST(SlowLink, DelaysEachTransferByLatencyAndSize) {
  const Program program = program_of("0F0,0B0\n1F0,1B0\n");
  CostTable costs = CostTable::uniform(2, {}, Nanoseconds(77));
  costs.activation_bytes = {Bytes(250'000)};
  costs.gradient_bytes = {Bytes(1)};
  EXPECT_THAT(transfer_ns(program, costs, parse_slow_link("25GB/s+5us")),
              ElementsAre(15'000, 5'001));
}

}  // namespace gpu_issue_order_test
}  // namespace pipewright::exec::cuda
