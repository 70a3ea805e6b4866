// Paddle's zero-bubble VPP: the job lists, makespans and waits of its own generator.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/order/comm_policy.hpp"
#include "core/program/lower.hpp"
#include "planner/schedules/registry.hpp"
#include "sim/engine.hpp"
#include "tests/golden/golden_orders.hpp"

namespace pipewright {
namespace paddle_zbvpp_test {

using planner::make_order;
using planner::ScheduleRequest;

/// "backward_b1:3" on rank 2 of 4 -> "5I3": even chunks go down the ranks, odd ones up.
std::string action_of(const std::string& job, int rank, int ranks) {
  const auto colon = job.find(':');
  const auto digit = job.find_last_not_of("0123456789", colon - 1) + 1;
  const std::string type = job.substr(0, digit);
  const int chunk = std::stoi(job.substr(digit, colon - digit));
  const int stage = chunk * ranks + (chunk % 2 == 0 ? rank : ranks - 1 - rank);
  const char* kind = type == "forward" ? "F" : type == "backward_b" ? "I" : "W";
  return std::to_string(stage) + kind + job.substr(colon + 1);
}

/// The request for which Paddle's generator was run; program_runtimes are those of F, I, W, the
/// loss and the communication.
ScheduleRequest request_of(const nlohmann::json& entry) {
  ScheduleRequest request;
  request.ranks = entry["pp_degree"];
  request.micro_batches = entry["num_micro_batches"];
  request.chunks = entry["vpp_degree"];
  const auto times = entry["program_runtimes"].get<std::vector<std::int64_t>>();
  const StageCosts each{Nanoseconds(times[0]), Nanoseconds(times[1]), Nanoseconds(times[2]),
                        Nanoseconds(times[1] + times[2]), Nanoseconds(0)};
  request.costs = CostTable::uniform(request.ranks * request.chunks, each, Nanoseconds(times[4]));
  request.parameters["loss"] = std::to_string(times[3]);
  return request;
}

/// The request's costs with the loss in the last stage, as Paddle counts it: F, I and W of it.
CostTable costs_with_loss(const ScheduleRequest& request) {
  CostTable costs = request.costs;
  const Nanoseconds loss(std::stoll(request.parameters.at("loss")));
  StageCosts& last = costs.stages.back();
  last.f += loss;
  last.i += loss;
  last.w += loss;
  return costs;
}

TEST(PaddleZbvpp, JobRowsMakespanAndWaitsOfPaddle) {
  const auto path = golden::golden_dir() / "paddle/schedules.json";
  PIPEWRIGHT_NEEDS_GOLDEN(path);
  int compared = 0;
  const auto document = nlohmann::json::parse(golden::text_of(path));
  for (const auto& entry : document["zbvpp"]) {
    const ScheduleRequest request = request_of(entry);
    SCOPED_TRACE(std::to_string(request.ranks));
    const Order order = make_order("ZBVPP", request);
    const auto rows = golden::rows_of(order);
    for (int r = 0; r < request.ranks; ++r) {
      std::string row;
      for (const auto& job : entry["stages"][static_cast<std::size_t>(r)])
        row += (row.empty() ? "" : ",") + action_of(job, r, request.ranks);
      EXPECT_EQ(rows[static_cast<std::size_t>(r)], row) << "rank " << r;
    }
    const CostTable costs = costs_with_loss(request);
    const Program program = lower(order, comm_policy_preset("ideal"));
    const sim::Result result = sim::simulate(program, costs);
    const Figures figures = figures_of(program, result.timeline, costs);
    // Paddle's generator waits for one communication before the very first job.
    EXPECT_EQ(figures.makespan_ns + costs.every_route.latency.value,
              entry["makespan"].get<std::int64_t>());
    std::int64_t wait = 0;
    for (const RankFigures& rank : figures.ranks)
      wait = std::max(wait, rank.span_ns - rank.busy_ns);
    EXPECT_EQ(wait, entry["max_stage_bubble"].get<std::int64_t>());
    ++compared;
  }
  EXPECT_EQ(compared, 3);
}

/// Found by a second reading of Paddle's rule at random sizes: only the ways that keep the waits
/// before an I and on the rank of the loss end as early as this.
TEST(PaddleZbvpp, TriesEveryWayThatCanDiffer) {
  ScheduleRequest request{4, 4, 4, {{"loss", "21"}}};
  const StageCosts each{Nanoseconds(167), Nanoseconds(138), Nanoseconds(108), Nanoseconds(246), {}};
  request.costs = CostTable::uniform(16, each);
  const CostTable costs = costs_with_loss(request);
  const Program program = lower(make_order("zbvpp", request), comm_policy_preset("ideal"));
  EXPECT_EQ(sim::simulate(program, costs).timeline.makespan_ns, 8149);
}

TEST(PaddleZbvpp, TheLossMayAsWellBeInTheCosts) {
  ScheduleRequest request{4, 4, 2, {{"loss", "34ns"}}};
  request.costs = CostTable::uniform(
      8, {Nanoseconds(61), Nanoseconds(72), Nanoseconds(71), Nanoseconds(143), {}}, Nanoseconds(3));
  ScheduleRequest other = request;
  other.parameters.clear();
  other.costs.stages.back() = {
      Nanoseconds(95), Nanoseconds(106), Nanoseconds(105), Nanoseconds(211), {}};
  EXPECT_EQ(golden::rows_of(make_order("zbvpp", request)),
            golden::rows_of(make_order("zbvpp", other)));
}

}  // namespace paddle_zbvpp_test
}  // namespace pipewright
