#include "planner/graph_partition/optimum.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/error.hpp"
#include "planner/base/index.hpp"
#include "planner/graph_partition/chains.hpp"
#include "planner/graph_partition/stage_table.hpp"

namespace pipewright::planner {
namespace {

/// Elements of all topological orders that are tried where a graph is too wide.
constexpr int kChainElements = 40'000;

/// Work as StageProblem::work_after counts it.
double work_of(const Element& element) {
  return element.runs_on_accelerator && element.cpu_latency > 0 ? element.accelerator_latency : 0;
}

StageProblem stage_problem_of(const OperatorGraph& graph, ElementOrder order,
                              IdealLattice lattice) {
  StageProblem problem;
  problem.order = std::move(order);
  problem.lattice = std::move(lattice);
  problem.accelerators = graph.accelerators;
  problem.cpus = graph.cpus;
  problem.accelerator_bytes = graph.accelerator_bytes;
  for (const Element& element : problem.order.elements) {
    if (work_of(element) > 0) {
      problem.cpu_rate = std::max(problem.cpu_rate, work_of(element) / element.cpu_latency);
    }
  }
  // From the whole set backwards: an ideal leaves what any child of it leaves, and that element.
  problem.work_after.assign(at(problem.lattice.count()), 0);
  for (int ideal = problem.lattice.count() - 2; ideal >= 0; --ideal) {
    const IdealStep& step = problem.lattice.steps[problem.lattice.first_step[at(ideal)]];
    problem.work_after[at(ideal)] =
        problem.work_after[at(step.ideal)] + work_of(problem.order.elements[at(step.element)]);
  }
  return problem;
}

/// No partition is better: all work shared without loss, or the element that nobody does sooner.
double least_threshold(const StageProblem& problem) {
  double least = problem.work_after[0] /
                 (problem.accelerators + problem.cpus * std::max(problem.cpu_rate, 1e-9));
  for (const Element& element : problem.order.elements) {
    double soonest = std::numeric_limits<double>::infinity();
    if (problem.cpus > 0) soonest = element.cpu_latency;
    if (problem.accelerators > 0 && element.runs_on_accelerator) {
      soonest = std::min(soonest, element.accelerator_latency);
    }
    if (std::isfinite(soonest)) least = std::max(least, soonest);
  }
  return least;
}

/// Every partition has a smaller load: one device would do it all and pay every net.
double sufficient_threshold(const StageProblem& problem) {
  double most = 1;
  for (const Element& element : problem.order.elements) {
    most += std::max(element.cpu_latency, element.accelerator_latency);
  }
  for (const Net& net : problem.order.nets) most += net.cost;
  return most;
}

/// The whole set's best entry; -1: none.
int best_entry(const StageProblem& problem, const StageTable& table) {
  const std::size_t whole = at(problem.lattice.count() - 1) * at(table.uses);
  int best = -1;
  for (int entry = 0; entry < table.uses; ++entry) {
    const double load = table.load[whole + at(entry)];
    if (!std::isfinite(load)) continue;
    if (best < 0 || load < table.load[whole + at(best)]) best = entry;
  }
  return best;
}

GraphPartition partition_of(const OperatorGraph& graph, const StageProblem& problem,
                            const StageTable& table, int entry) {
  GraphPartition result;
  int ideal = problem.lattice.count() - 1;
  result.lower_bound = table.load[at(ideal) * at(table.uses) + at(entry)];
  while (ideal != 0) {
    const std::size_t cell = at(ideal) * at(table.uses) + at(entry);
    DeviceShare share;
    share.accelerator = table.on_accelerator[cell] != 0;
    const int before = table.came_from[cell];
    for (int element = 0; element < static_cast<int>(problem.order.elements.size()); ++element) {
      if (!problem.lattice.holds(ideal, element) || problem.lattice.holds(before, element))
        continue;
      const auto& nodes = problem.order.elements[at(element)].nodes;
      share.nodes.insert(share.nodes.end(), nodes.begin(), nodes.end());
    }
    std::sort(share.nodes.begin(), share.nodes.end());
    share.load = device_load(graph, share.nodes, share.accelerator);
    for (const int node : share.nodes) share.bytes += graph.nodes[at(node)].bytes;
    result.largest_load = std::max(result.largest_load, share.load);
    result.devices.push_back(std::move(share));
    entry -= table.on_accelerator[cell] != 0 ? 1 : problem.accelerators + 1;
    ideal = before;
  }
  std::reverse(result.devices.begin(), result.devices.end());
  return result;
}

/// The table gave the stages these loads; what device_load() adds up may differ by rounding, which
/// is relative to all that was added and taken away again.
void check_loads(const GraphPartition& found, double most) {
  PIPEWRIGHT_ASSERT(std::abs(found.largest_load - found.lower_bound) <=
                        1e-9 * (1 + found.lower_bound) + 1e-12 * most,
                    "the stages of a partition do not have the loads that the table gave them");
}

/// The least largest load over the problem's ideals.
std::optional<GraphPartition> best_over_ideals(const OperatorGraph& graph,
                                               const StageProblem& problem) {
  const double most = sufficient_threshold(problem);
  // Never zero, so that it can grow: all may be free but the moving of outputs.
  const double least = least_threshold(problem) + 1e-9 * most;
  std::int64_t tried = 0;
  for (double excess = 0.04;; excess *= 1.6) {
    const double threshold = std::min(most, least * (1 + excess));
    const StageTable table = fill_stage_table(problem, threshold);
    tried += table.stages_tried;
    const int entry = best_entry(problem, table);
    if (entry >= 0) {
      GraphPartition result = partition_of(graph, problem, table, entry);
      check_loads(result, most);
      result.elements = static_cast<std::int64_t>(problem.order.elements.size());
      result.ideals = problem.lattice.count();
      result.stages_tried = tried;
      return result;
    }
    if (threshold >= most) return std::nullopt;
  }
}

std::optional<GraphPartition> best_over_chains(const OperatorGraph& graph,
                                               const ElementOrder& order) {
  // An order takes time in the square of its elements.
  const int orders = std::clamp(kChainElements / static_cast<int>(order.elements.size()), 1, 32);
  std::optional<GraphPartition> best;
  std::int64_t ideals = 0, tried = 0;
  for (int number = 0; number < orders; ++number) {
    const StageProblem problem =
        stage_problem_of(graph, order, chain_of(topological_order(order, number)));
    auto found = best_over_ideals(graph, problem);
    if (!found) continue;
    ideals += found->ideals;
    tried += found->stages_tried;
    found->lower_bound = std::min(least_threshold(problem), found->largest_load);
    if (!best || found->largest_load < best->largest_load) best = std::move(found);
  }
  if (best) {
    best->ideals = ideals;
    best->stages_tried = tried;
  }
  return best;
}

}  // namespace

GraphPartitionAnswer best_graph_partition(const OperatorGraph& graph,
                                          const GraphPartitionLimits& limits) {
  const ElementOrder order = elements_of(graph);
  std::optional<IdealLattice> lattice = ideals_of(order, limits.ideals);
  GraphPartitionAnswer answer;
  answer.exact = lattice.has_value();
  if (lattice) {
    answer.partition = best_over_ideals(graph, stage_problem_of(graph, order, std::move(*lattice)));
  } else {
    answer.partition = best_over_chains(graph, order);
  }
  return answer;
}

std::optional<GraphPartition> optimal_graph_partition(const OperatorGraph& graph,
                                                      const GraphPartitionLimits& limits) {
  GraphPartitionAnswer answer = best_graph_partition(graph, limits);
  if (!answer.exact) {
    throw InputError("this graph has more than " + std::to_string(limits.ideals) +
                     " ways to cut it in two: give one colorClass to operators that may as well "
                     "share a device");
  }
  return std::move(answer.partition);
}

}  // namespace pipewright::planner
