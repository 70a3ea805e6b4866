// Random orders that hang: every fix that is reported ends in both readings of the semantics,
// keeps the order whole, and changes no more than it says.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/order/comm_policy.hpp"
#include "core/order/problems.hpp"
#include "core/program/lower.hpp"
#include "planner/fix/fix.hpp"
#include "planner/fix/listed_order.hpp"
#include "sim/engine.hpp"
#include "tests/property/two_readings.hpp"
#include "tests/reference/random_order.hpp"

namespace pipewright::planner {
namespace fix_test {

using tests::Case;

struct Found {
  int hung = 0, fixed = 0;
  std::map<std::string, int> by_name;
};

/// What a rank's list holds, in any order.
std::vector<std::vector<std::string>> sorted_cells(const Order& order) {
  std::vector<std::vector<std::string>> ranks;
  for (const auto& row : order.ranks) {
    auto& cells = ranks.emplace_back();
    for (const Cell& cell : row) cells.push_back(to_string(cell));
    std::sort(cells.begin(), cells.end());
  }
  return ranks;
}

void expect_sound(const Order& order, const CommPolicy& policy, const CostTable& costs,
                  const Fix& fix, const LowerOptions& options) {
  SCOPED_TRACE(fix.name);
  const Program program = lower(fix.order, fix.policy, options);
  const sim::Result result = sim::simulate(program, costs);
  EXPECT_TRUE(result.finished);
  EXPECT_EQ(sim::check(program, costs).verdict, Verdict::Ok);
  EXPECT_EQ(result.timeline.makespan_ns, fix.step_ns_after);
  EXPECT_TRUE(options.fragment || problems_of(fix.order).empty());
  EXPECT_FALSE(fix.difference.empty());
  const Order before = listed_order(order, policy);
  if (fix.change.touches == Touches::Computations) {
    EXPECT_EQ(sorted_cells(computations_of(fix.order)), sorted_cells(computations_of(before)));
  } else {
    EXPECT_EQ(write_order_csv(computations_of(fix.order)),
              write_order_csv(computations_of(before)));
  }
  EXPECT_EQ(sorted_cells(fix.order), sorted_cells(before));
  CommPolicy written = as_written(policy);
  if (fix.name == "group-hoist") written.issue = Issue::Grouped;
  // What moves transfers does so once the limits on issuing are lifted.
  written.connect = Connect::Ready;
  if (policy.issue == Issue::Stream) written.in_flight = 0;
  EXPECT_TRUE(fix.change.touches == Touches::Policy || fix.policy == written);
}

void try_case(std::uint64_t seed, Found& found) {
  reference::Dice dice(seed);
  reference::RandomOptions options;
  options.broken = dice.chance(30);
  const reference::RandomOrder random = reference::random_order(dice, options);
  if (reference::parse_order(reference::to_csv(random.order)).empty()) return;
  Case c{random.order, reference::random_policy(dice), reference::random_costs(dice, random.order),
         random.broken && dice.chance(50)};
  if (tests::contradicts_itself(c.order)) return;
  const Order order = tests::order_of(c);
  if (!c.fragment && !problems_of(order).empty()) return;
  const CostTable costs = tests::costs_of(c);
  const CommPolicy policy = tests::program_of(c).policy;
  const LowerOptions lowering{.fragment = c.fragment};
  const Verdict verdict = sim::check(lower(order, policy, lowering), costs).verdict;
  SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + tests::shown(c));
  const FixReport report = find_fixes(order, policy, costs, lowering);
  EXPECT_EQ(report.verdict, verdict);
  EXPECT_FALSE(report.sentence.empty());
  EXPECT_TRUE(verdict != Verdict::Ok || report.fixes.empty());
  if (verdict == Verdict::Ok) return;
  ++found.hung;
  if (!report.fixes.empty()) ++found.fixed;
  for (const Attempt& failed : report.failed) {
    EXPECT_TRUE(std::none_of(report.fixes.begin(), report.fixes.end(), [&](const Fix& fix) {
      return fix.name == failed.name;
    })) << failed.name;
  }
  for (const Fix& each : report.fixes) {
    ++found.by_name[each.name];
    expect_sound(order, policy, costs, each, lowering);
  }
  // Where the computations can end, the transfers can be placed so that all ends.
  const bool can_end =
      !c.fragment &&
      sim::check(lower(computations_of(order), comm_policy_preset("ideal"), lowering), costs)
              .verdict == Verdict::Ok;
  EXPECT_TRUE(!can_end || !report.fixes.empty()) << report.sentence;
}

TEST(Fix, EveryReportedFixOfARandomOrderEnds) {
  Found found;
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    try_case(seed, found);
    if (HasFailure()) break;
  }
  EXPECT_GT(found.hung, 500);
  EXPECT_GT(found.fixed, 300);
  // warm-up has its cases in tests/golden/fix_test.cpp: random orders that need it are not whole.
  for (const char* name :
       {"group", "hoist", "group-hoist", "post-early", "list-anew", "even-odd", "split-channel"}) {
    EXPECT_GT(found.by_name[name], 0) << name;
    RecordProperty(name, found.by_name[name]);
  }
  RecordProperty("hung", found.hung);
  RecordProperty("fixed", found.fixed);
}

TEST(Fix, IsTheSameEveryTime) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    reference::Dice dice(seed);
    Case c{reference::random_order(dice).order, reference::random_policy(dice), {}, true};
    if (reference::parse_order(reference::to_csv(c.order)).empty()) continue;
    const Order order = tests::order_of(c);
    const CommPolicy policy = tests::program_of(c).policy;
    const auto text = [&] {
      const FixReport report = find_fixes(order, policy, tests::costs_of(c), {.fragment = true});
      std::string all = report.sentence;
      for (const Fix& each : report.fixes) all += "\n" + each.name + write_order_csv(each.order);
      return all;
    };
    EXPECT_EQ(text(), text()) << seed;
  }
}

}  // namespace fix_test
}  // namespace pipewright::planner
