// Schedules that update inside the step: rows written out by hand from the papers, and what the
// papers promise about weight versions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include "core/base/error.hpp"
#include "core/order/comm_policy.hpp"
#include "core/order/problems.hpp"
#include "core/program/lower.hpp"
#include "planner/schedules/registry.hpp"
#include "sim/engine.hpp"

namespace pipewright::planner {
namespace asynchronous_schedules_test {

using ::testing::HasSubstr;

std::string row(const Order& order, std::size_t rank) {
  std::string text;
  for (const Cell& cell : order.ranks[rank]) text += (text.empty() ? "" : " ") + to_string(cell);
  return text;
}

std::string refused(const char* name, const ScheduleRequest& request) {
  try {
    make_order(name, request);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

ScheduleRequest round_robin(int p, int m, const std::string& replicas) {
  return {p, m, 1, {{"replicas", replicas}}};
}

/// Every request of the three schedules up to 6 ranks and 24 micro-batches.
std::vector<std::pair<std::string, ScheduleRequest>> small_requests() {
  std::vector<std::pair<std::string, ScheduleRequest>> list;
  for (int p = 1; p <= 6; ++p) {
    for (int m = 1; m <= 24; ++m) {
      list.push_back({"pipedream", {p, m, 1, {}}});
      for (int n = 1; n <= m; ++n) {
        list.push_back({"pipedream-2bw", {p, m, 1, {{"accumulate", std::to_string(n)}}}});
      }
      for (const char* replicas : {"2,1", "1,2", "3,1", "2,2", "1,3,1", "2,3,1", "1,4", "4,2",
                                   "3,3", "2,1,2", "6", "1,1,1,1"}) {
        list.push_back({"1f1b-rr", round_robin(p, m, replicas)});
      }
    }
  }
  std::erase_if(list, [](const auto& one) {
    return refusal_of(find_schedule(one.first), one.second).has_value();
  });
  return list;
}

TEST(AsynchronousSchedules, PipedreamStashesTheWeightsOfEachForward) {
  const Order order = make_order("pipedream", {3, 4, 1, {}});
  EXPECT_EQ(row(order, 0), "0F0@0 0F1@0 0F2@0 0B0@0 OPT 0F3@1 0B1@0 OPT 0B2@0 OPT 0B3@1 OPT");
  EXPECT_EQ(row(order, 1), "1F0@0 1F1@0 1B0@0 OPT 1F2@1 1B1@0 OPT 1F3@2 1B2@1 OPT 1B3@2 OPT");
  EXPECT_EQ(row(order, 2), "2F0@0 2B0@0 OPT 2F1@1 2B1@1 OPT 2F2@2 2B2@2 OPT 2F3@3 2B3@3 OPT");
}

/// The weights of group g are those after g - 1 updates; those of the first two are the first ones.
TEST(AsynchronousSchedules, Pipedream2bwIsOneUpdateBehind) {
  const Order order = make_order("pipedream-2bw", {2, 6, 1, {}});  // accumulate = 2
  EXPECT_EQ(row(order, 0),
            "0F0@0 0F1@0 0B0@0 0F2@0 0B1@0 OPT 0F3@0 0B2@0 0F4@1 0B3@0 OPT 0F5@1 0B4@1 0B5@1 OPT");
  EXPECT_EQ(row(order, 1),
            "1F0@0 1B0@0 1F1@0 1B1@0 OPT 1F2@0 1B2@0 1F3@0 1B3@0 OPT 1F4@1 1B4@1 1F5@1 1B5@1 OPT");
}

/// The paper's example: two ranks for the first stage, one for the second.
TEST(AsynchronousSchedules, RoundRobinTakesTurnsOnTheReplicasOfAStage) {
  const Order order = make_order("1f1b-rr", {3, 4, 1, {}});
  EXPECT_EQ(order.stages(), 2);
  EXPECT_EQ(row(order, 0), "0F0@0 0F2@0 0B0@0 0REDUCE_GRAD OPT 0B2@0 0REDUCE_GRAD OPT");
  EXPECT_EQ(row(order, 1), "0F1@0 0F3@0 0B1@0 0REDUCE_GRAD OPT 0B3@0 0REDUCE_GRAD OPT");
  EXPECT_EQ(row(order, 2), "1F0@0 1B0@0 OPT 1F1@1 1B1@1 OPT 1F2@2 1B2@2 OPT 1F3@3 1B3@3 OPT");
}

TEST(AsynchronousSchedules, RoundRobinWithoutReplicasIsPipedream) {
  const Order ours = make_order("1f1b-rr", round_robin(4, 6, "1,1,1,1"));
  const Order pipedream = make_order("pipedream", {4, 6, 1, {}});
  for (std::size_t r = 0; r < 4; ++r) EXPECT_EQ(row(ours, r), row(pipedream, r));
}

/// What a rank's list says about weights, read from start to end.
struct Weights {
  int most_live = 0;       // versions that some pending backward needs, and the newest, at most
  int most_in_flight = 0;  // forwards without their backward
  bool only_known = true;  // no action names a version that is not there yet
  bool same_twice = true;  // F and B of a micro-batch name the same
  int updates = 0;
};

Weights weights_of(const std::vector<Cell>& cells, bool double_buffered) {
  Weights found;
  std::map<int, int> pending;  // micro-batch -> version
  for (const Cell& cell : cells) {
    const Action& a = cell.action;
    const int m = a.micro_batch.value;
    if (a.kind == ActionKind::Opt) ++found.updates;
    if (a.kind == ActionKind::F) {
      pending[m] = a.version;
      found.only_known = found.only_known && a.version <= found.updates;
    }
    std::set<int> live = {found.updates};
    for (const auto& [micro_batch, version] : pending) live.insert(version);
    // 2BW keeps the version before the newest for the forwards to come.
    if (double_buffered && found.updates > 0) live.insert(found.updates - 1);
    found.most_live = std::max(found.most_live, static_cast<int>(live.size()));
    found.most_in_flight = std::max(found.most_in_flight, static_cast<int>(pending.size()));
    if (a.kind == ActionKind::B) {
      found.same_twice = found.same_twice && pending.at(m) == a.version;
      pending.erase(m);
    }
  }
  return found;
}

TEST(AsynchronousSchedules, KeepTheVersionsThatThePapersSay) {
  int made = 0;
  for (const auto& [name, request] : small_requests()) {
    const Order order = make_order(name, request);
    for (std::size_t r = 0; r < order.ranks.size(); ++r) {
      const bool double_buffered = name == "pipedream-2bw";
      const Weights weights = weights_of(order.ranks[r], double_buffered);
      SCOPED_TRACE(name + " p " + std::to_string(request.ranks) + " m " +
                   std::to_string(request.micro_batches) + " rank " + std::to_string(r));
      EXPECT_TRUE(weights.only_known);
      EXPECT_TRUE(weights.same_twice);
      // Weight stashing: a version for each micro-batch in flight, warm-up + 1.
      EXPECT_LE(weights.most_live, double_buffered ? 2 : weights.most_in_flight);
      if (name == "pipedream") {
        EXPECT_EQ(weights.updates, request.micro_batches);
        EXPECT_EQ(weights.most_in_flight,
                  std::min(request.ranks - static_cast<int>(r), request.micro_batches));
      }
    }
    ++made;
  }
  EXPECT_GT(made, 300);
}

TEST(AsynchronousSchedules, RoundRobinComputesAMicroBatchOnItsReplica) {
  const Order order = make_order("1f1b-rr", round_robin(6, 12, "3,2,1"));
  const int first[] = {0, 3, 5}, count[] = {3, 2, 1};
  for (int r = 0; r < 6; ++r) {
    for (const Cell& cell : order.ranks[static_cast<std::size_t>(r)]) {
      if (!is_compute(cell.action.kind)) continue;
      const int s = cell.action.stage.value, k = cell.action.micro_batch.value;
      EXPECT_EQ(r, first[s] + k % count[s]);
      EXPECT_EQ(order.placement.rank_of(cell.action.stage, cell.action.micro_batch), RankId(r));
    }
  }
}

/// The computations alone, without updates between them: whole, and they end, also as messages.
TEST(AsynchronousSchedules, ComputationsEnd) {
  for (const auto& [name, request] : small_requests()) {
    Order order = make_order(name, request);
    EXPECT_TRUE(problems_of(order).empty());
    for (auto& cells : order.ranks) {
      std::erase_if(cells, [](const Cell& cell) { return !is_compute(cell.action.kind); });
    }
    const CostTable costs = CostTable::uniform(order.stages(), {});
    for (const CommPolicy& policy : {comm_policy_preset("ideal"), CommPolicy{}}) {
      EXPECT_EQ(sim::check(lower(order, policy), costs).verdict, Verdict::Ok)
          << name << " " << request.ranks << " " << request.micro_batches << " "
          << (request.parameters.empty() ? "" : request.parameters.begin()->second);
    }
  }
}

TEST(AsynchronousSchedules, RefusalsNameTheWayOut) {
  const auto accumulate = [](const char* n) {
    return refused("pipedream-2bw", {4, 12, 1, {{"accumulate", n}}});
  };
  EXPECT_EQ(accumulate("6"), "");
  EXPECT_THAT(accumulate("5"), HasSubstr("5 does not divide 12; use accumulate=4"));
  EXPECT_THAT(accumulate("3"), HasSubstr("3 < 4; use accumulate=4"));
  EXPECT_THAT(accumulate("x"), HasSubstr("\"x\"; use accumulate=4"));
  EXPECT_THAT(refused("1f1b-rr", {4, 3, 1, {}}), HasSubstr("use 2 or 4 micro-batches"));
  EXPECT_THAT(refused("1f1b-rr", round_robin(4, 6, "2,1")), HasSubstr("together 4"));
  EXPECT_THAT(refused("1f1b-rr", round_robin(4, 6, "2,,2")), HasSubstr("such as 2,1,"));
  EXPECT_THAT(refused("1f1b-rr", round_robin(5, 4, "3,2")), HasSubstr("use 6 micro-batches"));
  EXPECT_THAT(refused("1f1b-rr", round_robin(129, 4, "2,3,5,7,11,13,17,19,23,29")),
              HasSubstr("divide each other"));
}

}  // namespace asynchronous_schedules_test
}  // namespace pipewright::planner
