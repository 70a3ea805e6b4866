#include "planner/estimate/cost_scales.hpp"

namespace pipewright::planner {

Machine scaled(Machine machine, const CostScales& scales) {
  for (NodeRates& node : machine.nodes) {
    node.inside_bytes_per_second /= scales.messages;
    node.network_bytes_per_second /= scales.messages;
  }
  return machine;
}

FrameworkTraits scaled(FrameworkTraits framework, const CostScales& scales) {
  framework.launch_seconds *= scales.launches;
  return framework;
}

}  // namespace pipewright::planner
