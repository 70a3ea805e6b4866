#include "planner/schedules/building.hpp"

#include <charconv>

namespace pipewright::planner {

Order empty_order(const ScheduleRequest& request, std::size_t cells_per_rank) {
  Order order;
  order.placement = Placement::loop(request.ranks, request.chunks);
  order.micro_batches = request.micro_batches;
  order.ranks.resize(static_cast<std::size_t>(request.ranks));
  for (auto& cells : order.ranks) cells.reserve(cells_per_rank);
  return order;
}

std::optional<std::string> refuse_chunks(std::string_view name, const ScheduleRequest& request) {
  if (request.chunks == 1) return std::nullopt;
  return std::string(name) + " puts one stage on each rank, not " + std::to_string(request.chunks) +
         "; use vpp 1, or the schedule interleaved";
}

std::string count_of(int n, std::string_view noun) {
  return std::to_string(n) + " " + std::string(noun) + (n == 1 ? "" : "s");
}

std::optional<int> positive_integer(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1) return std::nullopt;
  return value;
}

}  // namespace pipewright::planner
