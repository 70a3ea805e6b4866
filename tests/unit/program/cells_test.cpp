#include "core/order/cells.hpp"

#include <gtest/gtest.h>

namespace pipewright {
namespace cells_test {

TEST(Cells, ABatchIsOneCellOfTextAndSeveralOfTheOrder) {
  CallTable calls;
  const auto cells = parse_cells(" ( 0SEND_F0 ;2RECV_F0; 2SEND_B1 ) BATCH_P2P ", calls);
  ASSERT_EQ(cells.size(), 3U);
  EXPECT_TRUE(cells[0].batched && cells[1].batched);
  EXPECT_FALSE(cells[2].batched);
  EXPECT_EQ(to_string(cells[1]), "2RECV_F0");
  EXPECT_EQ(written_end(cells, 0), 3U);
  EXPECT_EQ(to_string(std::span<const Cell>(cells), {}), "(0SEND_F0;2RECV_F0;2SEND_B1)BATCH_P2P");
  EXPECT_EQ(parse_cells("2F0", calls).size(), 1U);
  for (const char* text :
       {"()BATCH_P2P", "(0F0;1SEND_F0)BATCH_P2P", "(0SEND_F0;)BATCH_P2P",
        "(0SEND_F0;2RECV_F0)BATCH", "(0SEND_F0;2RECV_F0", "(ALL_REDUCE(g:0);0SEND_F0)BATCH_P2P",
        "(0SEND_F0;1RECV_B0)BATCH_P2P@2"}) {
    EXPECT_TRUE(parse_cells(text, calls).empty()) << text;
  }
}

std::string through_cells(const std::string& text) {
  CallTable calls;
  const auto cells = parse_cells(text, calls);
  return cells.empty() ? "" : to_string(std::span<const Cell>(cells), calls.take());
}

TEST(Cells, TextOfCallsRoundTrips) {
  for (const char* text :
       {"ALL_REDUCE(tp:7)", "ALL_GATHER(tp)", "REDUCE_SCATTER(dp:grad/3)@2",
        "ALL_TO_ALL(ep:0:4x1024:bfloat16)@comm", "BROADCAST(w::scalar:int64)", "NEW_GROUP(ep.0)",
        "HOST_SYNC", "HOST_SYNC@2", "SEND(>2:skip:4x1024:bfloat16)", "RECV(<0)",
        "RECV(<0:x::int16)@1", "SEND(>1:x:0)", "ALL_REDUCE(tp:0::my_type)",
        "(SEND(>1:x);0RECV_B0;RECV(<2:y:4x8:float32))BATCH_P2P"}) {
    EXPECT_EQ(through_cells(text), text);
  }
  EXPECT_EQ(through_cells(" SEND( >2 : skip : 4x8 : bf16 ) @ 1 "), "SEND(>2:skip:4x8:bfloat16)@1");
  EXPECT_EQ(through_cells("ALL_REDUCE(tp:a::)"), "");
}

TEST(Cells, RefuseWhatIsNoCall) {
  for (const char* text : {"ALL_REDUCE",
                           "ALL_REDUCE()",
                           "ALL_REDUCE(:0)",
                           "ALL_REDUCE(tp:0",
                           "ALL_REDUCE(tp:0)@",
                           "ALL_REDUCE(tp:0:4y8)",
                           "ALL_REDUCE(tp:0:4x:float32)",
                           "ALL_REDUCE(tp:0:4x8:float32:more)",
                           "ALL_REDUCE(tp:0:-1)",
                           "NEW_GROUP",
                           "NEW_GROUP(ep:1)",
                           "NEW_GROUP(ep)@1",
                           "HOST_SYNC()",
                           "SEND(2:x)",
                           "SEND(<2:x)",
                           "RECV(>2:x)",
                           "SEND(>x)",
                           "SEND(>-1:x)",
                           "SEND(>99999999999:x)",
                           "0ALL_REDUCE(tp:0)",
                           "all_reduce(tp:0)",
                           "REDUCE(tp:0)",
                           "(ALL_REDUCE(tp:0);0F0)OVERLAP_F_B"}) {
    EXPECT_EQ(through_cells(text), "") << text;
  }
}

}  // namespace cells_test
}  // namespace pipewright
