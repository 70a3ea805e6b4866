// Orders made by PyTorch's rules, which reproduce PyTorch's own artifacts exactly; ours must equal
// them action by action, with and without communication.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/lower.hpp"
#include "planner/schedules/registry.hpp"
#include "tests/golden/golden_orders.hpp"

namespace pipewright {
namespace {

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
    if (name != "GPipe" && name != "1F1B" && name != "Interleaved1F1B") continue;
    SCOPED_TRACE(entry["compute_csv"].get<std::string>());
    const Order order = planner::make_order(name, {entry["p"], entry["m"], entry["v"], {}});
    const auto csv = folder / entry["compute_csv"].get<std::string>();
    EXPECT_EQ(rows_of(order), rows_of_file(csv));
    EXPECT_EQ(write_order_csv(order), text_with_newline(csv));  // idle slots too
    EXPECT_EQ(rows_of(with_transfers(order)),
              rows_of_file(folder / entry["comms_csv"].get<std::string>()));
    ++compared;
  }
  EXPECT_EQ(compared, 19);  // 4 GPipe, 4 1F1B, 11 Interleaved1F1B
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

}  // namespace
}  // namespace pipewright
