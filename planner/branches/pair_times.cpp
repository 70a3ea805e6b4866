#include "planner/branches/pair_times.hpp"

#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "core/base/error.hpp"
#include "core/program/lower.hpp"
#include "sim/engine.hpp"

namespace pipewright::planner {
namespace {

using StagePair = std::pair<int, int>;  // of the F, of the B

std::set<StagePair> pairs_of(const Order& order) {
  std::set<StagePair> pairs;
  for (const auto& cells : order.ranks) {
    for (const Cell& cell : cells) {
      if (!cell.partner) continue;
      const bool forward_first = cell.action.kind == ActionKind::F;
      const Action &forward = forward_first ? cell.action : *cell.partner,
                   &backward = forward_first ? *cell.partner : cell.action;
      if (forward.kind == ActionKind::F && backward.kind == ActionKind::B)
        pairs.insert({forward.stage.value, backward.stage.value});
    }
  }
  return pairs;
}

/// One rank that has all stages and does the pair.
Order order_of_pair(const StagePair& pair, int stages, const StageParts& inside,
                    const std::vector<MeshAxis>& mesh) {
  Order order;
  const Action forward{ActionKind::F, StageId(pair.first), MicroBatchId(0)},
      backward{ActionKind::B, StageId(pair.second), MicroBatchId(1)};
  order.ranks = {{Cell{forward, backward}}};
  order.micro_batches = 2;
  order.placement = Placement::explicit_stages(
      std::vector<RankId>(static_cast<std::size_t>(stages), RankId(0)), 1);
  order.fragment = true;
  order.mesh = mesh;
  for (const Action& action : {forward, backward}) {
    if (const ActionParts* parts = parts_of(inside.parts, action)) order.parts.push_back(*parts);
  }
  return order;
}

const std::vector<Part>* parts_of(const StageParts& inside, ActionKind kind, std::size_t stage) {
  const ActionParts* parts =
      pipewright::parts_of(inside.parts, {kind, StageId(static_cast<std::int64_t>(stage)), {}});
  return parts != nullptr ? &parts->parts : nullptr;
}

/// By stage, the first one whose action of the kind consists of the same and takes as long.
std::vector<int> first_alike(const StageParts& inside, ActionKind kind, std::size_t stages) {
  const auto alike = [&](std::size_t s, std::size_t t) {
    const auto *one = parts_of(inside, kind, s), *other = parts_of(inside, kind, t);
    if ((one == nullptr) != (other == nullptr) || (one != nullptr && *one != *other)) return false;
    return inside.computations[s].*time_of(kind) == inside.computations[t].*time_of(kind);
  };
  std::vector<int> first;
  for (std::size_t s = 0; s < stages; ++s) {
    std::size_t t = 0;
    while (!alike(s, t)) ++t;
    first.push_back(static_cast<int>(t));
  }
  return first;
}

}  // namespace

CostTable with_pair_times(CostTable table, const Order& order, const StageParts& inside,
                          const std::vector<MeshAxis>& mesh, const CommPolicy& policy) {
  const std::size_t stages = table.stages.size();
  CostTable computations;
  computations.stages = inside.computations;
  table.pairs.assign(stages * stages, Nanoseconds(0));
  const std::vector<int> forward = first_alike(inside, ActionKind::F, stages),
                         backward = first_alike(inside, ActionKind::B, stages);
  // What a pair takes follows from its parts: those of stages that are alike are timed once.
  std::map<std::tuple<int, int, bool>, Nanoseconds> known;
  for (const StagePair& pair : pairs_of(order)) {
    const Order alone = order_of_pair(pair, static_cast<int>(stages), inside, mesh);
    if (alone.parts.empty()) continue;
    const auto f = static_cast<std::size_t>(pair.first), b = static_cast<std::size_t>(pair.second);
    const auto [entry, is_new] = known.try_emplace({forward[f], backward[b], f == b});
    if (is_new) {
      const sim::Result result =
          sim::simulate(lower(alone, policy, {.fragment = true}), computations);
      PIPEWRIGHT_ASSERT(result.finished, "a pair of one rank does not end");
      entry->second = Nanoseconds(result.timeline.makespan_ns);
    }
    table.pairs[f * stages + b] = entry->second;
  }
  return table;
}

}  // namespace pipewright::planner
