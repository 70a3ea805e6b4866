#include "planner/plans/data_parallel.hpp"

#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/order/versions.hpp"

namespace pipewright::planner {
namespace {

Action shifted(Action action, int micro_batches) {
  if (has_micro_batch(action.kind))
    action.micro_batch = MicroBatchId(action.micro_batch.value + micro_batches);
  return action;
}

Placement placement_of(const Order& pipeline, int replicas) {
  std::vector<std::vector<RankId>> rank_of(static_cast<std::size_t>(pipeline.stages()));
  for (int s = 0; s < pipeline.stages(); ++s) {
    auto& ranks = rank_of[static_cast<std::size_t>(s)];
    for (int d = 0; d < replicas; ++d) {
      for (int m = 0; m < pipeline.micro_batches; ++m) {
        const RankId home = pipeline.placement.rank_of(StageId(s), MicroBatchId(m));
        ranks.emplace_back(d * pipeline.rank_count() + home.value);
      }
    }
  }
  return Placement::explicit_micro_batches(std::move(rank_of), replicas * pipeline.rank_count());
}

}  // namespace

Order replicate(const Order& pipeline, int replicas) {
  if (replicas == 1) return pipeline;
  if (names_versions(pipeline)) {
    throw InputError(
        "the schedule is asynchronous: each of its updates would have to be reduced over the "
        "replicas; use a synchronous one, or 1 for dp_degree");
  }
  if (std::int64_t{pipeline.micro_batches} * replicas > kMostMicroBatchesOfOrder) {
    throw InputError(std::to_string(replicas) + " replicas with " +
                     std::to_string(pipeline.micro_batches) +
                     " micro-batches each are more than 16,777,216 in all; use fewer");
  }
  Order all;
  all.micro_batches = pipeline.micro_batches * replicas;
  all.calls = pipeline.calls;
  all.placement = placement_of(pipeline, replicas);
  for (int d = 0; d < replicas; ++d) {
    for (const auto& cells : pipeline.ranks) {
      auto& row = all.ranks.emplace_back(cells);
      for (Cell& cell : row) {
        cell.action = shifted(cell.action, d * pipeline.micro_batches);
        if (cell.partner) cell.partner = shifted(*cell.partner, d * pipeline.micro_batches);
      }
    }
  }
  return all;
}

}  // namespace pipewright::planner
