// Orders whose actions consist of parts, as files: both forms, and what is refused with its place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/costs/part_weights.hpp"
#include "core/program/lower.hpp"
#include "core/timeline/timeline.hpp"
#include "sim/engine.hpp"
#include "tests/support/order_text.hpp"

namespace pipewright {
namespace parts_test {

using test::order_of;
using test::refusal_of;
using testing::HasSubstr;

const char* const kOverlapped =
    "# parts 0F: a*3 ALL_TO_ALL(ep:x:4x8:float32) b\n# parts 0B: c ALL_TO_ALL(ep:y)@2\n"
    "# mesh tp=2 ep=4\n0F0,(0F1;0B0)OVERLAP_F_B,0B1\n";

TEST(Parts, AreWrittenAsTheyAreRead) {
  const Order order = order_of(kOverlapped);
  ASSERT_EQ(order.parts.size(), 2U);
  EXPECT_EQ(order.parts[0].parts[0].weight, 3);
  EXPECT_EQ(order.mesh, (std::vector<MeshAxis>{{"tp", 2}, {"ep", 4}}));
  EXPECT_EQ(write_order_csv(order), kOverlapped);
  EXPECT_EQ(to_json(order)["schema"], "pipewright.order/2");
  const Order again = order_of(to_text(to_json(order)));
  EXPECT_EQ(again.parts, order.parts);
  EXPECT_EQ(again.mesh, order.mesh);
  EXPECT_EQ(again.ranks, order.ranks);
}

TEST(Parts, StandInAProgramAndNotInItsOrder) {
  const Order order = order_of(kOverlapped);
  const Order listed = with_transfers(order);
  EXPECT_EQ(write_order_csv(listed), kOverlapped);
  const Program program = lower(order, CommPolicy{});
  EXPECT_EQ(program.text(0), "0F0.a");
  EXPECT_EQ(program.text(1), "ALL_TO_ALL(ep:x:4x8:float32) of 0F0");
  EXPECT_TRUE(program.ends_parts(3));
  EXPECT_EQ(program.collectives.front().size(), 4);
}

/// The cost of an action is what its computations take together, whatever the weights.
TEST(Parts, DivideTheCostOfTheirAction) {
  for (const std::int64_t cost : {0, 1, 7, 1000, 999'999'937}) {
    const Order order = order_of("# parts 0F: a*3 b c*1000000000000 d*7\n0F0,0F1\n");
    const Program program = lower(order, CommPolicy{}, {.fragment = true});
    CostTable costs = CostTable::uniform(1, {.f = Nanoseconds(cost)});
    const sim::Result result = sim::simulate(program, costs);
    EXPECT_EQ(result.timeline.makespan_ns, 2 * cost);
    EXPECT_EQ(figures_of(program, result.timeline, costs).ranks[0].busy_ns, 2 * cost);
  }
}

TEST(Parts, ACallWithAWeightTakesItsShareOfTheAction) {
  const char* const text =
      "# parts 0F: a*3 ALL_TO_ALL(ep:x:4x8:float32)@1*2 b*5\n# mesh ep=2\n0F0\n";
  const Order order = order_of(text);
  EXPECT_EQ(order.parts[0].parts[1].weight, 2);
  EXPECT_EQ(write_order_csv(order), text);
  const Program program = lower(order, CommPolicy{}, {.fragment = true});
  CostTable costs = CostTable::uniform(1, {.f = Nanoseconds(80)}, Nanoseconds(1'000'000));
  EXPECT_EQ(sim::simulate(program, costs).timeline.makespan_ns, 100);
  // No more than a file may say.
  const Program longest = lower(order_of("# parts 0F: a ALL_REDUCE(ep:x)*1000000000000\n"
                                         "# mesh ep=2\n0F0\n"),
                                CommPolicy{}, {.fragment = true});
  costs = CostTable::uniform(1, {.f = Nanoseconds(1'000'000'000)});
  EXPECT_EQ(sim::simulate(longest, costs).timeline.makespan_ns, 100'001'000'000'000);
}

TEST(Parts, ACallBesideAPartIsWrittenAsItIsRead) {
  const char* const text =
      "# parts 0F: a &RING_SEND(cp:k:4x8:float32)*2 b RING_SEND(cp:g)\n# mesh cp=2\n0F0\n";
  const Order order = order_of(text);
  EXPECT_TRUE(order.parts[0].parts[1].beside);
  EXPECT_FALSE(order.parts[0].parts[3].beside);
  EXPECT_EQ(write_order_csv(order), text);
  EXPECT_EQ(order_of(to_text(to_json(order))).parts, order.parts);
}

/// Weights with which a list takes so long as a whole, whatever goes on beside what.
TEST(Parts, AreWeighedSoThatTheListTakesTheWhole) {
  for (const char* list : {"a*3 &RING_SEND(cp:k) b*4 &RING_SEND(cp:l) c*4 d*2 ALL_REDUCE(cp:m) e",
                           "a RING_SEND(cp:k) b*7", "a*9 &ALL_REDUCE(cp:m) b c*2"}) {
    for (const std::int64_t call : {0, 1, 40, 333}) {
      for (const std::int64_t whole : {2'000, 99'991}) {
        Order order = order_of(std::string("# parts 0F: ") + list + "\n# mesh cp=2\n0F0\n");
        const Nanoseconds cost = weigh(order.parts[0], Nanoseconds(whole),
                                       [&](const Call&) { return Nanoseconds(call); });
        const Program program = lower(order, CommPolicy{}, {.fragment = true});
        const CostTable costs = CostTable::uniform(1, {.f = cost});
        EXPECT_EQ(sim::simulate(program, costs).timeline.makespan_ns, whole) << list << call;
        EXPECT_GE(cost.value, whole - 5 * call);
      }
    }
  }
}

TEST(Parts, ThatAreNoneAreRefusedWithTheirPlace) {
  const auto csv = [](const std::string& head) { return refusal_of(head + "\n0F0,0B0\n"); };
  EXPECT_THAT(csv("# parts 0F"), HasSubstr("order.csv: line 1"));
  EXPECT_THAT(csv("# parts 0F:"), HasSubstr("0F needs 1 to 10000 parts"));
  EXPECT_THAT(csv("# parts 0X: a"), HasSubstr("\"0X\" is no stage with F, I, W or B"));
  EXPECT_THAT(csv("# parts 0F0: a"), HasSubstr("\"0F0\" is no stage"));
  EXPECT_THAT(csv("# parts 0SEND_F: a"), HasSubstr("is no stage"));
  EXPECT_THAT(csv("# parts 0F: a*0"), HasSubstr("\"a*0\" is no part"));
  EXPECT_THAT(csv("# parts 0F: a*1000000000001"), HasSubstr("is no part"));
  EXPECT_THAT(csv("# parts 0F: a SEND(>1:x)"), HasSubstr("\"SEND(>1:x)\" is no part"));
  EXPECT_THAT(csv("# parts 0F: a ALL_REDUCE(tp:x)*0"),
              HasSubstr("\"ALL_REDUCE(tp:x)*0\" is no part"));
  EXPECT_THAT(csv("# parts 0F: ALL_REDUCE(tp:x)"), HasSubstr("has no computation"));
  EXPECT_THAT(csv("# parts 0F: ALL_REDUCE(tp:x)*4"), HasSubstr("has no computation"));
  EXPECT_THAT(csv("# parts 0F: a\n# parts 0F: b"), HasSubstr("line 2: the parts of 0F are given"));
  EXPECT_THAT(csv("# parts 4F: a"), HasSubstr("parts are given for 4F, but there are 1 stages"));
  EXPECT_THAT(csv("# mesh tp"), HasSubstr("expected axes and their devices"));
  EXPECT_THAT(csv("# mesh tp=0"), HasSubstr("axis tp needs 1 to 1048576 devices"));
  EXPECT_THAT(csv("# mesh tp=3000 ep=3000"), HasSubstr("axis ep needs"));
  EXPECT_THAT(csv("# mesh tp=2 tp=2"), HasSubstr("axis tp is given twice"));
  EXPECT_THAT(csv("# mesh tp=2\n# group tp: 0"),
              HasSubstr("tp is an axis of the mesh and a group"));
  EXPECT_THAT(csv("# group g: 0\n# parts 0F: a ALL_REDUCE(g:x)"), testing::IsEmpty());
}

TEST(Parts, OfAnOrderJsonNameTheirPointer) {
  const auto json = [](const std::string& more) {
    return refusal_of(R"j({"schema": "pipewright.order/2", "ranks": [["0F0", "0B0"]], )j" + more +
                      "}");
  };
  EXPECT_THAT(json(R"j("parts": {"0F": ["a", "b c"]})j"), HasSubstr("/parts/0F"));
  EXPECT_THAT(json(R"j("parts": {"0F": "a"})j"), HasSubstr("/parts/0F"));
  EXPECT_THAT(json(R"j("parts": {"1F": ["a"]})j"), HasSubstr("there are 1 stages"));
  EXPECT_THAT(json(R"j("mesh": {"tp": 0})j"), HasSubstr("/mesh/tp"));
  EXPECT_THAT(json(R"j("mesh": {"tp": 2}, "parts": {"0F": ["a", "ALL_REDUCE(tp)"]})j"),
              testing::IsEmpty());
}

TEST(Parts, AGroupOfSeveralAxesIsTheirDevicesTogether) {
  const std::vector<MeshAxis> mesh{{"tp", 2}, {"cp", 3}, {"ep", 4}};
  EXPECT_EQ(span_of(mesh, "tp"), (AxisSpan{2, 1}));
  EXPECT_EQ(span_of(mesh, "ep"), (AxisSpan{4, 6}));
  EXPECT_EQ(span_of(mesh, "tp+cp"), (AxisSpan{6, 1}));
  EXPECT_EQ(span_of(mesh, "cp+ep"), (AxisSpan{12, 2}));
  EXPECT_EQ(span_of(mesh, "tp+cp+ep"), (AxisSpan{24, 1}));
  for (const char* none : {"", "+", "tp+", "+tp", "tp+ep", "cp+tp", "tp+tp", "x+tp"})
    EXPECT_FALSE(span_of(mesh, none)) << none;
  EXPECT_EQ(span_of({{"a+b", 2}, {"a", 3}, {"b", 4}}, "a+b"), (AxisSpan{2, 1}));
}

}  // namespace parts_test
}  // namespace pipewright
