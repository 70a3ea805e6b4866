#include "sim/durations.hpp"

#include "core/costs/time_rules.hpp"
#include "core/order/stages_by_rank.hpp"

namespace pipewright::sim {

Durations::Durations(const Program& program, const CostTable& costs, const OwnTimes& own)
    : program_(program),
      costs_(costs),
      own_(own),
      by_action_(costs.actions != nullptr || !own.compute_ns.empty()),
      stages_(static_cast<std::size_t>(program.stages)) {
  by_kind_.resize(static_cast<std::size_t>(kActionKinds) * stages_);
  for (int kind = 0; kind < kActionKinds; ++kind) {
    for (std::size_t stage = 0; stage < stages_; ++stage) {
      by_kind_[static_cast<std::size_t>(kind) * stages_ + stage] =
          costs.stage_time(static_cast<ActionKind>(kind), StageId(static_cast<std::int64_t>(stage)))
              .value;
    }
  }
  int rank = 0;
  for (const auto& stages : stages_by_rank(program.placement, program.micro_batches))
    update_ns_.push_back(costs.update_time(RankId(rank++), stages).value);
  for (std::uint32_t r = 0; r < program.routes.size(); ++r) {
    route_ns_.push_back(
        transfer_time(costs, program.routes[r], program.ranks(), messages_of(r)).value);
  }
  collective_ns_.assign(own.collective_ns.begin(), own.collective_ns.end());
  if (collective_ns_.empty()) {
    for (const Collective& collective : program.collectives)
      collective_ns_.push_back(costs.collective_time(collective, program.ranks()).value);
  }
  route_bytes_ = costs.message_bytes(program);
}

}  // namespace pipewright::sim
