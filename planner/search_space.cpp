#include "planner/search_space.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/model_tie.hpp"
#include "planner/schedules/building.hpp"

namespace pipewright::planner {
namespace {

constexpr int kMostWithoutGaps = 16;  // every pp up to here, then only regular ones

std::vector<int> numbers(const Choice& choice, const char* field) {
  std::vector<int> values;
  for (const std::string& text : choice) {
    const auto value = positive_integer(text);
    if (!value) {
      throw InputError(std::string(field) +
                       ": expected a positive whole number or \"auto\", found \"" + text + "\"");
    }
    values.push_back(*value);
  }
  return values;
}

bool admits(const std::vector<int>& values, int value) {
  return values.empty() || std::find(values.begin(), values.end(), value) != values.end();
}

struct Batching {
  int replicas, micro_batches, micro_batch_size;
};

/// Collects configurations; one object for one call of search_space().
class SpaceBuilder {
 public:
  SpaceBuilder(const Job& job, const CostModel& costs)
      : job_(job),
        costs_(costs),
        layers_(static_cast<int>(job.model.layers.size())),
        is_tied_(tie_of(job.model).has_value()),
        ranks_asked_(numbers(job.strategy.pp_degree, "pp_degree")),
        replicas_asked_(numbers(job.strategy.dp_degree, "dp_degree")),
        chunks_asked_(numbers(job.strategy.vpp_degree, "vpp_degree")),
        steps_asked_(numbers(job.strategy.accumulate_steps, "accumulate_steps")),
        sizes_asked_(numbers(job.strategy.micro_batch_size, "micro_batch_size")) {
    for (const std::string& name : job.strategy.schedule_mode) {
      schedules_asked_.push_back(&find_schedule(name));
    }
  }

  SearchSpace build() {
    if (replicas_asked_.empty()) replicas_asked_ = {1};
    for (const int replicas : replicas_asked_) {
      const auto batchings = this->batchings(replicas);
      const auto rank_counts = this->rank_counts(replicas);
      for (const Batching& batching : batchings) {
        if (replicas <= job_.cluster.devices()) add_baseline(1, batching);
        for (const int p : rank_counts) {
          if (p > 1) add_baseline(p, batching);
          for (const Schedule* schedule : schedules_for(p)) add_all(*schedule, p, batching);
        }
      }
    }
    return std::move(space_);
  }

 private:
  bool asked(const Schedule& schedule) const {
    return schedules_asked_.empty() || std::find(schedules_asked_.begin(), schedules_asked_.end(),
                                                 &schedule) != schedules_asked_.end();
  }

  /// Schedules other than the baseline. On one rank all of them compute what naive computes, so
  /// they are tried there only if the user names them.
  std::vector<const Schedule*> schedules_for(int ranks) const {
    std::vector<const Schedule*> list;
    for (const Schedule& schedule : schedules()) {
      if (schedule.name == "naive") continue;
      const bool automatic = schedules_asked_.empty() && schedule.policy.empty() && ranks > 1 &&
                             schedule.layout == Layout::Loop && !schedule.asynchronous &&
                             !schedule.searched;
      const bool named = !schedules_asked_.empty() && asked(schedule);
      if (automatic || named) list.push_back(&schedule);
    }
    return list;
  }

  std::vector<int> open_rank_counts() const {
    std::vector<int> list;
    const int devices = job_.cluster.devices();
    for (int p = 1; p <= devices; ++p) {
      const bool regular =
          (p & (p - 1)) == 0 || devices % p == 0 || p % job_.cluster.devices_per_node == 0;
      if (p <= kMostWithoutGaps || regular) list.push_back(p);
    }
    return list;
  }

  std::vector<int> rank_counts(int replicas) {
    std::vector<int> list;
    for (const int p : ranks_asked_.empty() ? open_rank_counts() : ranks_asked_) {
      if (std::int64_t{p} * replicas > job_.cluster.devices()) {
        ++space_.pruned["more ranks than devices"];
      } else if (p > layers_) {
        ++space_.pruned["fewer layers than stages"];
      } else if (ranks_asked_.empty() && shares_this_machine(job_.cluster) && p > 1 &&
                 p * replicas > costs_.cores()) {
        ++space_.pruned["more ranks than cores"];
      } else {
        list.push_back(p);
      }
    }
    return list;
  }

  /// Of one replica.
  std::vector<Batching> batchings(int replicas) {
    std::vector<Batching> list;
    if (job_.global_batch % replicas != 0) {
      ++space_.pruned["dp_degree does not divide the global batch"];
      return list;
    }
    const int batch = job_.global_batch / replicas;
    for (const int m : steps_asked_) {
      if (batch % m != 0) ++space_.pruned["accumulate_steps does not divide the global batch"];
    }
    for (const int b : sizes_asked_) {
      if (batch % b != 0) ++space_.pruned["micro_batch_size does not divide the global batch"];
    }
    for (int m = 1; m <= batch; ++m) {
      if (batch % m != 0) continue;
      const int size = batch / m;
      if (!admits(steps_asked_, m) || !admits(sizes_asked_, size)) continue;
      if (costs_.refusal(size)) {
        ++space_.pruned["micro-batch size not profiled"];
      } else {
        list.push_back({replicas, m, size});
      }
    }
    return list;
  }

  std::vector<int> chunks_for(const Schedule& schedule, int ranks) const {
    if (!chunks_asked_.empty()) return chunks_asked_;
    if (schedule.default_chunks == 1) return {1};
    std::vector<int> list;
    for (int v = schedule.default_chunks; v <= layers_ / ranks; v *= 2) list.push_back(v);
    return list;
  }

  void add_baseline(int ranks, const Batching& batching) {
    const Schedule& naive = find_schedule("naive");
    Configuration configuration{
        &naive, ranks, 1, batching.replicas, batching.micro_batches, batching.micro_batch_size};
    configuration.placement = placement_of(naive, {ranks, batching.micro_batches});
    configuration.allowed = asked(naive) && admits(ranks_asked_, ranks) && admits(chunks_asked_, 1);
    space_.baselines.push_back(configuration);
  }

  void add_all(const Schedule& schedule, int ranks, const Batching& batching) {
    for (const int chunks : chunks_for(schedule, ranks)) {
      Configuration configuration{&schedule,
                                  ranks,
                                  chunks,
                                  batching.replicas,
                                  batching.micro_batches,
                                  batching.micro_batch_size};
      if (batching.replicas > 1 && schedule.asynchronous) {
        ++space_.pruned["asynchronous, with replicas"];
        continue;
      }
      if (is_tied_ && schedule.asynchronous) {
        ++space_.pruned["asynchronous, with a tied head"];
        continue;
      }
      const ScheduleRequest request{ranks, batching.micro_batches, chunks, {}};
      if (refusal_of(schedule, request)) {
        ++space_.pruned["outside the constraint of " + std::string(schedule.name)];
        continue;
      }
      configuration.placement = placement_of(schedule, request);
      if (configuration.stages() > layers_) {
        ++space_.pruned["fewer layers than stages"];
        continue;
      }
      space_.others.push_back(configuration);
      configuration.even_layers = true;
      space_.others.push_back(configuration);
    }
  }

  const Job& job_;
  const CostModel& costs_;
  int layers_;
  bool is_tied_;
  std::vector<int> ranks_asked_, replicas_asked_, chunks_asked_, steps_asked_, sizes_asked_;
  std::vector<const Schedule*> schedules_asked_;
  SearchSpace space_;
};

}  // namespace

SearchSpace search_space(const Job& job, const CostModel& costs) {
  if (job.global_batch < 1) {
    throw InputError("global_batch: expected a positive number of samples a step, found " +
                     std::to_string(job.global_batch));
  }
  return SpaceBuilder(job, costs).build();
}

}  // namespace pipewright::planner
