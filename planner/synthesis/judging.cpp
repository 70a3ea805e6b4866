#include "planner/synthesis/judging.hpp"

#include <algorithm>

#include "planner/synthesis/idle_slots.hpp"

namespace pipewright::planner {

std::vector<Bytes> limits_between_actions(const std::vector<Bytes>& limits,
                                          std::span<const StagePlan> stages, int ranks,
                                          const CostTable& costs) {
  if (limits.empty() || costs.memory.empty()) return limits;
  std::vector<Bytes> left;
  for (int r = 0; r < ranks; ++r) {
    Bytes more;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      if (stages[s].rank != RankId(r)) continue;
      const StageMemory& memory = costs.memory[s];
      more = std::max({more, memory.in_f - memory.f, memory.in_i, memory.in_w, memory.in_b});
    }
    const Bytes limit = limits[limits.size() == 1 ? 0 : static_cast<std::size_t>(r)];
    // 0 would be no limit at all.
    left.push_back(limit.value > 0 ? std::max(Bytes(1), limit - more) : limit);
  }
  return left;
}

std::vector<Order> orders_to_judge(const SynthesisRequest& request, const SynthesisResult& found) {
  std::vector<Order> orders;
  if (found.order) orders.push_back(*found.order);
  orders.insert(orders.end(), found.runners_up.begin(), found.runners_up.end());
  for (const auto& [name, order] : request.starts) orders.push_back(order);
  const std::size_t plain = orders.size();
  for (std::size_t i = 0; i < plain; ++i) orders.push_back(with_idle_slots(request, orders[i]));
  return orders;
}

}  // namespace pipewright::planner
