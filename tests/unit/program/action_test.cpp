#include "core/order/action.hpp"

#include <gtest/gtest.h>

namespace pipewright {
namespace action_test {

TEST(Action, TextRoundTrips) {
  for (const char* text :
       {"2F0", "0I13", "1W3", "4B7", "0SEND_F0", "1RECV_F0", "1SEND_B0", "0RECV_B0", "1UNSHARD",
        "3RESHARD", "0REDUCE_GRAD", "OPT", "REDUCE_NORM", "2F0@3", "0WAIT_SEND_F3", "1WAIT_SEND_B0",
        "0WAIT_REDUCE_GRAD", "(0F7;7B3)OVERLAP_F_B"}) {
    const auto cell = parse_cell(text);
    ASSERT_TRUE(cell) << text;
    EXPECT_EQ(to_string(*cell), text);
  }
}

TEST(Action, SpacesAroundEveryPartAreAllowed) {
  const auto pair = parse_cell("  ( 0F7 ; 7B3 ) OVERLAP_F_B ");
  ASSERT_TRUE(pair && pair->partner);
  EXPECT_EQ(to_string(*pair), "(0F7;7B3)OVERLAP_F_B");
  EXPECT_EQ(to_string(*parse_cell(" 2F0\t")), "2F0");
}

TEST(Action, RefusesWhatIsNotAnAction) {
  for (const char* text : {"",
                           "F0",
                           "2F",
                           "2X0",
                           "-1F0",
                           "2F-1",
                           "2F0 1F0",
                           "2f0",
                           "1UNSHARD0",
                           "99999999999F0",
                           "2F0@",
                           "(0F7;7B3)",
                           "(0F7)OVERLAP_F_B",
                           "(0SEND_F7;7B3)OVERLAP_F_B",
                           "(0F7;7B3)OVERLAP",
                           "OPT0",
                           "0OPT",
                           "0REDUCE_NORM",
                           "0WAIT_SEND_F",
                           "0WAIT_RECV_F0",
                           "0WAIT_SEND_F0@1",
                           "0WAIT_REDUCE_GRAD0",
                           "(0F7;0WAIT_SEND_F0)OVERLAP_F_B"}) {
    EXPECT_FALSE(parse_cell(text)) << text;
  }
}

}  // namespace action_test
}  // namespace pipewright
