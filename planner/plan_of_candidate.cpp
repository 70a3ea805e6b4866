#include "planner/plan_of_candidate.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "planner/program_of_plan.hpp"
#include "planner/schedules/building.hpp"

namespace pipewright::planner {
namespace {

std::string percent(double share) {
  const auto tenths = std::llround(share * 1000);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " %";
}

std::string hundredths(double value) {
  const auto n = std::llround(value * 100);
  const std::string rest = std::to_string(n % 100);
  return std::to_string(n / 100) + "." + (rest.size() < 2 ? "0" : "") + rest;
}

std::string layers_of(const std::vector<StagePlan>& stages) {
  std::string list;
  for (const StagePlan& stage : stages) {
    list += list.empty() ? "" : ", ";
    list += std::to_string(stage.first_layer);
    if (stage.end_layer - stage.first_layer > 1) list += "-" + std::to_string(stage.end_layer - 1);
  }
  return list;
}

/// The fastest configuration of schedule naive; the job may rule it out as a plan.
const Candidate* best_baseline(const SearchResult& result) {
  const Candidate* best = nullptr;
  for (const Candidate& candidate : result.baselines) {
    if (best == nullptr || candidate.step < best->step) best = &candidate;
  }
  return best;
}

std::map<std::string, std::string> executable_on_devices() {
  return {{"cpu", "yes"},
          {"paced", "yes"},
          {"cuda", "needs the CUDA module and a GPU (pipewright doctor); not tried on one yet"}};
}

void add_comparisons(const SearchResult& result, std::vector<std::string>& reasons) {
  const Candidate& best = result.ranked.front();
  if (const Candidate* baseline = best_baseline(result)) {
    const double ratio = best.step.value > 0 ? static_cast<double>(baseline->step.value) /
                                                   static_cast<double>(best.step.value)
                                             : 1.0;
    const std::string name = describe(*baseline) + " (" + format_duration(baseline->step) + ")";
    if (ratio > 1) {
      reasons.push_back(hundredths(ratio) + " times as fast as the baseline, " + name + ".");
    } else if (baseline->step == best.step) {
      reasons.push_back("The baseline, " + name + ", takes as long: nothing here beats it.");
    } else {
      reasons.push_back("The baseline, " + name +
                        ", would be faster, but a field that the job fixes rules it out.");
    }
  }
  if (result.ranked.size() > 1) {
    const Candidate& next = result.ranked[1];
    const double more =
        best.step.value > 0
            ? static_cast<double>(next.step.value) / static_cast<double>(best.step.value) - 1
            : 0;
    reasons.push_back(
        "Next best is " + describe(next) + ", " +
        (next.step == best.step
             ? "as fast, with " + format_bytes(next.peak_bytes) + " on its fullest rank."
             : (more < 0.001 ? std::string("less than 0.1 %") : percent(more)) + " slower."));
  }
}

void add_fixed_fields(const Strategy& strategy, std::vector<std::string>& reasons) {
  const auto add = [&](const char* field, const Choice& choice) {
    if (choice.empty()) return;
    std::string values;
    for (const std::string& value : choice) values += (values.empty() ? "" : ", ") + value;
    reasons.push_back(choice.size() == 1
                          ? std::string(field) + " stays " + values + ": the job fixes it."
                          : std::string(field) + " was chosen among " + values +
                                ", as the job asks.");
  };
  add("pp_degree", strategy.pp_degree);
  add("dp_degree", strategy.dp_degree);
  add("vpp_degree", strategy.vpp_degree);
  add("accumulate_steps", strategy.accumulate_steps);
  add("micro_batch_size", strategy.micro_batch_size);
  add("schedule_mode", strategy.schedule_mode);
}

std::vector<std::string> reasons_for(const Job& job, const CostModel& model,
                                     const SearchResult& result, Bytes memory_limit) {
  const Candidate& best = result.ranked.front();
  std::vector<std::string> reasons;
  reasons.push_back("Chosen: " + describe(best) + ": " + format_duration(best.step) + " a step, " +
                    percent(best.bubble_ratio) + " of the ranks' time in bubbles.");
  add_comparisons(result, reasons);
  reasons.push_back("Layers of the stages: " + layers_of(best.stages) + " (" + best.partition +
                    (best.partition == "even" ? " by number of layers)." : " by cost)."));
  std::string memory = format_bytes(best.peak_bytes) + " at most on a rank";
  if (memory_limit.value > 0) memory += ", of " + format_bytes(memory_limit) + " allowed";
  reasons.push_back(memory + ".");
  add_fixed_fields(job.strategy, reasons);
  reasons.push_back("Costs: " + model.source() + ".");
  if (shares_this_machine(job.cluster)) {
    reasons.push_back(
        "The ranks share the " + count_of(model.cores(), "core") + " of this machine" +
        (model.contention(best.replicas * best.ranks) > 1
             ? ", so every computation is taken to be " +
                   hundredths(model.contention(best.replicas * best.ranks)) + " times as long."
             : "; no plan with more ranks was tried unless the job names pp_degree."));
  }
  return reasons;
}

}  // namespace

std::string describe(const Candidate& candidate) {
  std::string text = candidate.schedule + " on " + count_of(candidate.ranks, "rank");
  if (candidate.chunks > 1) text += " with " + std::to_string(candidate.chunks) + " chunks each";
  if (candidate.replicas > 1) text += " in " + std::to_string(candidate.replicas) + " replicas";
  text += ", " + std::to_string(candidate.micro_batches) +
          (candidate.micro_batches == 1 ? " micro-batch of " : " micro-batches of ") +
          std::to_string(candidate.micro_batch_size);
  return text;
}

CommPolicy policy_for(const Job& job, const Schedule& schedule) {
  if (job.strategy.policy) return *job.strategy.policy;
  return schedule.policy.empty() ? CommPolicy{} : comm_policy_preset(schedule.policy);
}

Plan plan_of_candidate(const Job& job, const CostModel& model, const SearchResult& result,
                       Bytes memory_limit) {
  PIPEWRIGHT_ASSERT(!result.ranked.empty(), "there is no candidate to make a plan of");
  const Candidate& best = result.ranked.front();
  const Schedule& schedule = find_schedule(best.schedule);
  Plan plan;
  plan.model = job.model;
  plan.cluster = job.cluster;
  plan.mesh = Mesh::data_parallel(best.replicas, best.ranks);
  plan.micro_batches = best.micro_batches;
  plan.micro_batch_size = best.micro_batch_size;
  plan.stages = best.stages;
  plan.schedule.name = best.schedule;
  plan.schedule.chunks = best.chunks;
  plan.policy = policy_for(job, schedule);
  plan.sharding_stage = job.strategy.sharding_degree > 1 ? 1 : 0;
  const int all_ranks = best.replicas * best.ranks;
  plan.costs = model.table(best.stages, all_ranks, best.micro_batch_size, job.training.optimizer,
                           job.strategy.sharding_degree);
  if (schedule.cost_driven) {
    // The limit that it planned for stands nowhere else in the plan.
    plan.schedule.order =
        schedule.make({best.ranks, best.micro_batches, best.chunks, {}, plan.costs, memory_limit});
  }
  plan.executable = executable_on_devices();
  plan.training = job.training;
  plan.tuner.evaluated = result.evaluated;
  plan.tuner.pruned = result.pruned;
  plan.tuner.reasons = reasons_for(job, model, result, memory_limit);
  if (const Candidate* baseline = best_baseline(result)) plan.tuner.baseline_step = baseline->step;
  const WaitReport report = fill_prediction(plan);
  PIPEWRIGHT_ASSERT(report.verdict == Verdict::Ok && plan.predicted.step == best.step,
                    "the plan's prediction differs from the search's");
  return plan;
}

}  // namespace pipewright::planner
