#include "planner/graph_partition/stage_table.hpp"

#include <algorithm>
#include <limits>

#include "planner/base/index.hpp"

namespace pipewright::planner {
namespace {

constexpr double kInfiniteLoad = std::numeric_limits<double>::infinity();

/// An entry of the ideal that a stage grows from, and the entry that the stage would lead to.
struct Start {
  double load = 0;
  int entry = 0;               // led to
  double most_work_after = 0;  // what the devices then left can still do
};

/// Sums over the stage as it stands; passed down by value, so that nothing drifts.
struct Sums {
  double cpu = 0, accelerator = 0, bytes = 0;
  double cut = 0;       // cost of the nets it cuts
  double for_good = 0;  // of these, the nets that reach back into the ideal: no growth removes them
  bool runs_on_accelerator = true;
};

struct StageGrowth {
  const StageProblem* problem = nullptr;
  double threshold = 0;
  StageTable* table = nullptr;
  int from = 0;                               // the ideal
  std::vector<int> pins_before, pins_inside;  // of each net: in the ideal, in the stage
  std::vector<std::uint8_t> barred;           // elements that this branch leaves out
  std::vector<int> barred_list;
  std::vector<Start> for_accelerator, for_cpu;
};

/// What the devices not yet used can do within the threshold.
double work_left(const StageProblem& problem, double threshold, int cpus_used, int used) {
  return threshold *
         ((problem.accelerators - used) + (problem.cpus - cpus_used) * problem.cpu_rate);
}

/// Allowance for rounding where a bound is compared: it only keeps more.
double allowed(double bound) { return bound * (1 + 1e-12) + 1e-12; }

void add_starts(StageGrowth& growth, int cpus_used, int used, double load) {
  const StageProblem& problem = *growth.problem;
  const int row = problem.accelerators + 1;
  if (used < problem.accelerators) {
    growth.for_accelerator.push_back(
        {load, cpus_used * row + used + 1,
         allowed(work_left(problem, growth.threshold, cpus_used, used + 1))});
  }
  if (cpus_used < problem.cpus) {
    growth.for_cpu.push_back({load, (cpus_used + 1) * row + used,
                              allowed(work_left(problem, growth.threshold, cpus_used + 1, used))});
  }
}

/// The ideal's entries that no other entry of it makes useless.
void find_starts(StageGrowth& growth) {
  const StageProblem& problem = *growth.problem;
  const int row = problem.accelerators + 1;
  growth.for_accelerator.clear();
  growth.for_cpu.clear();
  const double* loads = &growth.table->load[at(growth.from) * at(growth.table->uses)];
  for (int cpus = 0; cpus <= problem.cpus; ++cpus) {
    for (int used = 0; used <= problem.accelerators; ++used) {
      const double load = loads[cpus * row + used];
      bool useless = load == kInfiniteLoad;
      for (int fewer_cpus = 0; fewer_cpus <= cpus && !useless; ++fewer_cpus) {
        for (int fewer = 0; fewer <= used && !useless; ++fewer) {
          useless = (fewer_cpus < cpus || fewer < used) && loads[fewer_cpus * row + fewer] <= load;
        }
      }
      if (!useless) add_starts(growth, cpus, used, load);
    }
  }
}

void count_pins_before(StageGrowth& growth) {
  const auto& nets = growth.problem->order.nets;
  for (std::size_t net = 0; net < nets.size(); ++net) {
    int before = 0;
    for (const int pin : nets[net].pins) {
      before += growth.problem->lattice.holds(growth.from, pin) ? 1 : 0;
    }
    growth.pins_before[net] = before;
  }
}

Sums with(StageGrowth& growth, Sums sums, int index) {
  const Element& element = growth.problem->order.elements[at(index)];
  sums.cpu += element.cpu_latency;
  sums.accelerator += element.accelerator_latency;
  sums.bytes += element.bytes;
  sums.runs_on_accelerator = sums.runs_on_accelerator && element.runs_on_accelerator;
  for (const int number : element.nets) {
    const Net& net = growth.problem->order.nets[at(number)];
    const int inside = ++growth.pins_inside[at(number)];
    if (inside == 1) {
      sums.cut += net.cost;
      if (growth.pins_before[at(number)] > 0) sums.for_good += net.cost;
    }
    if (inside == static_cast<int>(net.pins.size())) sums.cut -= net.cost;
  }
  return sums;
}

void without(StageGrowth& growth, int index) {
  for (const int net : growth.problem->order.elements[at(index)].nets) {
    --growth.pins_inside[at(net)];
  }
}

void enter(StageGrowth& growth, const std::vector<Start>& starts, int ideal, double load,
           bool accelerator) {
  if (load > growth.threshold) return;
  const double work = growth.problem->work_after[at(ideal)];
  for (const Start& start : starts) {
    if (work > start.most_work_after) continue;
    const double largest = std::max(load, start.load);
    const std::size_t entry = at(ideal) * at(growth.table->uses) + at(start.entry);
    if (largest >= growth.table->load[entry]) continue;
    growth.table->load[entry] = largest;
    growth.table->came_from[entry] = growth.from;
    growth.table->on_accelerator[entry] = accelerator ? 1 : 0;
  }
}

/// Tries every stage that adds to this one, each once: an element that has had its turn here is
/// barred from the branches of those after it.
void grow(StageGrowth& growth, int ideal, const Sums& sums) {
  const IdealLattice& lattice = growth.problem->lattice;
  const std::size_t mark = growth.barred_list.size();
  for (std::size_t step = lattice.first_step[at(ideal)]; step < lattice.first_step[at(ideal) + 1];
       ++step) {
    const IdealStep next = lattice.steps[step];
    if (growth.barred[at(next.element)] != 0) continue;
    const Sums grown = with(growth, sums, next.element);
    const bool accelerator = !growth.for_accelerator.empty() && grown.runs_on_accelerator &&
                             grown.bytes <= growth.problem->accelerator_bytes &&
                             grown.accelerator + grown.for_good <= allowed(growth.threshold);
    const bool cpu = !growth.for_cpu.empty() && grown.cpu <= growth.threshold;
    if (accelerator || cpu) {
      ++growth.table->stages_tried;
      if (accelerator) {
        enter(growth, growth.for_accelerator, next.ideal, grown.accelerator + grown.cut, true);
      }
      if (cpu) enter(growth, growth.for_cpu, next.ideal, grown.cpu, false);
      grow(growth, next.ideal, grown);
    }
    without(growth, next.element);
    growth.barred[at(next.element)] = 1;
    growth.barred_list.push_back(next.element);
  }
  for (; growth.barred_list.size() > mark; growth.barred_list.pop_back()) {
    growth.barred[at(growth.barred_list.back())] = 0;
  }
}

}  // namespace

StageTable fill_stage_table(const StageProblem& problem, double threshold) {
  StageTable table;
  table.uses = (problem.cpus + 1) * (problem.accelerators + 1);
  const std::size_t entries = at(problem.lattice.count()) * at(table.uses);
  table.load.assign(entries, kInfiniteLoad);
  table.came_from.assign(entries, -1);
  table.on_accelerator.assign(entries, 0);
  table.load[0] = 0;
  StageGrowth growth;
  growth.problem = &problem;
  growth.threshold = threshold;
  growth.table = &table;
  growth.pins_before.assign(problem.order.nets.size(), 0);
  growth.pins_inside.assign(problem.order.nets.size(), 0);
  growth.barred.assign(problem.order.elements.size(), 0);
  for (int ideal = 0; ideal + 1 < problem.lattice.count(); ++ideal) {
    growth.from = ideal;
    find_starts(growth);
    if (growth.for_accelerator.empty() && growth.for_cpu.empty()) continue;
    count_pins_before(growth);
    grow(growth, ideal, {});
  }
  return table;
}

}  // namespace pipewright::planner
