#include "tools/input/expanded.hpp"

#include "core/costs/device_costs.hpp"
#include "core/order/devices.hpp"
#include "core/program/lower.hpp"

namespace pipewright::tools {
namespace {

/// The update of a plan in which one replica stands for all has what they exchange in its time.
void let_updates_exchange(const Plan& plan, CostTable& costs) {
  if (plan.program_replicas() >= plan.replicas()) return;
  costs.parameter_bytes.clear();
  for (StageCosts& stage : costs.stages) stage.reduce = stage.unshard = Nanoseconds(0);
}

}  // namespace

Flag expand_flag() {
  return {.group = "What to read",
          .name = "--expand",
          .help = "every device as a rank, where ranks stand for several"};
}

int expand_if_asked(const Arguments& arguments, Subject& subject) {
  const int devices = devices_of_rank(subject.order.mesh);
  if (!arguments.has("--expand") || devices == 1) return 1;
  if (const Plan* plan = subject.plan()) let_updates_exchange(*plan, subject.costs);
  subject.costs = costs_of_devices(std::move(subject.costs), devices);
  subject.order = written_out(subject.order);
  subject.program = lower(subject.order, subject.program.policy, subject.lowering);
  subject.title += " devices=" + std::to_string(subject.program.ranks());
  return devices;
}

}  // namespace pipewright::tools
