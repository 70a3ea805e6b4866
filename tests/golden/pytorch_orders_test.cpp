// Orders made by PyTorch's rules, which reproduce PyTorch's own artifacts exactly; ours must equal
// them action by action, with and without communication.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/program/lower.hpp"
#include "planner/schedules/registry.hpp"
#include "tests/golden/golden_orders.hpp"

namespace pipewright {
namespace pytorch_orders_test {

using golden::golden_dir;
using golden::rows_of;
using golden::rows_of_file;

std::string text_with_newline(const std::filesystem::path& csv) {
  std::string text = golden::text_of(csv);
  if (text.empty() || text.back() != '\n') text += '\n';
  return text;
}

TEST(PytorchOrders, EqualComputeAndCommunicationOfEveryGolden) {
  const auto folder = golden_dir() / "pytorch/orders";
  PIPEWRIGHT_NEEDS_GOLDEN(folder / "manifest.json");
  const auto manifest = nlohmann::json::parse(golden::text_of(folder / "manifest.json"));
  int compared = 0;
  for (const auto& entry : manifest) {
    const std::string name = entry["schedule"];
    SCOPED_TRACE(entry["compute_csv"].get<std::string>());
    const Order order = planner::make_order(name, {entry["p"], entry["m"], entry["v"], {}});
    const auto csv = folder / entry["compute_csv"].get<std::string>();
    EXPECT_EQ(rows_of(order), rows_of_file(csv));
    EXPECT_EQ(write_order_csv(order), text_with_newline(csv));  // idle slots too
    EXPECT_EQ(rows_of(with_transfers(order)),
              rows_of_file(folder / entry["comms_csv"].get<std::string>()));
    ++compared;
  }
  // 4 GPipe, 4 1F1B, 11 each of LoopedBFS, Interleaved1F1B and InterleavedZeroBubble, 4
  // ZBVZeroBubble, 3 DualPipeV.
  EXPECT_EQ(compared, 48);
}

/// PyTorch's _merge_bw: I and W of one micro-batch that follow each other become B.
Order merged(const Order& order) {
  Order result = order;
  for (auto& cells : result.ranks) {
    std::vector<Cell> kept;
    for (const Cell& cell : cells) {
      const bool closes = !kept.empty() && cell.action.kind == ActionKind::W &&
                          kept.back().action.kind == ActionKind::I &&
                          kept.back().action.stage == cell.action.stage &&
                          kept.back().action.micro_batch == cell.action.micro_batch;
      if (closes) {
        kept.back().action.kind = ActionKind::B;
      } else if (cell.action.kind != ActionKind::Idle) {
        kept.push_back(cell);
      }
    }
    cells = kept;
  }
  return result;
}

/// The files of PyTorch's own tests.
TEST(PytorchOrders, EqualPytorchsArtifacts) {
  const auto folder = golden_dir() / "pytorch/artifacts";
  PIPEWRIGHT_NEEDS_GOLDEN(folder / "zb1p_2rank_2stagep_compute.csv");
  const Order zb1p = planner::make_order("InterleavedZeroBubble", {2, 8, 2, {}});
  EXPECT_EQ(write_order_csv(zb1p), text_with_newline(folder / "zb1p_2rank_2stagep_compute.csv"));
  EXPECT_EQ(rows_of(with_transfers(merged(zb1p))),
            rows_of_file(folder / "zb1p_2rank_2stagep_comms.csv"));
  const Order dualpipev = planner::make_order("DualPipeV", {4, 10, 2, {}});
  EXPECT_EQ(write_order_csv(dualpipev), text_with_newline(folder / "dualpipev_4rank_10mb.csv"));
}

/// PyTorch's visualiser numbers the last rank's forwards of 1F1B from 1, its runtime from 0. Ours
/// is the runtime's.
TEST(PytorchOrders, LastRankOf1f1bStartsWithMicroBatchZero) {
  const Order order = planner::make_order("1F1B", {3, 4, 1, {}});
  EXPECT_EQ(rows_of(order)[2], "2F0,2B0,2F1,2B1,2F2,2B2,2F3,2B3");
}

/// By hand from the rule, v = 2, p = 2, m = 1: one round of one micro-batch (G = 1). Rank 0 warms
/// up with min((v-1)G + 2(p-1), mv) = 2 forwards, that is all; rank 1 with 1.
TEST(PytorchOrders, InterleavedTakesFewerMicroBatchesThanRanks) {
  const Order order = planner::make_order("Interleaved1F1B", {2, 1, 2, {}});
  EXPECT_EQ(rows_of(order), (std::vector<std::string>{"0F0,2F0,2B0,0B0", "1F0,3F0,3B0,1B0"}));
}

/// By PyTorch's rule for m < p, where its lock-step walk adds slots of its own: m = 1 on 2 ranks,
/// chunk 1 starts p - m = 1 slot late.
TEST(PytorchOrders, InterleavedZeroBubbleWaitsWhereMicroBatchesAreFew) {
  const Order order = planner::make_order("InterleavedZeroBubble", {2, 1, 2, {}});
  EXPECT_EQ(write_order_csv(order), "0F0,,2F0,,2I0,2W0,0I0,0W0\n,1F0,,3F0,3I0,1I0,3W0,1W0\n");
}

/// Rank 0 of 2 counts with 3 micro-batches; those that do not exist leave their slots empty.
TEST(PytorchOrders, ZbvLeavesSlotsForMicroBatchesThatDoNotExist) {
  const Order order = planner::make_order("ZBVZeroBubble", {2, 1, 2, {}});
  EXPECT_EQ(rows_of(order),
            (std::vector<std::string>{"0F0,3F0,3I0,3W0,0I0,0W0", "1F0,2F0,2I0,2W0,1I0,1W0"}));
  EXPECT_EQ(order.ranks[0].size(), 18U);  // 3 of each of 6 kinds
  EXPECT_EQ(order.ranks[1].size(), 19U);  // and one slot of fill
}

}  // namespace pytorch_orders_test
}  // namespace pipewright
