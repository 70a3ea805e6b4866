// The registry's schedules where no closed form holds (fewer micro-batches than ranks, stages that
// differ): the library's lists, ends and figures are those of the slow interpreter.
#include <gtest/gtest.h>

#include "core/order/order.hpp"
#include "planner/schedules/registry.hpp"
#include "tests/property/two_readings.hpp"
#include "tests/reference/interpreter.hpp"
#include "tests/reference/random_order.hpp"

namespace pipewright::tests {
namespace schedules_test {

class RegistrySchedules : public testing::TestWithParam<std::string> {};

TEST_P(RegistrySchedules, UnequalStagesAgreeWithTheInterpreter) {
  int compared = 0;
  for (int p = 1; p <= 5; ++p) {
    for (int m = 1; m <= 8; ++m) {
      for (int v = 1; v <= 3; ++v) {
        const planner::ScheduleRequest request{
            .ranks = p, .micro_batches = m, .chunks = v, .parameters = {}};
        if (planner::find_schedule(GetParam()).refusal(request)) continue;
        Case c;
        c.order = reference::parse_order(write_order_csv(planner::make_order(GetParam(), request)));
        reference::Dice dice(static_cast<std::uint64_t>(100 * p + 10 * m + v));
        c.costs = reference::random_costs(dice, c.order);
        for (const bool ideal : {true, false}) {
          c.policy = {};  // a plan's default
          if (ideal) {
            c.policy.channel = reference::Channel::Tag;
            c.policy.post = reference::Post::AtStart;
            c.policy.forward.credit = c.policy.backward.credit =
                reference::Protocol::Credit::Unlimited;
          }
          ASSERT_EQ(of_library(c), of_reference(c))
              << GetParam() << " p=" << p << " m=" << m << " v=" << v << "\n"
              << shown(c);
          ++compared;
        }
      }
    }
  }
  EXPECT_GT(compared, 5);
}

std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (const planner::Schedule& schedule : planner::schedules()) {
    if (!schedule.traits.searched) names.emplace_back(schedule.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, RegistrySchedules, testing::ValuesIn(all_names()),
                         [](const auto& given) {
                           std::string name = given.param;
                           for (char& letter : name) {
                             if (letter == '-') letter = '_';
                           }
                           return name;
                         });

}  // namespace schedules_test
}  // namespace pipewright::tests
