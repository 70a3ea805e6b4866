// Numbers in the planner's sentences.
#include "planner/base/number_text.hpp"

#include <gtest/gtest.h>

namespace pipewright::planner {
namespace number_text_test {

TEST(PercentApart, NeverSaysThatADifferenceIsNone) {
  EXPECT_EQ(percent_apart(0.0213), "2.1 %");
  EXPECT_EQ(percent_apart(0.001), "0.1 %");
  EXPECT_EQ(percent_apart(0.0009), "less than 0.1 %");
  EXPECT_EQ(percent_apart(1e-9), "less than 0.1 %");
}

}  // namespace number_text_test
}  // namespace pipewright::planner
