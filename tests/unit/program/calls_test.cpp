// Orders with calls, as files: groups, objects, and what is refused with its place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/order/problems.hpp"
#include "core/plan/plan.hpp"
#include "core/program/lower.hpp"
#include "tests/support/order_text.hpp"

namespace pipewright {
namespace calls_test {

using test::order_of;
using test::refusal_of;
using testing::HasSubstr;

/// An order.json with these ranks.
std::string document(const std::string& ranks, const std::string& more = "") {
  return R"j({"schema": "pipewright.order/2", "ranks": )j" + ranks + more + "}";
}

TEST(Calls, OfACsvNameTheirGroupsAboveTheRows) {
  const std::string text =
      "# fragment\n# group ep: 0 2\nALL_TO_ALL(ep:0)@1,0F0\nHOST_SYNC\nALL_TO_ALL(ep:0)@2\n";
  const Order order = order_of(text);
  EXPECT_TRUE(order.fragment);
  ASSERT_EQ(order.groups.size(), 1U);
  EXPECT_EQ(order.groups[0].ranks, (std::vector{RankId(0), RankId(2)}));
  EXPECT_EQ(order.calls.size(), 3U);
  EXPECT_EQ(write_order_csv(order), text);
  EXPECT_EQ(write_order_csv(order_of(to_text(to_json(order)))), text);
  EXPECT_EQ(order_of("# group b: 1 0\n\nALL_REDUCE(b)\nALL_REDUCE(b)\n").groups[0].ranks[0],
            RankId(0));
}

TEST(Calls, OfAnOrderJsonMayBeObjects) {
  const Order order = order_of(document(
      R"j([[{"kind": "ALL_TO_ALL", "group": "ep", "id": 7, "shape": [4, 8], "dtype": "bf16", "stream": 2},
           {"kind": "BATCH_P2P", "ends": ["0SEND_F0", {"kind": "RECV", "from": 1}]}],
          [{"kind": "NEW_GROUP", "group": "ep"}, {"kind": "HOST_SYNC"},
           {"kind": "SEND", "to": 0, "name": "x", "shape": []}, "ALL_REDUCE(tp:0)"]])j",
      R"j(, "groups": {"tp": [1]}, "fragment": true)j"));
  EXPECT_EQ(write_order_csv(order),
            "# fragment\n# group tp: 1\n"
            "ALL_TO_ALL(ep:7:4x8:bfloat16)@2,(0SEND_F0;RECV(<1))BATCH_P2P\n"
            "NEW_GROUP(ep),HOST_SYNC,SEND(>0:x:scalar),ALL_REDUCE(tp:0)\n");
  EXPECT_EQ(to_json(order).at("schema"), "pipewright.order/2");
  EXPECT_EQ(to_json(order_of("0F0,0B0\n")).at("schema"), "pipewright.order/1");
}

TEST(Calls, ThatNoOrderCanHoldAreRefusedWithTheirPlace) {
  EXPECT_THAT(refusal_of("ALL_REDUCE(tp:0\nHOST_SYNC\n"),
              HasSubstr("row 1, cell 1: expected an action such as 2F0"));
  EXPECT_THAT(refusal_of("0F0,SEND(>2:x)\n1F0\n"),
              HasSubstr("rank 0, action 2: SEND(>2:x) names rank 2, but there are 2"));
  EXPECT_THAT(refusal_of("RECV(<0:x)\n1F0\n"), HasSubstr("goes to the rank that it stands on"));
  EXPECT_THAT(refusal_of("# group g: 0\nHOST_SYNC\nHOST_SYNC,ALL_REDUCE(g:0)\n"),
              HasSubstr("rank 1, action 2: ALL_REDUCE(g:0) stands on rank 1, but group g has the "
                        "ranks 0"));
  EXPECT_THAT(refusal_of("# group g: 0 3\nALL_REDUCE(g:0)\n"),
              HasSubstr("group g names rank 3, but there are 1"));
  EXPECT_THAT(refusal_of("# group g: 0 0\nALL_REDUCE(g:0)\n"), HasSubstr("names rank 0 twice"));
  EXPECT_THAT(refusal_of("# group g: 0\n# group g: 0\nALL_REDUCE(g:0)\n"),
              HasSubstr("named twice"));
  EXPECT_THAT(refusal_of("# group g 0\nALL_REDUCE(g:0)\n"), HasSubstr("line 1: expected a group"));
  EXPECT_THAT(refusal_of("# group g: 0,1\nALL_REDUCE(g:0)\n"), HasSubstr("expected the ranks"));
  EXPECT_THAT(refusal_of("# grp g: 0\nALL_REDUCE(g:0)\n"), HasSubstr("nothing else begins with #"));
}

TEST(Calls, OfAnOrderJsonAreRefusedWithTheirPointer) {
  EXPECT_THAT(refusal_of(document(R"j([[{"kind": "ALL_REDUCE"}]])j")), HasSubstr("/ranks/0/0"));
  EXPECT_THAT(refusal_of(document(R"j([[{"kind": "ALL_REDUCED", "group": "g"}]])j")),
              HasSubstr("did you mean \"ALL_REDUCE\""));
  EXPECT_THAT(refusal_of(document(R"j([[{"kind": "SEND", "from": 1}], ["HOST_SYNC"]])j")),
              HasSubstr("/ranks/0/0"));
  EXPECT_THAT(refusal_of(document(R"j([["0F0", "(0SEND_F0;SEND(>4:x))BATCH_P2P"]])j")),
              HasSubstr("/ranks/0/1: SEND(>4:x) names rank 4"));
  EXPECT_THAT(refusal_of(document(R"j([[{"kind": "BATCH_P2P", "ends": ["0F0"]}]])j")),
              HasSubstr("/ranks/0/0/ends/0: expected an end of a transfer"));
  EXPECT_THAT(refusal_of(document(R"j([["ALL_REDUCE(g:0)"]])j", R"j(, "groups": {"g": [1]})j")),
              HasSubstr("/groups/g/0"));
  EXPECT_THAT(refusal_of(document(R"j([[{"kind": "SEND", "to": 1, "name": "a b"}]])j")),
              HasSubstr("/ranks/0/0/name"));
  EXPECT_THAT(refusal_of(R"j({"schema": "pipewright.order/3", "ranks": [["0F0"]]})j"),
              HasSubstr("reads version 1 to 2"));
}

TEST(Calls, AloneLackNothingButTheGroupsThatNobodyElseIsIn) {
  EXPECT_TRUE(problems_of(order_of("ALL_REDUCE(g:0)\nALL_REDUCE(g:0)\nHOST_SYNC\n")).empty());
  const auto problems = problems_of(order_of("ALL_REDUCE(g:0)\nHOST_SYNC,ALL_REDUCE(h:0)\n"));
  ASSERT_EQ(problems.size(), 2U);
  EXPECT_THAT(problems[1], HasSubstr("rank 1, action 2: no other rank calls group h"));
  // Beside actions of stages those have to be whole.
  EXPECT_FALSE(problems_of(order_of("0F0,ALL_REDUCE(g:0)\nALL_REDUCE(g:0)\n")).empty());
}

TEST(Calls, StandInLinesWithNames) {
  const Order order = order_of(
      "ALL_REDUCE(g:0),ALL_REDUCE(h:0)@2,SEND(>1:x)@2\nALL_REDUCE(g:0),ALL_REDUCE(h:0),RECV(<0:x)"
      "\n");
  const auto names = [&](int queues) {
    CommPolicy policy;
    policy.device_queues = queues;
    const Program program = lower(order, policy);
    const LaneTable lanes = lane_table(program);
    std::string text;
    for (std::uint32_t lane = 0; lane < lanes.count(); ++lane)
      text += lane_name(program, lanes, lane) + ";";
    return text;
  };
  EXPECT_EQ(names(0), "compute;group g;stream 2;compute;group g;group h;from 0;");
  EXPECT_EQ(names(1), "compute;calls;compute;calls;from 0;");
}

}  // namespace calls_test
}  // namespace pipewright
