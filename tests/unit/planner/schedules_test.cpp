#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "core/base/error.hpp"
#include "core/order/comm_policy.hpp"
#include "core/order/problems.hpp"
#include "core/program/lower.hpp"
#include "planner/schedules/registry.hpp"
#include "sim/engine.hpp"

namespace pipewright::planner {
namespace schedules_test {

using ::testing::HasSubstr;

std::string message_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

std::string row(const Order& order, std::size_t rank) {
  std::string text;
  for (const Cell& cell : order.ranks[rank]) text += (text.empty() ? "" : " ") + to_string(cell);
  return text;
}

/// Every schedule at every small size it accepts makes a whole order, and it ends under the papers'
/// policy. Paddle's rule is only sound where the ranks divide the micro-batches.
TEST(Schedules, EveryOrderIsWholeAndEnds) {
  for (const Schedule& schedule : schedules()) {
    if (schedule.traits.searched) continue;  // slow, and with tests of its own
    int made = 0;
    for (int p = 1; p <= 6; ++p) {
      for (int m = 1; m <= 16; ++m) {
        for (int v = 1; v <= 3; ++v) {
          const ScheduleRequest request{p, m, v, {}};
          if (refusal_of(schedule, request)) continue;
          SCOPED_TRACE(std::string(schedule.name) + " " + std::to_string(p) + " " +
                       std::to_string(m) + " " + std::to_string(v));
          const Order order = make_order(schedule.name, request);
          ASSERT_EQ(order.rank_count(), p);
          ASSERT_EQ(order.stages(), planner::placement_of(schedule, request).stages());
          EXPECT_THAT(problems_of(order), ::testing::IsEmpty());
          ++made;
          if (schedule.name == "paddle-vpp" && m % p != 0) continue;
          const Program ideal = lower(order, comm_policy_preset("ideal"));
          EXPECT_EQ(sim::check(ideal, CostTable::uniform(order.stages(), {})).verdict, Verdict::Ok);
        }
      }
    }
    EXPECT_GE(made, 10) << schedule.name;
  }
}

/// Found by trying all small sizes, and by a second reading of Paddle's rule: where p does not
/// divide m, the computations of some sizes wait for each other in a circle whatever the transfers
/// do.
TEST(Schedules, PaddlesRuleHangsAtSomeSizesWhateverThePolicy) {
  const Order order = make_order("paddle-vpp", {5, 7, 2, {}});
  EXPECT_TRUE(problems_of(order).empty());
  const Program program = lower(order, comm_policy_preset("ideal"));
  EXPECT_EQ(sim::check(program, CostTable::uniform(10, {})).verdict, Verdict::Deadlock);
}

TEST(Schedules, InterleavedEndsForEveryGroupItAccepts) {
  int made = 0;
  for (int p = 1; p <= 5; ++p) {
    for (int m = 1; m <= 16; ++m) {
      for (int group = 1; group <= m; ++group) {
        const ScheduleRequest request{p, m, 3, {{"group", std::to_string(group)}}};
        if (refusal_of(find_schedule("interleaved"), request)) continue;
        const Order order = make_order("interleaved", request);
        EXPECT_THAT(problems_of(order), ::testing::IsEmpty());
        const Program program = lower(order, CommPolicy{});
        EXPECT_EQ(sim::check(program, CostTable::uniform(3 * p, {})).verdict, Verdict::Ok)
            << p << " " << m << " " << group;
        ++made;
      }
    }
  }
  EXPECT_GT(made, 200);
}

/// NCCL with a communicator for each directed edge is a plan's default: the general schedules must
/// end under it as they are.
TEST(Schedules, GeneralSchedulesEndUnderThePlansDefault) {
  for (const Schedule& schedule : schedules()) {
    if (!schedule.policy.empty() || schedule.traits.searched) continue;
    for (const auto& [p, m] :
         {std::pair(2, 1), std::pair(4, 8), std::pair(5, 3), std::pair(8, 24)}) {
      const ScheduleRequest request{p, m, schedule.default_chunks, {}};
      if (refusal_of(schedule, request)) continue;
      const Order order = make_order(schedule.name, request);
      const Program program = lower(order, CommPolicy{});
      const auto report = sim::check(program, CostTable::uniform(order.stages(), {}));
      EXPECT_EQ(report.verdict, Verdict::Ok) << schedule.name << " " << p << " " << m;
    }
  }
}

TEST(Schedules, EntriesSayWhatTheyAre) {
  std::set<std::string> names;
  for (const Schedule& schedule : schedules()) {
    for (const auto text : {schedule.name, schedule.text.summary, schedule.text.constraint,
                            schedule.text.bubble, schedule.text.memory, schedule.text.source}) {
      EXPECT_FALSE(text.empty()) << schedule.name;
    }
    EXPECT_TRUE(names.insert(std::string(schedule.name)).second) << schedule.name;
  }
}

TEST(Schedules, AliasesInAnyCase) {
  EXPECT_EQ(find_schedule("fthenb").name, "gpipe");
  EXPECT_EQ(find_schedule("AFAB").name, "gpipe");
  EXPECT_EQ(find_schedule("1F1B").name, "1f1b");
  EXPECT_EQ(find_schedule("vpp").name, "interleaved");
  EXPECT_EQ(find_schedule("Interleaved1F1B").name, "interleaved");
  EXPECT_EQ(find_schedule("ZB-H1").name, "zb-h1");
  EXPECT_EQ(find_schedule("ZBH1").name, "paddle-zbh1");
  EXPECT_EQ(find_schedule("Eager1F1B").name, "eager-1f1b");
  EXPECT_EQ(find_schedule("LoopedBFS").name, "looped-bfs");
  EXPECT_EQ(find_schedule("InterleavedZeroBubble").name, "interleaved-zb");
  EXPECT_EQ(find_schedule("ZBVZeroBubble").name, "zbv");
  EXPECT_EQ(find_schedule("DualPipeV").name, "dualpipev");
  EXPECT_EQ(find_schedule("gis").name, "grouped-interleaved");
  EXPECT_EQ(find_schedule("V-Half").name, "v-half");
}

TEST(Schedules, UnknownNamesAreRefusedWithASuggestion) {
  EXPECT_THAT(message_of([] { find_schedule("gpip"); }), HasSubstr("did you mean \"gpipe\""));
  EXPECT_THAT(message_of([] { find_schedule("zzz"); }), HasSubstr("there is no schedule \"zzz\""));
}

TEST(Schedules, RefusalsNameTheWayOut) {
  const auto refused = [](const char* name, const ScheduleRequest& request) {
    return message_of([&] { make_order(name, request); });
  };
  EXPECT_THAT(refused("1f1b", {4, 8, 2, {}}), HasSubstr("interleaved"));
  // 10 on 4 ranks: 2 rounds of 5 are fine. 9 on 4: 2 rounds do not divide 9; 8 and 10 do.
  EXPECT_EQ(refused("interleaved", {4, 10, 2, {}}), "");
  EXPECT_THAT(refused("interleaved", {4, 9, 2, {}}), HasSubstr("use 8 or 10 micro-batches"));
  EXPECT_THAT(refused("interleaved", {4, 8, 2, {{"group", "3"}}}), HasSubstr("from 4"));
  EXPECT_THAT(refused("interleaved", {4, 8, 2, {{"group", "9"}}}), HasSubstr("to 8"));
  EXPECT_THAT(refused("interleaved", {4, 8, 2, {{"group", "x"}}}), HasSubstr("\"x\""));
  EXPECT_THAT(refused("interleaved", {4, 8, 2, {{"group", "5"}}}), HasSubstr("a last group of 3"));
  EXPECT_THAT(refused("interleaved", {4, 8, 2, {{"grup", "4"}}}),
              HasSubstr("did you mean \"group\""));
  EXPECT_THAT(refused("gpipe", {4, 8, 1, {{"group", "4"}}}), HasSubstr("it takes none"));
  EXPECT_THAT(refused("paddle-vpp", {4, 3, 2, {}}), HasSubstr("at least as many micro-batches"));
  EXPECT_THAT(refused("paddle-vpp", {4, 8, 2, {{"jobs", "both"}}}), HasSubstr("\"split\""));
  EXPECT_THAT(refused("gpipe", {0, 8, 1, {}}), HasSubstr("at least 1 rank"));
  EXPECT_THAT(refused("gpipe", {70000, 1, 1, {}}), HasSubstr("65535"));
  EXPECT_THAT(refused("gpipe", {1000, 2000000, 1, {}}), HasSubstr("200 million"));
}

TEST(Schedules, NaiveIsOneMicroBatchAtATime) {
  EXPECT_EQ(row(make_order("naive", {3, 2, 1, {}}), 1), "1F0 1B0 1F1 1B1");
}

TEST(Schedules, OneFOneBWithFewMicroBatches) {
  // Rank 0 of 4 would run 3 ahead; with 2 micro-batches it runs all of them.
  EXPECT_EQ(row(make_order("1f1b", {4, 2, 1, {}}), 0), "0F0 0F1 0B0 0B1");
  EXPECT_EQ(row(make_order("1f1b", {4, 2, 1, {}}), 2), "2F0 2F1 2B0 2B1");
  EXPECT_EQ(row(make_order("1f1b", {4, 2, 1, {}}), 3), "3F0 3B0 3F1 3B1");
}

TEST(Schedules, ZbH1KeepsRWeightGradientsBack) {
  EXPECT_EQ(row(make_order("zb-h1", {3, 4, 1, {}}), 2),
            "2F0 2I0 2F1 2I1 2F2 2I2 2W0 2F3 2I3 2W1 2W2 2W3");
}

/// One rank's block is F F I I in slots 0 to 3, the two W's in 4 and 5.
TEST(Schedules, VMinOnOneRankFinishesEachMicroBatch) {
  EXPECT_EQ(row(make_order("v-min", {1, 2, 2, {}}), 0),
            "0F0 1F0 1I0 0I0 1W0 0W0 0F1 1F1 1I1 0I1 1W1 0W1");
  EXPECT_EQ(row(make_order("1f1b-v", {1, 2, 2, {}}), 0), "0F0 1F0 1B0 0B0 0F1 1F1 1B1 0B1");
}

/// p = 2, G = 1: rank 1's block of six slots has F of chunk 0 in slot 1 and of chunk 1 in 4, I and
/// W of chunk 1 in 5 and 6, of chunk 0 in 8 and 9.
TEST(Schedules, GroupedInterleavedReadsTheRepeatedBlock) {
  EXPECT_EQ(row(make_order("grouped-interleaved", {2, 2, 2, {}}), 1),
            "1F0 3F0 3I0 3W0 1F1 1I0 1W0 3F1 3I1 3W1 1I1 1W1");
}

/// G = 3 for 7 micro-batches on 3 ranks leaves 1, which is refused; G = 4 leaves 3, which is one
/// smaller round: forwards 0..3 of both chunks, then 4..6 of both.
TEST(Schedules, InterleavedWithASmallerLastGroup) {
  const Order order = make_order("interleaved", {3, 7, 2, {{"group", "4"}}});
  std::string forwards;
  for (const Cell& cell : order.ranks[0]) {
    if (cell.action.kind == ActionKind::F) forwards += to_string(cell) + " ";
  }
  EXPECT_EQ(forwards, "0F0 0F1 0F2 0F3 3F0 3F1 3F2 3F3 0F4 0F5 0F6 3F4 3F5 3F6 ");
}

}  // namespace schedules_test
}  // namespace pipewright::planner
