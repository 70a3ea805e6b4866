#include "exec/devices/cuda/slow_link.hpp"

#include <string>

#include "core/base/error.hpp"

namespace pipewright::exec::cuda {

SlowLink parse_slow_link(std::string_view text) {
  constexpr std::string_view kFlag = "--slow-link";
  const std::size_t plus = text.find('+');
  SlowLink link;
  link.bytes_per_second = parse_bandwidth(text.substr(0, plus), kFlag);
  if (link.bytes_per_second <= 0)
    throw InputError(std::string(kFlag) + ": expected a bandwidth of more than 0, such as 25GB/s");
  if (plus != std::string_view::npos) link.latency = parse_duration(text.substr(plus + 1), kFlag);
  return link;
}

std::vector<std::int64_t> transfer_ns(const Program& program, const CostTable& costs,
                                      const SlowLink& link) {
  CostTable slow = costs;
  slow.every_route = {link.latency, link.bytes_per_second, {}};
  slow.route_of_edge.clear();
  std::vector<std::int64_t> least;
  for (const Route& route : program.routes)
    least.push_back(slow.transfer_time(route, program.ranks()).value);
  return least;
}

}  // namespace pipewright::exec::cuda
