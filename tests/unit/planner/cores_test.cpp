// The count of cores that everything asks: the affinity mask's, and a quota's.
#include "planner/base/cores.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

#include "core/cluster/cluster.hpp"
#include "core/model/model.hpp"
#include "planner/costs/cost_model.hpp"

namespace pipewright::planner {
namespace cores_test {

/// On a thread of its own, which may run on one of this thread's cores.
template <class Work>
void pinned(const Work& work) {
  std::thread([&] {
    cpu_set_t all, one;
    ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
    int first = 0;
    while (!CPU_ISSET(first, &all)) ++first;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    work();
  }).join();
}

TEST(Cores, AreThoseOfTheAffinityMask) {
  EXPECT_GE(cores_of_this_machine(), 1);
  pinned([] { EXPECT_EQ(cores_of_this_machine(), 1); });
}

TEST(Cores, OnOneCoreTwoRanksAreTakenToBeTwiceAsSlow) {
  pinned([] {
    const CostModel costs(model_preset("gpt-tiny"), cluster_preset("local-cpu", 2), nullptr);
    EXPECT_EQ(costs.cores(), 1);
    EXPECT_EQ(costs.contention(2), 2);
  });
}

TEST(Cores, AQuotaIsRoundedDownToWholeCores) {
  EXPECT_EQ(cores_of_quota("max 100000\n"), std::nullopt);
  EXPECT_EQ(cores_of_quota("200000 100000\n"), 2);
  EXPECT_EQ(cores_of_quota("150000 100000"), 1);
  EXPECT_EQ(cores_of_quota("50000 100000"), 1);
  for (const char* other : {"", "max", "0 100000", "100000 0", "-1 100000", "x y"})
    EXPECT_EQ(cores_of_quota(other), std::nullopt) << other;
}

}  // namespace cores_test
}  // namespace pipewright::planner
