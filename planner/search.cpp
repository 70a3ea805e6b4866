#include "planner/search.hpp"

#include <algorithm>
#include <chrono>
#include <tuple>

#include "core/error.hpp"
#include "core/lower.hpp"
#include "core/timeline.hpp"
#include "planner/closed_form.hpp"
#include "planner/data_parallel.hpp"
#include "planner/memory.hpp"
#include "planner/parallel.hpp"
#include "planner/partition.hpp"
#include "planner/plan_of_candidate.hpp"
#include "planner/program_of_plan.hpp"
#include "planner/search_space.hpp"
#include "sim/engine.hpp"

namespace pipewright::planner {
namespace {

constexpr std::size_t kBatch = 64;    // simulated between two looks at the best so far
constexpr double kMostActions = 2e7;  // of one configuration
constexpr const char* kOverMemory = "over the memory limit";
constexpr const char* kStuck = "does not end under the policy";
constexpr const char* kTooLarge = "too large to simulate";
constexpr const char* kSameStages = "same stages by cost and by number of layers";

/// A configuration with its stages, and a step time that no order can beat.
struct Prepared {
  Configuration configuration;
  std::vector<StagePlan> stages;
  std::int64_t bound = 0;
  std::string pruned;  // why it is out; empty: it is in
};

struct Outcome {
  Candidate candidate;
  std::size_t schedule_index = 0;  // place in the registry, simpler schedules first
  bool simulated = false;
  std::string pruned;
};

bool better(const Outcome& a, const Outcome& b) {
  const auto key = [](const Outcome& o) {
    const Candidate& c = o.candidate;
    return std::tuple(c.step, c.peak_bytes, c.ranks * c.replicas, o.schedule_index, c.chunks,
                      c.micro_batches, c.partition == "even");
  };
  return key(a) < key(b);
}

std::vector<StagePlan> plan_stages(const Partition& partition, const Placement& placement) {
  std::vector<StagePlan> stages;
  for (int s = 0; s < placement.stages(); ++s) {
    const auto i = static_cast<std::size_t>(s);
    stages.push_back({partition.first_layer[i], partition.first_layer[i + 1],
                      placement.rank_of(StageId(s), MicroBatchId(0))});
  }
  return stages;
}

/// One call of search(): what all configurations share.
class Search {
 public:
  Search(const Job& job, const Profile* profile, const SearchOptions& options)
      : job_(job),
        model_(job.model, job.cluster, profile, options.cores, job.training.recompute),
        threads_(options.threads > 0 ? options.threads : cores_of_this_machine()),
        keep_(static_cast<std::size_t>(std::max(1, options.keep))) {
    limit_ =
        job.strategy.memory_limit.value > 0 ? job.strategy.memory_limit : job.cluster.device.memory;
  }

  SearchResult run() {
    const auto begin = std::chrono::steady_clock::now();
    SearchSpace space = search_space(job_, model_);
    result_.pruned = std::move(space.pruned);
    std::vector<Outcome> ranked = best_of(space.others, keep_, "table");
    add_baselines(space.baselines, ranked);
    std::sort(ranked.begin(), ranked.end(), better);
    if (ranked.size() > keep_) ranked.resize(keep_);
    for (Outcome& outcome : ranked) result_.ranked.push_back(std::move(outcome.candidate));
    result_.elapsed_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                             std::chrono::steady_clock::now() - begin)
                             .count();
    if (!result_.ranked.empty()) {
      result_.best = plan_of_candidate(job_, model_, result_, limit_);
    }
    return std::move(result_);
  }

 private:
  /// The best naive configuration on one rank, and on several; those the job allows as a plan
  /// also enter the ranking.
  void add_baselines(const std::vector<Configuration>& all, std::vector<Outcome>& ranked) {
    for (const bool on_one_rank : {false, true}) {
      for (const bool allowed : {true, false}) {
        std::vector<Configuration> some;
        for (const Configuration& c : all) {
          if ((c.ranks == 1) == on_one_rank && c.allowed == allowed) some.push_back(c);
        }
        auto best = best_of(some, 1, "baseline");
        if (best.empty()) continue;
        result_.baselines.push_back(best.front().candidate);
        if (allowed) ranked.push_back(std::move(best.front()));
        break;  // one that the job rules out is shown only where it allows none
      }
    }
  }

  Prepared prepare(const Configuration& configuration) const {
    Prepared prepared;
    prepared.configuration = configuration;
    const int size = configuration.micro_batch_size, stages = configuration.stages();
    std::vector<std::int64_t> layer_costs;
    for (const LayerTimes& layer : model_.layer_times(size)) {
      layer_costs.push_back((layer.f + layer.i + layer.w).value);
    }
    const auto balanced = balanced_partition(layer_costs, stages);
    const auto even = even_partition(layer_costs, stages);
    PIPEWRIGHT_ASSERT(balanced && even, "the search space holds more stages than layers");
    if (configuration.even_layers && *balanced == *even) {
      prepared.pruned = kSameStages;
      return prepared;
    }
    if (3.0 * stages * configuration.micro_batches * configuration.replicas > kMostActions) {
      prepared.pruned = kTooLarge;
      return prepared;
    }
    prepared.stages =
        plan_stages(configuration.even_layers ? *even : *balanced, configuration.placement);
    if (!may_fit(prepared)) prepared.pruned = kOverMemory;
    prepared.bound = bound_of(prepared);
    return prepared;
  }

  /// False only if no order of this schedule can keep to the limit: the state of a rank's stages,
  /// and the peak of its activations where a formula knows it, each at least as large as that of
  /// its lightest stage.
  bool may_fit(const Prepared& prepared) const {
    const Configuration& c = prepared.configuration;
    if (limit_.value <= 0 || c.schedule->layout != Layout::Loop) return true;
    const auto memory =
        memory_of(job_.model, prepared.stages, c.micro_batch_size, job_.training.optimizer,
                  recompute_of(job_.model, job_.training.recompute));
    const auto peaks =
        closed_form_peaks(c.schedule->name, {c.ranks, c.micro_batches, c.chunks, {}});
    for (int r = 0; r < c.ranks; ++r) {
      Bytes held, lightest = memory[static_cast<std::size_t>(r)].f;
      for (int s = r; s < c.stages(); s += c.ranks) {
        const StageState state = state_of(job_.model, prepared.stages[static_cast<std::size_t>(s)],
                                          job_.training.optimizer);
        held += sharded_state(state, job_.strategy.sharding_degree).sum();
        lightest = std::min(lightest, memory[static_cast<std::size_t>(s)].f);
      }
      if (peaks) held += lightest * (*peaks)[static_cast<std::size_t>(r)];
      if (held > limit_) return false;
    }
    return true;
  }

  /// Each rank waits for the first micro-batch to reach it, computes everything once, and its last
  /// fused backward still has to go down to stage 0. With another placement than stage k*p + r on
  /// rank r: the ranks share all work at best.
  std::int64_t bound_of(const Prepared& prepared) const {
    const Configuration& c = prepared.configuration;
    const auto costs = model_.stage_costs(prepared.stages, c.ranks * c.replicas, c.micro_batch_size,
                                          job_.training.optimizer);
    if (c.schedule->layout != Layout::Loop) {
      std::int64_t work = 0;
      for (const StageCosts& stage : costs) {
        work += (stage.f + std::min(stage.b, stage.i + stage.w)).value * c.micro_batches;
      }
      return work / c.ranks;
    }
    std::int64_t bound = 0, fill = 0, drain = 0;
    for (int r = 0; r < c.ranks; ++r) {
      std::int64_t work = 0, update = 0;
      for (int s = r; s < c.stages(); s += c.ranks) {
        const StageCosts& stage = costs[static_cast<std::size_t>(s)];
        // Some orders hold both forms.
        const Nanoseconds backward =
            c.schedule->splits_backward ? std::min(stage.b, stage.i + stage.w) : stage.b;
        work += (stage.f + backward).value * c.micro_batches;
        update += stage.opt.value / job_.strategy.sharding_degree;
      }
      const std::int64_t after = c.schedule->splits_backward ? update : std::max(update, drain);
      bound = std::max(bound, fill + work + after);
      fill += costs[static_cast<std::size_t>(r)].f.value;
      drain += costs[static_cast<std::size_t>(r)].b.value;
    }
    return bound;
  }

  Outcome evaluate(const Prepared& prepared) const {
    const Configuration& c = prepared.configuration;
    const CostTable costs = model_.table(prepared.stages, c.ranks * c.replicas, c.micro_batch_size,
                                         job_.training.optimizer, job_.strategy.sharding_degree);
    const ScheduleRequest request{c.ranks, c.micro_batches, c.chunks, {}, costs, limit_};
    Outcome outcome;
    // The sizes are possible; a schedule that plans by costs may still find no room for its order.
    if (c.schedule->cost_driven && refusal_of(*c.schedule, request)) {
      outcome.pruned = kOverMemory;
      return outcome;
    }
    const Order order = replicate(c.schedule->make(request), c.replicas);
    const Program program =
        lower(order, policy_for(job_, *c.schedule),
              lowering_of_training(job_.training, job_.strategy.sharding_degree > 1, job_.model,
                                   prepared.stages));
    // The peak follows from the order alone, and simulating costs more.
    for (const RankFigures& rank : peaks_of(program, costs)) {
      if (limit_.value > 0 && Bytes(rank.peak_bytes) > limit_) outcome.pruned = kOverMemory;
    }
    if (!outcome.pruned.empty()) return outcome;
    const sim::Result result = sim::simulate(program, costs);
    outcome.simulated = true;
    if (!result.finished) {
      outcome.pruned = kStuck;
      return outcome;
    }
    const Figures figures = figures_of(program, result.timeline, costs);
    Candidate& candidate = outcome.candidate;
    candidate.schedule = c.schedule->name;
    candidate.ranks = c.ranks;
    candidate.replicas = c.replicas;
    candidate.chunks = c.chunks;
    candidate.micro_batches = c.micro_batches;
    candidate.micro_batch_size = c.micro_batch_size;
    candidate.partition = c.even_layers ? "even" : "balanced";
    candidate.stages = prepared.stages;
    candidate.step = Nanoseconds(figures.makespan_ns);
    candidate.bubble_ratio = figures.bubble_ratio;
    for (const RankFigures& rank : figures.ranks) {
      candidate.peak_activations.push_back(rank.peak_activations);
      candidate.peak_bytes = std::max(candidate.peak_bytes, Bytes(rank.peak_bytes));
    }
    outcome.schedule_index = static_cast<std::size_t>(c.schedule - schedules().data());
    return outcome;
  }

  /// The `count` best, best first. Batches of a fixed size in order of the bound: what is skipped
  /// depends on the batches before, not on which thread was faster.
  std::vector<Outcome> best_of(const std::vector<Configuration>& configurations, std::size_t count,
                               const std::string& what) {
    std::vector<Prepared> all(configurations.size());
    for_each_index(all.size(), threads_,
                   [&](std::size_t i) { all[i] = prepare(configurations[i]); });
    std::stable_sort(all.begin(), all.end(),
                     [](const Prepared& a, const Prepared& b) { return a.bound < b.bound; });
    std::vector<const Prepared*> open;
    for (const Prepared& prepared : all) {
      if (prepared.pruned.empty()) {
        open.push_back(&prepared);
      } else if (prepared.pruned != kSameStages) {
        ++result_.pruned[prepared.pruned];
      }
    }
    std::vector<Outcome> best;
    for (std::size_t begin = 0; begin < open.size(); begin += kBatch) {
      const std::size_t end = std::min(begin + kBatch, open.size());
      if (best.size() >= count && open[begin]->bound > best[count - 1].candidate.step.value) {
        result_.pruned["too slow at best for the " + what] += static_cast<int>(open.size() - begin);
        break;
      }
      take_batch(open, begin, end, best);
      if (best.size() > count) best.resize(count);
    }
    return best;
  }

  void take_batch(const std::vector<const Prepared*>& open, std::size_t begin, std::size_t end,
                  std::vector<Outcome>& best) {
    std::vector<Outcome> outcomes(end - begin);
    for_each_index(outcomes.size(), threads_,
                   [&](std::size_t i) { outcomes[i] = evaluate(*open[begin + i]); });
    for (Outcome& outcome : outcomes) {
      if (outcome.simulated) ++result_.evaluated;
      if (outcome.pruned.empty()) {
        best.push_back(std::move(outcome));
      } else {
        ++result_.pruned[outcome.pruned];
      }
    }
    std::sort(best.begin(), best.end(), better);
  }

  const Job& job_;
  CostModel model_;
  int threads_;
  std::size_t keep_;
  Bytes limit_;
  SearchResult result_;
};

}  // namespace

SearchResult search(const Job& job, const Profile* profile, const SearchOptions& options) {
  return Search(job, profile, options).run();
}

}  // namespace pipewright::planner
