#include "planner/graph_partition/pipedream.hpp"

#include <algorithm>
#include <limits>

#include "core/base/error.hpp"
#include "planner/base/index.hpp"

namespace pipewright::planner {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// One value for each first and last state of a range.
using RangeTable = std::vector<std::vector<double>>;

/// The best ways to hold the states from one on: [last state][machines].
struct Row {
  std::vector<std::vector<double>> slowest;
  std::vector<std::vector<std::pair<int, int>>> cut;  // last state before the last stage, replicas
};

struct Level {
  const PipeDreamProfile* profile = nullptr;
  NetworkLevel network;
  int inner = 1;  // machines of the level below
  bool straight = false;
  RangeTable compute;  // of a range on one group of the level below

  int states() const { return static_cast<int>(profile->compute_until.size()); }
};

double parameters(const PipeDreamProfile& profile, int first, int last) {
  return profile.parameters_until[at(last)] -
         (first > 0 ? profile.parameters_until[at(first - 1)] : 0);
}

/// Replicas share the work and then exchange the gradients of their parameters.
double replicated(const Level& level, int first, int last, int replicas, double share) {
  const double exchange = 4.0 * (replicas - 1) * parameters(*level.profile, first, last) /
                          (level.network.bytes_per_second * replicas) / share;
  return (level.compute[at(first)][at(last)] + exchange) / replicas;
}

double sending(const Level& level, int state, int replicas) {
  return 2 * level.profile->output_bytes[at(state)] / (level.network.bytes_per_second * replicas);
}

/// Improves the row's value for (last, machines) by a last stage that begins after `before`.
void try_cut(const Level& level, Row& row, int before, int last, int machines) {
  const int most = level.straight ? 1 : machines - 1;
  for (int replicas = 1; replicas <= std::min(most, machines - 1); ++replicas) {
    double slowest = std::max(row.slowest[at(before)][at(machines - replicas)],
                              replicated(level, before + 1, last, replicas, 1));
    slowest = std::max(slowest, sending(level, before, replicas));
    if (last + 1 < level.states()) slowest = std::max(slowest, sending(level, last, replicas));
    if (slowest >= row.slowest[at(last)][at(machines)]) continue;
    row.slowest[at(last)][at(machines)] = slowest;
    row.cut[at(last)][at(machines)] = {before, replicas};
  }
}

Row best_from(const Level& level, int first) {
  const int states = level.states(), machines = level.network.machines;
  Row row;
  row.slowest.assign(at(states), std::vector<double>(at(machines) + 1, kInfinite));
  row.cut.assign(at(states), std::vector<std::pair<int, int>>(at(machines) + 1, {-1, 0}));
  for (int last = first; last < states; ++last) {
    for (int used = 1; used <= machines; ++used) {
      if (used == 1 || !level.straight) {
        row.slowest[at(last)][at(used)] = replicated(level, first, last, used, level.inner);
        row.cut[at(last)][at(used)] = {-1, used};
      }
      for (int before = first; before < last; ++before) {
        if (!precedes(*level.profile, at(before), at(last))) continue;
        if (first > 0 && precedes(*level.profile, at(before), at(first - 1))) continue;
        try_cut(level, row, before, last, used);
      }
    }
  }
  return row;
}

RangeTable compute_of(const PipeDreamProfile& profile) {
  const std::size_t states = profile.compute_until.size();
  RangeTable table(states, std::vector<double>(states, kInfinite));
  for (std::size_t first = 0; first < states; ++first) {
    for (std::size_t last = first; last < states; ++last) {
      table[first][last] =
          profile.compute_until[last] - (first > 0 ? profile.compute_until[first - 1] : 0);
    }
  }
  return table;
}

/// What a range takes on all machines of this level.
RangeTable compute_on(const Level& level) {
  RangeTable table = level.compute;
  for (int first = 0; first < level.states(); ++first) {
    const Row row = best_from(level, first);
    for (int last = first; last < level.states(); ++last) {
      table[at(first)][at(last)] = row.slowest[at(last)][at(level.network.machines)];
    }
  }
  return table;
}

}  // namespace

bool precedes(const PipeDreamProfile& profile, std::size_t before, std::size_t state) {
  return profile.predecessors.empty() ? before < state : profile.predecessors[state][before];
}

PipeDreamPlan pipedream_partition(const PipeDreamProfile& profile,
                                  const std::vector<NetworkLevel>& levels, bool straight) {
  PIPEWRIGHT_ASSERT(!levels.empty() && !profile.compute_until.empty(),
                    "PipeDream's optimizer needs a state and a level");
  Level level{&profile, levels.front(), 1, straight, compute_of(profile)};
  for (std::size_t next = 1; next < levels.size(); ++next) {
    level.compute = compute_on(level);
    level.inner = level.network.machines;
    level.network = levels[next];
  }
  const Row row = best_from(level, 0);
  PipeDreamPlan plan;
  int last = level.states() - 1, machines = level.network.machines;
  plan.slowest_stage_s = row.slowest[at(last)][at(machines)];
  if (plan.slowest_stage_s == kInfinite) return plan;
  while (last >= 0) {
    const auto [before, replicas] = row.cut[at(last)][at(machines)];
    plan.stages.push_back({before + 1, last + 1, replicas});
    last = before;
    machines -= replicas;
  }
  std::reverse(plan.stages.begin(), plan.stages.end());
  return plan;
}

}  // namespace pipewright::planner
