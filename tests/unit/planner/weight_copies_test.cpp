// Copies of the weights that an order keeps, counted by hand.
#include "planner/memory/weight_copies.hpp"

#include <gtest/gtest.h>

namespace pipewright::planner {
namespace weight_copies_test {

TEST(WeightCopies, OneReplicaAndOneVersionIsOne) {
  const Order order = read_order_csv("0F0,0B0\n1F0,1B0\n", "test");
  EXPECT_EQ(live_versions(order), (std::vector<int>{1, 1}));
  EXPECT_EQ(weight_copies(order), 1);
}

/// Rank 0 runs one micro-batch ahead: when m0 has updated, m1 still needs version 0. Rank 1 never
/// has a micro-batch in flight when it updates.
TEST(WeightCopies, AVersionIsKeptUntilItsLastBackward) {
  const Order order = read_order_csv(
      "0F0@0,0F1@0,0B0@0,OPT,0F2@1,0B1@0,OPT,0B2@1,OPT\n"
      "1F0@0,1B0@0,OPT,1F1@1,1B1@1,OPT,1F2@2,1B2@2,OPT\n",
      "test");
  EXPECT_EQ(live_versions(order), (std::vector<int>{2, 1}));
  EXPECT_EQ(weight_copies(order), 1.5);
}

TEST(WeightCopies, TwoReplicasAreTwo) {
  const Order order = read_order_csv("0F0,1F1,1B1,0B0\n0F1,1F0,1B0,0B1\n", "test");
  EXPECT_EQ(weight_copies(order), 2);
}

}  // namespace weight_copies_test
}  // namespace pipewright::planner
