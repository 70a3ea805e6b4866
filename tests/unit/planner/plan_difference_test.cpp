#include "planner/plans/difference.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/search/search.hpp"
#include "tests/support/sample_documents.hpp"

namespace pipewright::planner {
namespace plan_difference_test {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(PlanDifferences, OfAPlanAndItselfThereAreNone) {
  EXPECT_THAT(plan_differences(test::sample_plan(), test::sample_plan()), IsEmpty());
}

TEST(PlanDifferences, EachIsAPhraseWithBothSides) {
  const Plan first = test::sample_plan();
  Plan second = first;
  second.predicted.step = Nanoseconds(1500);
  second.micro_batch_size = 8;
  second.stages[0].end_layer = second.stages[1].first_layer = 4;
  second.sharding_stage = 1;
  second.policy = {};
  second.training.learning_rate = 0.5;
  const auto differences = plan_differences(first, second);
  EXPECT_EQ(differences.front(), "step 1.20 us, then 1.50 us (+25.0 %)");
  EXPECT_THAT(differences, Contains("micro-batch size 4, then 8"));
  EXPECT_THAT(differences, Contains("stage 0 layers 0-2, then 0-3"));
  EXPECT_THAT(differences, Contains("stage 1 layers 3-5, then 4-5"));
  EXPECT_THAT(differences, Contains("ZeRO stage 0, then 1"));
  EXPECT_THAT(differences, Contains(HasSubstr("policy: the first has")));
  EXPECT_THAT(differences, Contains(HasSubstr("at /learning_rate training: the first has 0.001")));
}

TEST(PlanDifferences, OfAnEditedOrderIsSaid) {
  const Plan first = test::sample_plan();
  Plan second = first;
  std::swap(second.schedule.order->ranks[1][1], second.schedule.order->ranks[1][2]);
  EXPECT_THAT(plan_differences(first, second), ElementsAre("the orders differ"));
  second.schedule.order.reset();
  EXPECT_THAT(plan_differences(first, second), ElementsAre("order its own, then the schedule's"));
}

}  // namespace plan_difference_test
}  // namespace pipewright::planner
