#include "traces/analysis/message_parts.hpp"

#include <algorithm>
#include <limits>

namespace pipewright::traces {

MessageTimes::MessageTimes(const Program& program, const Timeline& timeline, const CostTable& costs)
    : program_(program), timeline_(timeline), bandwidth_ns_(program.routes.size(), 0) {
  if (!costs.stages.empty()) {
    for (std::size_t r = 0; r < program.routes.size(); ++r) {
      const Route& route = program.routes[r];
      const std::int64_t alone = costs.transfer_time(route, program.ranks()).value;
      const std::int64_t latency =
          costs.route(route.source, route.destination, program.ranks()).latency.value;
      latency_ns_.push_back(std::min(latency, alone));
      bandwidth_ns_[r] = alone - latency_ns_.back();
    }
    return;
  }
  latency_ns_.assign(program.routes.size(), std::numeric_limits<std::int64_t>::max());
  for (InstructionId id = 0; id < program.code.size(); ++id) {
    const Instruction& in = program.code[id];
    if (!is_recv(in.kind) || in.route == kNoRoute || timeline.end[id] == kNotEnded) continue;
    latency_ns_[in.route] = std::min(latency_ns_[in.route], std::max<std::int64_t>(0, whole(id)));
  }
}

MessageParts MessageTimes::of(InstructionId transfer_end) const {
  const std::uint32_t route = program_.code[transfer_end].route;
  const std::int64_t all = std::max<std::int64_t>(0, whole(transfer_end));
  if (route == kNoRoute) return {.queue_ns = all};
  MessageParts parts;
  parts.latency_ns = std::min(all, latency_ns_[route]);
  parts.bandwidth_ns = std::min(all - parts.latency_ns, bandwidth_ns_[route]);
  parts.queue_ns = all - parts.latency_ns - parts.bandwidth_ns;
  return parts;
}

}  // namespace pipewright::traces
