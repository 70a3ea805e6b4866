// The sentences of what a search leaves out: each is said of one reason, and read back as it.
#include "planner/base/left_out.hpp"

#include <gtest/gtest.h>

#include <set>

namespace pipewright::planner {
namespace left_out_test {

TEST(LeftOut, EachReasonHasASentenceOfItsOwnThatIsReadBack) {
  std::set<std::string> seen;
  for (int i = 0; i <= static_cast<int>(LeftOut::OverDeviceMemory); ++i) {
    const auto reason = static_cast<LeftOut>(i);
    const std::string sentence = sentence_of(reason);
    EXPECT_FALSE(sentence.empty());
    EXPECT_TRUE(seen.insert(sentence).second) << sentence;
    if (reason != LeftOut::OutsideConstraint) {
      EXPECT_EQ(left_out_of(sentence), reason) << sentence;
    }
  }
  EXPECT_EQ(sentence_of(LeftOut::OverMemory), "over the memory limit");
  EXPECT_EQ(left_out_of("over the memory limits"), std::nullopt);
  EXPECT_EQ(left_out_of(""), std::nullopt);
}

TEST(LeftOut, ASchedulesOwnReasonNamesIt) {
  const LeftOutReason zbv(LeftOut::OutsideConstraint, "zbv");
  EXPECT_EQ(sentence_of(zbv), "outside the constraint of zbv");
  EXPECT_EQ(left_out_of(sentence_of(zbv)), std::nullopt);
  EXPECT_EQ(left_out_of("outside the constraint of "), std::nullopt);
  EXPECT_FALSE(zbv == LeftOutReason(LeftOut::OutsideConstraint, "v-half"));
}

TEST(LeftOut, CountsAddUpAndArePrintedInTheOrderOfTheirSentences) {
  LeftOutCounts counts{{LeftOut::Stuck, 1}, {{LeftOut::OutsideConstraint, "zbv"}, 2}};
  add_counts({{LeftOut::Stuck, 4}, {LeftOut::AsynchronousWithReplicas, 3}}, counts);
  EXPECT_EQ(sum_of(counts), 10);
  const auto sorted = by_sentence(counts);
  const std::vector<std::pair<std::string, std::int64_t>> printed(sorted.begin(), sorted.end());
  EXPECT_EQ(printed, (std::vector<std::pair<std::string, std::int64_t>>{
                         {"asynchronous, with replicas", 3},
                         {"does not end under the policy", 5},
                         {"outside the constraint of zbv", 2}}));
}

}  // namespace left_out_test
}  // namespace pipewright::planner
