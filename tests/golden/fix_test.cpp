// Orders that are known to hang: each is fixed, and each fix is proved here once more, apart from
// the search that found it.
#include <gtest/gtest.h>

#include <array>
#include <map>

#include "core/base/json.hpp"
#include "core/order/problems.hpp"
#include "core/program/lower.hpp"
#include "planner/fix/fix.hpp"
#include "planner/fix/listed_order.hpp"
#include "planner/schedules/registry.hpp"
#include "sim/engine.hpp"
#include "tests/golden/golden_orders.hpp"

namespace pipewright::planner {
namespace fix_test {

using golden::golden_dir;
using golden::rows_of;

CostTable costs_of(const Order& order) {
  return CostTable::uniform(order.stages(),
                            {.f = Nanoseconds(1000),
                             .i = Nanoseconds(1000),
                             .w = Nanoseconds(1000),
                             .b = Nanoseconds(2000)},
                            Nanoseconds(100));
}

/// Step of the computations lowered by the default rule and run in groups; nullopt: never ends.
std::optional<std::int64_t> batched_step(const Order& order, const CommPolicy& policy) {
  CommPolicy grouped;
  grouped.issue = Issue::Grouped;
  grouped.send_f = policy.send_f;
  grouped.send_b = policy.send_b;
  const sim::Result result = sim::simulate(lower(computations_of(order), grouped), costs_of(order));
  if (!result.finished) return std::nullopt;
  return result.timeline.makespan_ns;
}

void expect_proved(const Order& order, const Fix& fix) {
  SCOPED_TRACE(fix.name);
  const Program program = lower(fix.order, fix.policy);
  EXPECT_EQ(sim::check(program, costs_of(order)).verdict, Verdict::Ok);
  EXPECT_TRUE(problems_of(fix.order).empty());
  EXPECT_FALSE(fix.change.sentence.empty());
  EXPECT_FALSE(fix.difference.empty());
  if (fix.change.touches != Touches::Computations) {
    EXPECT_EQ(rows_of(computations_of(fix.order)), rows_of(computations_of(order)));
  }
  const sim::Result result = sim::simulate(program, costs_of(order));
  EXPECT_EQ(result.timeline.makespan_ns, fix.step_ns_after);
  EXPECT_EQ(fix.step_ns_before, batched_step(fix.order, fix.policy));
}

struct Model {
  const char* key;
  CommPolicy policy;
};

const std::vector<Model>& deferred_models() {
  static const std::vector<Model> models = {
      {"rendezvous_naive_defer", {.issue = Issue::Inline, .post = Post::Deferred}},
      {"async_rank_naive_defer", {.channel = Channel::Rank, .post = Post::Deferred}},
      {"async_pair_naive_defer", {.channel = Channel::Pair, .post = Post::Deferred}},
      {"async_edge_naive_defer", {.channel = Channel::Edge, .post = Post::Deferred}},
  };
  return models;
}

TEST(Fix, EveryDeferredOrderThatHangsIsFixed) {
  const auto folder = golden_dir() / "pytorch/orders";
  PIPEWRIGHT_NEEDS_GOLDEN(folder / "manifest.json");
  const Json manifest = parse_json(read_text(folder / "manifest.json"), "manifest.json");
  std::map<std::string, int> by_name;
  int stuck = 0, ended = 0;
  for (const auto& entry : manifest) {
    const std::string file = entry["compute_csv"];
    const Order order = read_order_csv(golden::text_of(folder / file), file);
    for (const Model& model : deferred_models()) {
      SCOPED_TRACE(file + " " + model.key);
      const FixReport report = find_fixes(order, model.policy, costs_of(order));
      if (entry[model.key] == "ok") {
        ++ended;
        EXPECT_EQ(report.verdict, Verdict::Ok);
        EXPECT_TRUE(report.fixes.empty());
        continue;
      }
      ++stuck;
      EXPECT_EQ(report.verdict,
                entry[model.key] == "deadlock" ? Verdict::Deadlock : Verdict::Mismatch);
      ASSERT_FALSE(report.fixes.empty()) << report.sentence;
      // The dearest is 5.39%: interleaved zero bubble on 8 ranks, its transfers on the computing
      // lane.
      EXPECT_LT(report.fixes.front().cost_percent(), 5.4);
      for (const Fix& each : report.fixes) {
        ++by_name[each.name];
        expect_proved(order, each);
      }
    }
  }
  for (const auto& [name, count] : by_name) RecordProperty(name, count);
  RecordProperty("stuck", stuck);
  RecordProperty("ended", ended);
  EXPECT_EQ(by_name["hoist"], stuck);  // moving is always enough
}

/// nccl#479's thread confirms the group as its fix.
TEST(Fix, OrdersReportedStuckInTheFieldAreFixed) {
  const auto path = golden_dir() / "deadlock/field_cases.json";
  PIPEWRIGHT_NEEDS_GOLDEN(path);
  int cases = 0;
  for (const auto& entry : parse_json(read_text(path), "field_cases.json")) {
    SCOPED_TRACE(entry["name"].get<std::string>());
    std::string csv;
    for (const auto& [rank, actions] : entry["ranks"].items()) {
      for (const auto& action : actions) csv += action.get<std::string>() + ",";
      csv += "\n";
    }
    const Order order = read_order_csv(csv, "case");
    const LowerOptions fragment{.fragment = true};
    const FixReport report = find_fixes(order, {.issue = Issue::Inline}, costs_of(order), fragment);
    ASSERT_GE(report.fixes.size(), 3u);
    EXPECT_EQ(report.fixes[0].name, "group");
    EXPECT_EQ(report.fixes[1].name, "hoist");
    for (const Fix& each : report.fixes) {
      const Program program = lower(each.order, each.policy, fragment);
      EXPECT_EQ(sim::check(program, costs_of(order)).verdict, Verdict::Ok) << each.name;
    }
    ++cases;
  }
  EXPECT_EQ(cases, 2);
}

/// Paddle's sizes where p does not divide m: no place of the transfers is enough, Paddle's own "one
/// more warm-up" on the last rank is.
TEST(Fix, PaddlesFused1f1bListsAreFixedUnderAQueueForEachPair) {
  for (const auto& [p, m] : std::vector<std::array<int, 2>>{{2, 4}, {4, 8}, {8, 16}}) {
    SCOPED_TRACE(std::to_string(p) + " " + std::to_string(m));
    const Order order = make_order("paddle-vpp", {p, m, 1, {{"jobs", "fused"}}});
    const FixReport report = find_fixes(order, {.channel = Channel::Pair}, costs_of(order));
    EXPECT_EQ(report.verdict, Verdict::Deadlock);
    ASSERT_FALSE(report.fixes.empty());
    for (const Fix& each : report.fixes) expect_proved(order, each);
  }
}

TEST(Fix, ListsWhoseComputationsWaitForEachOtherTakeOneMoreWarmUp) {
  for (const char* jobs : {"fused", "split"}) {
    const Order order = make_order("paddle-vpp", {5, 7, 2, {{"jobs", jobs}}});
    const FixReport report = find_fixes(order, comm_policy_preset("paddle-vpp"), costs_of(order));
    ASSERT_EQ(report.fixes.size(), 1u) << jobs;
    EXPECT_EQ(report.fixes[0].name, "warm-up");
    EXPECT_EQ(report.fixes[0].difference,
              std::vector<std::string>{"rank 4: 1 more forward before its first backward"});
    expect_proved(order, report.fixes[0]);
  }
}

TEST(Fix, PaddlesFusedVppListsAreFixedUnderPaddlesPolicy) {
  for (const auto& [p, m, v] : std::vector<std::array<int, 3>>{
           {4, 8, 2}, {4, 12, 2}, {4, 16, 2}, {8, 16, 2}, {4, 8, 4}, {3, 6, 2}}) {
    SCOPED_TRACE(std::to_string(p) + " " + std::to_string(m) + " " + std::to_string(v));
    const Order order = make_order("paddle-vpp", {p, m, v, {{"jobs", "fused"}}});
    const CommPolicy& policy = comm_policy_preset("paddle-vpp");
    const FixReport report = find_fixes(order, policy, costs_of(order));
    EXPECT_EQ(report.verdict, Verdict::Deadlock);
    ASSERT_FALSE(report.fixes.empty()) << report.sentence;
    for (const Fix& each : report.fixes) expect_proved(order, each);
  }
}

}  // namespace fix_test
}  // namespace pipewright::planner
