// What the deadlock analysis costs beside simulating the same Program, in the same run: what is
// wrong with the order before it is run, and the verdict under a plan's default policy. Prints one
// row a case; medians of several runs.
//   check_speed [largest number of instructions, default 1000000]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "core/order/problems.hpp"
#include "core/program/lower.hpp"
#include "planner/schedules/registry.hpp"
#include "sim/engine.hpp"
#include "tests/bench/median.hpp"

namespace pipewright {
namespace {

void measure(const char* schedule, int p, int m, const CommPolicy& policy) {
  const planner::Schedule& entry = planner::find_schedule(schedule);
  const Order order = planner::make_order(schedule, {p, m, entry.default_chunks, {}});
  const Program program = lower(order, policy);
  const CostTable costs = CostTable::uniform(
      order.stages(),
      {.f = Nanoseconds(10), .i = Nanoseconds(11), .w = Nanoseconds(9), .b = Nanoseconds(20)},
      Nanoseconds(1));
  const double problems = median_seconds(5, [&] { problems_of(order); });
  WaitReport report;
  const double check = median_seconds(5, [&] { report = sim::check(program, costs); });
  const double simulate = median_seconds(5, [&] { sim::simulate(program, costs); });
  std::printf("%-12s %4d %6d %9zu %10s %9.2f %9.2f %9.2f %8.2f\n", schedule, p, m,
              program.code.size(), std::string(to_string(report.verdict)).c_str(), problems * 1e3,
              check * 1e3, simulate * 1e3, check / simulate);
  std::fflush(stdout);
}

}  // namespace
}  // namespace pipewright

int main(int argc, char** argv) {
  using namespace pipewright;
  const double most = argc > 1 ? std::atof(argv[1]) : 1e6;
  std::printf("ms; ratio = check / simulate\n%-12s %4s %6s %9s %10s %9s %9s %9s %8s\n", "schedule",
              "p", "m", "code", "verdict", "problems", "check", "simulate", "ratio");
  for (const double size : {1e4, 1e5, 1e6}) {
    if (size > most) break;
    for (const char* schedule : {"1f1b", "zbv", "chimera", "pipedream"}) {
      const int p = 16, m = static_cast<int>(size / (8.0 * p)) / p * p;
      measure(schedule, p, std::max(2 * p, m), CommPolicy{});
    }
    measure("1f1b", 16, static_cast<int>(size / 96), comm_policy_preset("nccl-one-stream"));
  }
  return 0;
}
