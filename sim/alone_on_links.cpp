#include "sim/alone_on_links.hpp"

#include <algorithm>
#include <utility>

#include "core/costs/factor.hpp"
#include "sim/links.hpp"

namespace pipewright::sim {
namespace {

const RouteCosts& way_of(const Program& program, const CostTable& costs, const Route& route) {
  return costs.route(route.source, route.destination, program.ranks());
}

std::int64_t alone_on(const RouteCosts& way, const CostTable& costs, std::int64_t bytes,
                      Factor factor) {
  const std::int64_t latency = scaled(way.latency, factor).value;
  const double all = static_cast<double>(bytes) * factor.value();
  if (way.bytes_per_second <= 0 || all <= 0) return latency;
  const double share = share_per_ns(way, costs.links, [](std::uint32_t) { return 1; });
  return latency + ns_to_move(all, share);
}

}  // namespace

std::vector<std::int64_t> alone_ns(const Program& program, const CostTable& costs,
                                   const Durations& durations) {
  std::vector<std::int64_t> ns(durations.route_ns().begin(), durations.route_ns().end());
  for (std::uint32_t r = 0; r < ns.size(); ++r) {
    const RouteCosts& way = way_of(program, costs, program.routes[r]);
    if (!way.links.empty())
      ns[r] = alone_on(way, costs, durations.route_bytes()[r], durations.messages_of(r));
  }
  return ns;
}

bool keep_apart(const Program& program, const CostTable& costs,
                std::span<const std::int64_t> route_ns, const Timeline& timeline) {
  using Span = std::pair<std::int64_t, std::int64_t>;
  std::vector<std::vector<Span>> by_link(costs.links.size());
  std::vector<const RouteCosts*> ways;
  for (const Route& route : program.routes) ways.push_back(&way_of(program, costs, route));
  for (InstructionId id = 0; id < program.code.size(); ++id) {
    const Instruction& in = program.code[id];
    if (!is_send(in.kind)) continue;
    const std::int64_t begin = timeline.moving[id];
    for (const std::uint32_t l : ways[in.route]->links) {
      if (costs.links[l].sharing != Sharing::None)
        by_link[l].emplace_back(begin, begin + route_ns[in.route]);
    }
  }
  return std::ranges::all_of(by_link, [](std::vector<Span>& spans) {
    std::ranges::sort(spans);
    return std::ranges::adjacent_find(spans, [](const Span& one, const Span& next) {
             return next.first <= one.second;
           }) == spans.end();
  });
}

}  // namespace pipewright::sim
