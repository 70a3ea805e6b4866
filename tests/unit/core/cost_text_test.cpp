// --cost and --mem as they are written, one value for all stages or one for each, and a model cut
// into another number of stages.
#include "core/costs/cost_text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/support/expect_refusal.hpp"

namespace pipewright {
namespace cost_text_test {

TEST(CostText, OneValueIsForAllStagesAndColonsGiveOneForEach) {
  const CostTable costs = parse_costs("F=1us:2us:3us,I=4,comm=7", 3);
  EXPECT_EQ(costs.stages[0].f.value, 1000);
  EXPECT_EQ(costs.stages[2].f.value, 3000);
  EXPECT_EQ(costs.stages[1].i.value, 4);
  EXPECT_EQ(costs.stages[1].w.value, 0);
  EXPECT_EQ(costs.stages[1].b.value, 4);
  EXPECT_EQ(costs.every_route.latency.value, 7);
}

TEST(CostText, AFusedBackwardAloneIsHalved) {
  const CostTable costs = parse_costs("B=5:8", 2);
  EXPECT_EQ(costs.stages[0].i.value + costs.stages[0].w.value, 5);
  EXPECT_EQ(costs.stages[1].i.value, 4);
  EXPECT_EQ(costs.stages[1].b.value, 8);
}

TEST(CostText, AListOfAnotherLengthIsRefusedWithBothNumbers) {
  const InputError error = test::refusal([] { parse_costs("F=1:2", 3); });
  test::expect_one_line(error);
  EXPECT_THAT(error.what(), testing::HasSubstr("each of the 3 stages, found 2"));
  EXPECT_THAT(test::refusal([] { parse_costs("F=1:", 2); }).what(), testing::HasSubstr("--cost F"));
  EXPECT_THAT(test::refusal([] { parse_costs("comm=1:2", 2); }).what(),
              testing::HasSubstr("--cost comm"));
}

TEST(CostText, MemoryByStage) {
  CostTable costs = parse_costs("F=1", 2);
  EXPECT_EQ(parse_memory("F=10:20,I=-4,constant=0:7,version=3,limit=1KiB", costs).value, 1024);
  EXPECT_EQ(costs.memory[0].w.value, -6);
  EXPECT_EQ(costs.memory[1].w.value, -16);
  EXPECT_EQ(costs.memory[1].constant.value, 7);
  EXPECT_EQ(costs.memory[1].version.value, 3);
}

CostTable measured() {
  CostTable table = CostTable::uniform(2, {.f = Nanoseconds(10), .i = Nanoseconds(12)});
  table.stages[0].w = Nanoseconds(8);
  table.stages[0].b = Nanoseconds(20);
  table.stages[1].w = Nanoseconds(8);
  table.stages[1].b = Nanoseconds(17);  // fused it is faster
  table.memory = {{.f = Bytes(100), .i = Bytes(-40), .w = Bytes(-60), .constant = Bytes(7)},
                  {.f = Bytes(100), .i = Bytes(0), .w = Bytes(-90), .constant = Bytes(9)}};
  table.route_of_edge.assign(4, {.latency = Nanoseconds(5), .bytes_per_second = 1e9});
  return table;
}

TEST(CostText, WhatIsNotNamedStays) {
  CostTable table = measured();
  change_costs("F=11:13,comm=3", table);
  EXPECT_EQ(table.stages[1].f.value, 13);
  EXPECT_EQ(table.stages[0].i.value, 12);
  EXPECT_EQ(table.stages[1].b.value, 17);
  EXPECT_EQ(table.memory[0].constant.value, 7);
  EXPECT_EQ(table.every_route.latency.value, 3);
  EXPECT_EQ(table.route_of_edge[2].latency.value, 3);
  EXPECT_EQ(table.route_of_edge[2].bytes_per_second, 1e9);
}

TEST(CostText, AFusedBackwardFollowsItsPartsWhereItWasTheirSum) {
  CostTable table = measured();
  change_costs("I=20", table);
  EXPECT_EQ(table.stages[0].b.value, 28);
  EXPECT_EQ(table.stages[1].b.value, 17);
  table = measured();
  change_costs("B=40", table);
  EXPECT_EQ(table.stages[0].i.value, 24);
  EXPECT_EQ(table.stages[0].w.value, 16);
  EXPECT_EQ(table.stages[1].i.value, 12);  // a time of its own says nothing of the parts
  table = measured();
  change_costs("B=40,W=30", table);
  EXPECT_EQ(table.stages[0].i.value, 10);
}

TEST(CostText, ALimitAloneKeepsTheMemoryThatIsThere) {
  CostTable table = measured();
  EXPECT_EQ(parse_memory("limit=50", table).value, 50);
  EXPECT_EQ(table.memory[0].f.value, 100);
  EXPECT_EQ(table.memory[1].w.value, -90);
  EXPECT_EQ(parse_memory("F=200,limit=9", table).value, 9);
  EXPECT_EQ(table.memory[0].w.value, -160);
  EXPECT_EQ(table.memory[1].w.value, -90);  // it did not give back what was left before
  EXPECT_EQ(table.memory[1].constant.value, 9);
}

TEST(CostText, WhatIsNamedOfRanksIsCutIntoTheirStagesAndAllElseStays) {
  CostTable table = parse_costs("F=1:2:3:4,I=5,W=6,OPT=7", 4);
  parse_memory("F=10,constant=8", table);
  const Placement loop = Placement::loop(2, 2);
  change_costs("F=40:80,W=12", table, {"--rank-cost", &loop});
  EXPECT_EQ(parse_memory("constant=6:16,limit=9", table, {"--rank-mem", &loop}).value, 9);
  for (int s = 0; s < 4; ++s) {
    const StageCosts& each = table.stages[static_cast<std::size_t>(s)];
    const StageMemory& held = table.memory[static_cast<std::size_t>(s)];
    EXPECT_EQ(each.f.value, s < 2 ? 20 : 40);
    EXPECT_EQ(each.i.value, 5);
    EXPECT_EQ(each.w.value, 6);
    EXPECT_EQ(each.b.value, 11);
    EXPECT_EQ(each.opt.value, 7);
    EXPECT_EQ(held.constant.value, s < 2 ? 3 : 8);
    EXPECT_EQ(held.f.value, 10);
    EXPECT_EQ(held.w.value, -10);
  }
}

TEST(CostText, ALimitWithNothingToHoldAgainstItIsRefused) {
  CostTable table = parse_costs("F=1", 2);
  const InputError error = test::refusal([&] { parse_memory("limit=10GiB", table); });
  test::expect_one_line(error);
  EXPECT_THAT(error.what(), testing::HasSubstr("--mem limit=10GiB"));
  EXPECT_THAT(error.what(), testing::HasSubstr("plan.json"));
  EXPECT_EQ(parse_memory("constant=3,limit=7", table).value, 7);
}

TEST(CostText, CuttingAModelAnewKeepsItsWork) {
  const CostTable four = parse_costs("F=120:240:360:480,I=12,W=24,FB=240", 4);
  // Twice as many stages: each half of an old one, in the old order.
  const CostTable eight = resampled(four, 8);
  EXPECT_EQ(eight.stages[0].f.value, 60);
  EXPECT_EQ(eight.stages[1].f.value, 60);
  EXPECT_EQ(eight.stages[7].f.value, 240);
  EXPECT_EQ(eight.overlapped_pair.value, 120);
  // Three stages: the first has all of stage 0 and a third of stage 1.
  const CostTable three = resampled(four, 3);
  EXPECT_EQ(three.stages[0].f.value, 120 + 80);
  EXPECT_EQ(three.stages[1].f.value, 160 + 240);
  EXPECT_EQ(three.stages[2].f.value, 120 + 480);
  for (const int stages : {1, 2, 3, 4, 6, 8, 12}) {
    std::int64_t sum = 0;
    for (const StageCosts& each : resampled(four, stages).stages) sum += each.f.value;
    EXPECT_EQ(sum, 1200) << stages;
  }
  EXPECT_EQ(resampled(four, 4).stages[2].b.value, four.stages[2].b.value);
}

TEST(CostText, CuttingNeverLosesARanksWorkToRounding) {
  // Seven does not divide into 2, 3 or 4 chunks; each rank still has all of it.
  const CostTable four = parse_costs("F=7,I=5,W=3", 4);
  for (const int chunks : {2, 3, 4, 8}) {
    const Placement placement = Placement::loop(4, chunks);
    const CostTable cut = resampled(four, placement);
    for (int r = 0; r < 4; ++r) {
      StageCosts sum;
      for (const StageId s : placement.stages_of(RankId(r))) {
        const StageCosts& each = cut.stages[static_cast<std::size_t>(s.value)];
        EXPECT_EQ(each.b, each.i + each.w);
        sum.f += each.f;
        sum.i += each.i;
        sum.w += each.w;
      }
      EXPECT_EQ(sum.f.value, 7) << chunks;
      EXPECT_EQ(sum.i.value, 5) << chunks;
      EXPECT_EQ(sum.w.value, 3) << chunks;
    }
  }
}

TEST(CostText, ACutIsRoughWhereRoundingMatters) {
  const CostTable small = parse_costs("F=7,I=6,W=6", 4);
  EXPECT_TRUE(cut_is_rough(small, 8));
  EXPECT_FALSE(cut_is_rough(small, 4));
  EXPECT_FALSE(cut_is_rough(parse_costs("F=8,I=6,W=6", 4), 8));     // divides
  EXPECT_FALSE(cut_is_rough(parse_costs("F=1007ns,I=2us", 4), 8));  // half a ns of 503
  CostTable bytes = parse_costs("F=8", 4);
  parse_memory("F=1,limit=4", bytes);
  EXPECT_TRUE(cut_is_rough(bytes, 8));
}

TEST(CostText, AChunkNeverHoldsLessThanItsShare) {
  CostTable two = parse_costs("F=1", 2);
  parse_memory("F=1:7,I=0:-7,constant=3", two);
  const CostTable four = resampled(two, Placement::v_shape(2));
  EXPECT_EQ(four.memory[0].f.value, 1);  // half a byte
  EXPECT_EQ(four.memory[0].w.value, -1);
  EXPECT_EQ(four.memory[3].f.value, 4);
  EXPECT_EQ(four.memory[3].i.value, -4);  // all given back at I, as in the whole
  EXPECT_EQ(four.memory[3].w.value, 0);
  EXPECT_EQ(four.memory[0].constant.value, 2);
}

}  // namespace cost_text_test
}  // namespace pipewright
