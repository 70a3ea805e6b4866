#include "planner/schedules/building.hpp"

#include "core/base/large_pages.hpp"
#include "planner/base/number_text.hpp"

namespace pipewright::planner {

Order empty_order(const ScheduleRequest& request, std::size_t cells_per_rank) {
  Order order;
  order.placement = Placement::loop(request.ranks, request.chunks);
  order.micro_batches = request.micro_batches;
  order.ranks.resize(static_cast<std::size_t>(request.ranks));
  for (auto& cells : order.ranks) {
    cells.reserve(cells_per_rank);
    use_large_pages(cells);
  }
  return order;
}

Placement waves(int ranks, int chunks) {
  if (chunks == 2) return Placement::v_shape(ranks);
  std::vector<RankId> rank_of;
  for (int s = 0; s < ranks * chunks; ++s)
    rank_of.emplace_back((s / ranks) % 2 == 0 ? s % ranks : ranks - 1 - s % ranks);
  return Placement::explicit_stages(std::move(rank_of), ranks);
}

std::optional<std::string> refuse_chunks(std::string_view name, const ScheduleRequest& request) {
  if (request.chunks == 1) return std::nullopt;
  return std::string(name) + " puts one stage on each rank, not " + std::to_string(request.chunks) +
         "; use vpp 1, or the schedule interleaved";
}

std::optional<std::string> refuse_all_but_two_chunks(std::string_view name,
                                                     const ScheduleRequest& request) {
  if (request.chunks == 2) return std::nullopt;
  return std::string(name) + " puts two stages on each rank, r and 2p-1-r, not " +
         std::to_string(request.chunks) + "; use vpp 2";
}

std::optional<std::string> refuse_unless_bidirectional(std::string_view name,
                                                       const ScheduleRequest& request) {
  if (request.chunks != 1) {
    return std::string(name) +
           " cuts the model into one stage a rank (and puts one of each replica there), not " +
           std::to_string(request.chunks) + "; use vpp 1";
  }
  if (request.ranks % 2 == 0) return std::nullopt;
  const std::string less = request.ranks == 1 ? "" : std::to_string(request.ranks - 1) + " or ";
  return std::string(name) + " needs an even number of ranks, for its two directions mirror each " +
         "other, not " + std::to_string(request.ranks) + "; use " + less +
         count_of(request.ranks + 1, "rank");
}

}  // namespace pipewright::planner
