// What lower() takes of one order, by policy and by what the order says itself: registered
// schedules, transfers written out, receives deferred, Megatron-LM's order of transfers, replicas
// that update. A row a shape, nanoseconds an action with its transfers, medians of five.
//   lower_speed [actions, default 1000000]
#include <cstdio>
#include <cstdlib>

#include "core/program/lower.hpp"
#include "planner/plans/data_parallel.hpp"
#include "planner/schedules/registry.hpp"
#include "tests/bench/median.hpp"

namespace pipewright {
namespace {

void measure(const char* schedule, int p, int v, int m) {
  const Order order = planner::make_order(
      schedule, {.ranks = p, .micro_batches = m, .chunks = v, .parameters = {}});
  const Order written = with_transfers(order), replicated = planner::replicate(order, 2);
  CommPolicy deferred, even_odd;
  deferred.post = Post::Deferred;
  even_odd.run_order = RunOrder::EvenOdd;
  const CommPolicy ideal = comm_policy_preset("ideal"), queued;
  const LowerOptions updates{.optimizer = true, .sharded = true, .tied = {}};
  const double actions = 2.0 * p * v * m;
  const auto ns = [&](const Order& what, const CommPolicy& policy, const LowerOptions& options,
                      int replicas) {
    Program program;
    const double seconds = median_seconds(5, [&] { program = lower(what, policy, options); });
    return seconds / actions / replicas * 1e9;
  };
  std::printf("%-12s %5d %2d %8d %10.1f %8.1f %8.1f %8.1f %8.1f\n", schedule, p, v, m,
              ns(order, ideal, {}, 1), ns(written, queued, {}, 1), ns(order, deferred, {}, 1),
              ns(order, even_odd, {}, 1), ns(replicated, queued, updates, 2));
  std::fflush(stdout);
}

}  // namespace
}  // namespace pipewright

int main(int argc, char** argv) {
  const double actions = argc > 1 ? std::atof(argv[1]) : 1e6;
  std::printf("ns per action with its transfers\n%-12s %5s %2s %8s %10s %8s %8s %8s %8s\n",
              "schedule", "p", "v", "m", "registered", "written", "deferred", "even-odd",
              "replicas");
  for (const int p : {8, 64, 1024}) {
    const int m = static_cast<int>(actions / (2.0 * p));
    if (m >= 4) pipewright::measure("1f1b", p, 1, m);
    const int rounds = m / 2 / p;
    if (rounds >= 1) pipewright::measure("interleaved", p, 2, rounds * p);
  }
  return 0;
}
