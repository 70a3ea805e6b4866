#include "planner/graph_partition/optimum.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "planner/graph_partition/stage_table.hpp"

namespace pipewright::planner {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

/// Work as StageProblem::work_after counts it.
double work_of(const Element& element) {
  return element.runs_on_accelerator && element.cpu_latency > 0 ? element.accelerator_latency : 0;
}

StageProblem problem_of(const OperatorGraph& graph, const GraphPartitionLimits& limits) {
  StageProblem problem;
  problem.order = elements_of(graph);
  problem.lattice = ideals_of(problem.order, limits.ideals);
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

}  // namespace

std::optional<GraphPartition> optimal_graph_partition(const OperatorGraph& graph,
                                                      const GraphPartitionLimits& limits) {
  const StageProblem problem = problem_of(graph, limits);
  const double least = least_threshold(problem), most = sufficient_threshold(problem);
  std::int64_t tried = 0;
  for (double excess = 0.04;; excess *= 1.6) {
    const double threshold = std::min(most, least * (1 + excess) + 1e-9 * most);
    const StageTable table = fill_stage_table(problem, threshold);
    tried += table.stages_tried;
    const int entry = best_entry(problem, table);
    if (entry >= 0) {
      GraphPartition result = partition_of(graph, problem, table, entry);
      PIPEWRIGHT_ASSERT(
          std::abs(result.largest_load - result.lower_bound) <= 1e-9 * (1 + result.lower_bound),
          "the stages of a partition do not have the loads that the table gave them");
      result.elements = static_cast<std::int64_t>(problem.order.elements.size());
      result.ideals = problem.lattice.count();
      result.stages_tried = tried;
      return result;
    }
    if (threshold >= most) return std::nullopt;
  }
}

}  // namespace pipewright::planner
