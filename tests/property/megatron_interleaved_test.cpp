// The lists of Megatron-LM's interleaved loop: the library and the slow interpreter agree on their
// verdicts, cycles, ends and figures, over every channel that carries them.
#include <gtest/gtest.h>

#include "planner/export/megatron_interleaved.hpp"
#include "planner/schedules/registry.hpp"
#include "tests/property/two_readings.hpp"
#include "tests/reference/random_order.hpp"

namespace pipewright::tests {
namespace megatron_interleaved_test {

reference::Policy policy_of(const CommPolicy& policy, bool first_use) {
  reference::Policy same;  // stream, early, rendezvous
  same.channel = policy.channel == Channel::Rank   ? reference::Channel::Rank
                 : policy.channel == Channel::Pair ? reference::Channel::Pair
                                                   : reference::Channel::Edge;
  if (policy.batches == Batches::Joined) same.batches = reference::Batches::Joined;
  same.first_use = first_use;
  return same;
}

/// Sizes with a group of p, with a larger one, with a smaller last one, and with one that just fits
/// into a rank's warm-up.
struct Sizes {
  int ranks, chunks, micro_batches, group;
};
constexpr Sizes kSizes[] = {{2, 2, 4, 2}, {2, 3, 3, 3}, {3, 2, 3, 3}, {3, 2, 4, 4},
                            {3, 2, 7, 4}, {4, 2, 4, 4}, {4, 3, 5, 5}, {5, 2, 6, 6}};

TEST(MegatronLists, TheLibraryAgreesWithTheReference) {
  int ended = 0, stuck = 0;
  std::uint64_t seed = 0;
  for (const auto& [ranks, chunks, micro_batches, group] : kSizes) {
    const Order order = planner::make_order(
        "interleaved", {ranks, micro_batches, chunks, {{"group", std::to_string(group)}}});
    for (const std::string& name : planner::megatron_exchange_names()) {
      const auto exchange = planner::parse_megatron_exchange(name);
      Case c;
      c.order = reference::parse_order(
          write_order_csv(planner::megatron_interleaved_list(order, exchange)));
      reference::Dice dice(++seed);
      c.costs = reference::random_costs(dice, c.order);
      for (const auto& [groups, policy] : planner::megatron_interleaved_policies(exchange, ranks)) {
        for (const bool first_use : {false, true}) {
          c.policy = policy_of(policy, first_use);
          const std::string library = of_library(c);
          ASSERT_EQ(library, of_reference(c)) << name << " " << groups << "\n" << shown(c);
          (library.find(" never ends") == std::string::npos ? ended : stuck) += 1;
        }
      }
    }
  }
  EXPECT_GT(ended, 90);
  EXPECT_GT(stuck, 10);
}

}  // namespace megatron_interleaved_test
}  // namespace pipewright::tests
