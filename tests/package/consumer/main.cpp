// A one-forward-one-backward order of two ranks, lowered and simulated by an installed Pipewright.
// The schedule's own paper gives the answer: (m + p - 1) (F + B) = 3 * 3 ms.
#include <cstdio>
#include <string>

#include "core/costs/costs.hpp"
#include "core/order/order.hpp"
#include "core/program/lower.hpp"
#include "sim/engine.hpp"

int main() {
  using pipewright::Nanoseconds;

  const std::string csv =
      "0F0,0F1,0B0,0B1\n"
      "1F0,1B0,1F1,1B1\n";
  const pipewright::Order order = pipewright::read_order_csv(csv, "1f1b.csv");
  const pipewright::CommPolicy& policy = pipewright::comm_policy_preset("ideal");
  const pipewright::Program program = pipewright::lower(order, policy);

  const pipewright::StageCosts each{.f = Nanoseconds(1'000'000),
                                    .i = Nanoseconds(1'000'000),
                                    .w = Nanoseconds(1'000'000),
                                    .b = Nanoseconds(2'000'000),
                                    .opt = Nanoseconds(0)};
  const pipewright::CostTable costs = pipewright::CostTable::uniform(order.stages(), each);

  const pipewright::sim::Result result = pipewright::sim::simulate(program, costs);
  std::printf("finished: %d, makespan: %lld ns\n", result.finished,
              static_cast<long long>(result.timeline.makespan_ns));
  return result.finished && result.timeline.makespan_ns == 9'000'000 ? 0 : 1;
}
