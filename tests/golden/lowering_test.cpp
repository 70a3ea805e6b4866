// PyTorch's own orders: lowering gives their communication, action by action, and check gives the
// recorded verdicts.
#include <gtest/gtest.h>

#include <filesystem>

#include "core/base/json.hpp"
#include "core/order/problems.hpp"
#include "core/program/lower.hpp"
#include "sim/engine.hpp"

namespace pipewright {
namespace lowering_test {

const std::string kFolder = std::string(PIPEWRIGHT_GOLDEN_DIR) + "/pytorch/";

Order read(const std::string& path) { return read_order_csv(read_text(path), path); }

std::string verdict(const Order& order, const CommPolicy& policy, bool fragment = false) {
  const Program program = lower(order, policy, {.fragment = fragment});
  return std::string(
      to_string(sim::check(program, CostTable::uniform(program.stages, {})).verdict));
}

class PyTorchOrders : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kFolder + "orders/manifest.json"))
      GTEST_SKIP() << "no " << kFolder << "orders/manifest.json";
    manifest_ = parse_json(read_text(kFolder + "orders/manifest.json"), "manifest.json");
  }
  Json manifest_;
};

TEST_F(PyTorchOrders, LoweringAddsTheSameCommunication) {
  for (const auto& entry : manifest_) {
    const std::string compute = entry["compute_csv"], comms = entry["comms_csv"];
    EXPECT_EQ(write_order_csv(with_transfers(read(kFolder + "orders/" + compute))),
              write_order_csv(read(kFolder + "orders/" + comms)))
        << comms;
  }
}

TEST_F(PyTorchOrders, EveryOrderIsWhole) {
  for (const auto& entry : manifest_) {
    for (const char* key : {"compute_csv", "comms_csv"}) {
      const auto problems = problems_of(read(kFolder + "orders/" + std::string(entry[key])));
      EXPECT_TRUE(problems.empty()) << entry[key] << ": " << problems.front();
    }
  }
}

TEST_F(PyTorchOrders, VerdictsUnderEightModels) {
  struct Model {
    const char* key;
    CommPolicy policy;
  };
  std::vector<Model> models;
  for (const bool deferred : {false, true}) {
    const Post post = deferred ? Post::Deferred : Post::Early;
    models.push_back({deferred ? "rendezvous_naive_defer" : "rendezvous_asis",
                      {.issue = Issue::Inline, .post = post}});
    models.push_back({deferred ? "async_rank_naive_defer" : "async_rank_asis",
                      {.channel = Channel::Rank, .post = post}});
    models.push_back({deferred ? "async_pair_naive_defer" : "async_pair_asis",
                      {.channel = Channel::Pair, .post = post}});
    models.push_back({deferred ? "async_edge_naive_defer" : "async_edge_asis",
                      {.channel = Channel::Edge, .post = post}});
  }
  for (const auto& entry : manifest_) {
    const Order order = read(kFolder + "orders/" + std::string(entry["comms_csv"]));
    for (const auto& [key, policy] : models) {
      const std::string recorded =
          entry[key] == "order-mismatch" ? std::string("mismatch") : std::string(entry[key]);
      EXPECT_EQ(verdict(order, policy), recorded) << entry["comms_csv"] << " " << key;
    }
  }
}

TEST(PyTorchArtifacts, InterleavedZeroBubbleOfTwoRanks) {
  const std::string comms = kFolder + "artifacts/zb1p_2rank_2stagep_comms.csv";
  if (!std::filesystem::exists(comms)) GTEST_SKIP() << "no " << comms;
  const Order order = read(comms);
  EXPECT_TRUE(problems_of(order).empty());
  EXPECT_EQ(verdict(order, CommPolicy{}), "ok");
  EXPECT_EQ(verdict(order, {.issue = Issue::Inline}), "ok");
}

TEST(FieldCases, OrdersReportedStuckAreStuckAtTheReportedInstructions) {
  const std::string path = std::string(PIPEWRIGHT_GOLDEN_DIR) + "/deadlock/field_cases.json";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no " << path;
  for (const auto& entry : parse_json(read_text(path), path)) {
    std::string csv;
    for (const auto& [rank, actions] : entry["ranks"].items()) {
      for (const auto& action : actions) csv += std::string(action) + ",";
      csv += "\n";
    }
    const Order order = read_order_csv(csv, entry["name"]);
    const Program program = lower(order, {.issue = Issue::Inline}, {.fragment = true});
    const WaitReport report = sim::check(program, CostTable::uniform(program.stages, {}));
    EXPECT_EQ(to_string(report.verdict), std::string(entry["derived_rendezvous_verdict"]));
    ASSERT_EQ(report.stuck.size(), entry["stuck_heads"].size());
    for (const auto& head : report.stuck) {
      EXPECT_EQ(program.text(head.instruction),
                std::string(entry["stuck_heads"][std::to_string(head.rank.value)]));
    }
    EXPECT_EQ(report.cycle.size(), 2u);
    // The fix given in the threads: one group a rank; and why PyTorch went to a communicator for
    // each directed edge.
    EXPECT_EQ(verdict(order, {.issue = Issue::Grouped}, true), "ok");
    EXPECT_EQ(verdict(order, CommPolicy{}, true), "ok");
  }
}

}  // namespace lowering_test
}  // namespace pipewright
