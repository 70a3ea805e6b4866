#include "planner/search/plan_of_candidate.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "core/base/error.hpp"
#include "core/costs/action_times.hpp"
#include "planner/base/number_text.hpp"
#include "planner/branches/recompute_by_stage.hpp"
#include "planner/configurations/policy.hpp"
#include "planner/configurations/rank_limits.hpp"
#include "planner/configurations/stage_replicas.hpp"
#include "planner/memory/memory.hpp"
#include "planner/plans/executable.hpp"
#include "planner/plans/program_of_plan.hpp"
#include "planner/schedules/building.hpp"

namespace pipewright::planner {
namespace {

/// "0-2, 3, 4, 5 to 28 (2 each), 29": stage by stage, but runs of stages alike in one.
std::string layers_of(const std::vector<StagePlan>& stages) {
  constexpr std::size_t kLeastRun = 5;
  const auto count = [&](std::size_t s) { return stages[s].end_layer - stages[s].first_layer; };
  std::string list;
  for (std::size_t s = 0; s < stages.size();) {
    std::size_t end = s + 1;
    while (end < stages.size() && count(end) == count(s)) ++end;
    if (end - s < kLeastRun) end = s + 1;
    const int first = stages[s].first_layer, last = stages[end - 1].end_layer - 1;
    list += (list.empty() ? "" : ", ") + std::to_string(first);
    if (end - s > 1) {
      list += " to " + std::to_string(last) + " (" + std::to_string(count(s)) + " each)";
    } else if (last > first) {
      list += "-" + std::to_string(last);
    }
    s = end;
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
    reasons.push_back("Next best is " + describe(next) + ", " +
                      (next.step == best.step ? "as fast, with " + format_bytes(next.peak_bytes) +
                                                    " on its fullest rank."
                                              : percent_apart(more) + " slower."));
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
  add("mp_degree", strategy.mp_degree);
  add("pp_degree", strategy.pp_degree);
  add("dp_degree", strategy.dp_degree);
  add("cp_degree", strategy.cp_degree);
  add("cp_comm_type", strategy.cp_comm_type);
  add("ep_degree", strategy.ep_degree);
  add("expert_tensor_parallel_size", strategy.expert_tensor_parallel_size);
  add("vpp_degree", strategy.vpp_degree);
  add("accumulate_steps", strategy.accumulate_steps);
  add("micro_batch_size", strategy.micro_batch_size);
  add("sharding_stage", strategy.sharding_stage);
  add("rank_order", strategy.rank_order);
  add("use_sequence_parallel", strategy.use_sequence_parallel);
  add("recompute", strategy.recompute);
  add("schedule_mode", strategy.schedule_mode);
  add("node_order", strategy.node_order);
  Choice stage_replicas;
  for (const auto& counts : strategy.stage_replicas)
    stage_replicas.push_back(replicas_text(counts));
  add("stage_replicas", stage_replicas);
}

/// What fills the fullest rank. `is_left`: the limit is what a device has for tensors.
std::string memory_reason(const Candidate& best, Bytes memory_limit, bool is_left) {
  const Bytes active = best.peak_bytes - best.state_bytes;
  std::string text = format_bytes(best.peak_bytes) + " at most on a rank";
  if (memory_limit.value > 0) {
    text += ", of " + format_bytes(memory_limit) +
            (is_left ? " that driver, libraries and fragments leave" : " allowed");
  }
  const auto rank = static_cast<std::size_t>(best.fullest_rank);
  return text + ": rank " + std::to_string(best.fullest_rank) + " holds " +
         format_bytes(best.state_bytes) + " of weights, gradients and optimizer state and " +
         format_bytes(active) +
         (find_schedule(best.schedule).traits.asynchronous
              ? " of activations and older weights, of "
              : " of activations, of ") +
         std::to_string(best.peak_activations[rank]) +
         (best.peak_activations[rank] == 1 ? " chunk and micro-batch"
                                           : " chunks and micro-batches") +
         " at its worst.";
}

/// What experts that replicas divide may take more than was counted.
void add_uneven_rows(const Plan& plan, Bytes limit, std::vector<std::string>& reasons) {
  if (plan.expert_parallel == 1) return;
  const auto most = most_with_uneven_rows(plan, program_of_plan(plan));
  if (!most) return;
  std::string text =
      "Memory is that of rows that come to all experts evenly; a rank to whose experts as many "
      "come as can would hold " +
      format_bytes(*most);
  if (limit.value > 0 && *most > limit)
    text += ", more than is allowed: a capacity_factor of the experts bounds what comes";
  reasons.push_back(text + ".");
}

/// The reason of an order that no schedule makes.
std::string synthesis_reason(const SynthesisedOrder& synthesised, Nanoseconds step) {
  const double shorter =
      1 - static_cast<double>(step.value) / static_cast<double>(synthesised.from_step.value);
  return "The order is synthesised for these stages: " + percent_apart(shorter) + " shorter than " +
         synthesised.from + "'s " + format_duration(synthesised.from_step) +
         ". For a framework that knows schedules only by name, use tune --no-synthesis.";
}

std::vector<std::string> reasons_for(const Job& job, const ConfigurationCosts& costs,
                                     const SearchResult& result, Bytes memory_limit) {
  const Candidate& best = result.ranked.front();
  std::vector<std::string> reasons;
  const bool is_given = best.synthesised && best.synthesised->from.empty();
  reasons.push_back((is_given ? "An order of your own" : "Chosen: " + describe(best)) + ": " +
                    format_duration(best.step) + " a step, " + percent(best.bubble_ratio) +
                    " of the ranks' time in bubbles.");
  if (best.synthesised && !is_given)
    reasons.push_back(synthesis_reason(*best.synthesised, best.step));
  add_comparisons(result, reasons);
  reasons.push_back("Layers of the stages: " + layers_of(best.stages) + " (" + best.partition +
                    (best.partition == "even"       ? " by number of layers)."
                     : best.partition == "given"    ? ")."
                     : best.partition == "balanced" ? " by cost)."
                                                    : ": as much to do for each rank)."));
  if (!best.parallel.order.of_nodes.empty()) {
    reasons.push_back("The pipeline goes through " +
                      in_words(job.cluster, best.parallel.order.of_nodes) +
                      "; mesh.devices says which devices each rank has.");
  }
  const RankLimits limits = limits_of(costs, best.parallel, memory_limit);
  const bool is_left = costs.is_estimated() && job.strategy.memory_limit.value == 0;
  reasons.push_back(memory_reason(best, limits.of(best.fullest_rank), is_left));
  add_fixed_fields(job.strategy, reasons);
  for (std::string& remark : costs.remarks(best.parallel)) reasons.push_back(std::move(remark));
  return reasons;
}

/// The mesh counts devices as the pipeline comes to them, the cluster as its file has them.
void put_on_nodes(const Cluster& cluster, const NodeOrder& order, Mesh& mesh) {
  const std::vector<int> nodes = nodes_in_order(cluster, order);
  const int each = cluster.devices_per_node;
  for (int& device : mesh.devices)
    device = nodes[static_cast<std::size_t>(device / each)] * each + device % each;
}

RecomputeSpec recompute_of_plan(const Candidate& best, const Model& model) {
  std::vector<LayerRecompute> of_layer(model.layers.size());
  for (std::size_t s = 0; s < best.stages.size(); ++s) {
    for (int l = best.stages[s].first_layer; l < best.stages[s].end_layer; ++l)
      of_layer[static_cast<std::size_t>(l)] = best.parallel.recompute.at(s);
  }
  return recompute_spec(of_layer);
}

/// How many of the plan's replicas show what all of them do. Two replicas have the same lists, and
/// are in the same state at every moment, where
/// - the routes inside one take as long as those inside the other, and share no link with others,
/// - what both take part in takes as long with those two as with all, and so begins and ends for
///   both at once: a collective waits for the last of its members.
/// Then the next moment is the same, too: ties are broken by rank, and replicas follow one another.
/// The estimate gives each replica the same routes without links, and has all that replicas tell
/// one another in their updates: its collectives take no time. Two of them have these collectives.
/// Replicas that are planned by layers are those of planner/bounds/layer_replicas.hpp, which lie
/// differently in their nodes, with the times of all. Groups differ in whom they sum with, which
/// takes an estimate's no time: there one replica shows all.
int replicas_that_show_all(const ConfigurationCosts& costs, const ParallelSetup& parallel,
                           const Plan& plan) {
  const int all = plan.program_replicas();
  if (plan.costs.actions != nullptr) return all;
  if (plan.sharding().groups > 1) return costs.is_estimated() ? 1 : all;
  return std::min(all, costs.is_estimated() ? 2 : costs.simulated_replicas(parallel));
}

Mesh mesh_of(const ParallelSetup& parallel, bool is_estimated) {
  if (!is_estimated && parallel.context > 1)
    return Mesh::grid_of_parts(parallel.pipeline, parallel.data, parallel.context, parallel.tensor);
  if (!is_estimated && parallel.tensor == 1)
    return Mesh::data_parallel(parallel.data, parallel.pipeline);
  const bool is_data_outermost = parallel.order.of_ranks == RankOrder::DataOutermost;
  const auto grid = !is_estimated || is_data_outermost ? Mesh::grid_of_replicas : Mesh::grid;
  return grid(parallel.pipeline, parallel.data, parallel.context, parallel.tensor);
}

/// What replicas exchange stays as the table of the plan's own replicas has it.
void take_computations(const std::vector<StageCosts>& from, std::vector<StageCosts>& stages) {
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const StageCosts of_replicas = stages[s];
    stages[s] = from[s];
    stages[s].reduce = of_replicas.reduce;
    stages[s].unshard = of_replicas.unshard;
  }
}

}  // namespace

Plan plan_of_candidate(const Job& job, const ConfigurationCosts& costs, const SearchResult& result,
                       Bytes memory_limit) {
  PIPEWRIGHT_ASSERT(!result.ranked.empty(), "there is no candidate to make a plan of");
  const Candidate& best = result.ranked.front();
  const ParallelSetup& parallel = best.parallel;
  const Schedule& schedule = find_schedule(best.schedule);
  Plan plan;
  plan.model = job.model;
  plan.architecture = job.architecture;
  plan.cluster = job.cluster;
  plan.mesh = mesh_of(parallel, costs.is_estimated());
  put_on_nodes(job.cluster, parallel.order.of_nodes, plan.mesh);
  plan.micro_batches = parallel.micro_batches;
  plan.micro_batch_size = parallel.micro_batch_size;
  plan.stages = best.stages;
  plan.schedule.name = best.schedule;
  plan.schedule.chunks = parallel.chunks;
  plan.schedule.parameters = schedule_parameters(parallel);
  plan.policy = policy_for(job, schedule);
  plan.sharding_stage = parallel.zero;
  const Sharding sharding = sharding_of(job, parallel);
  if (sharding.groups > 1) plan.sharding_degree = job.strategy.sharding_degree;
  plan.unshard_lookahead = sharding.ahead;
  plan.expert_parallel = parallel.experts;
  if (parallel.expert_tensor() != parallel.tensor)
    plan.expert_tensor_parallel = parallel.expert_tensor();
  plan.sequence_parallel = parallel.sequence_parallel;
  plan.ring = parallel.ring;
  // Slow devices and long samples are said action by action.
  const ConfigurationCosts& alike = costs.alike();
  StageParts inside;
  if (!schedule.traits.asynchronous) {
    inside =
        alike.stage_parts(parallel, best.stages, chosen_stage_costs(alike, parallel, best.stages));
  }
  // A plan with parts has one replica for all, and says nothing of how others differ.
  const bool tells_replicas = &alike != &costs && parallel.data > 1;
  if (!tells_replicas) plan.parts = std::move(inside.parts);
  plan.replicas_are_ranks =
      !costs.is_estimated() && (parallel.context > 1 || (!plan.parts.empty() && parallel.data > 1));
  const auto table_of = [&](int replicas) {
    CostTable table = chosen_table(alike, parallel, best.stages, replicas);
    if (!plan.parts.empty()) take_computations(inside.computations, table.stages);
    costs.add_action_times(parallel, best.stages, replicas,
                           {table.stages, tells_replicas ? inside.computations : table.stages},
                           table);
    if (!schedule.traits.asynchronous)
      for (StageMemory& memory : table.memory) memory.version = Bytes(0);
    return table;
  };
  plan.costs = table_of(plan.program_replicas());
  const auto actions = std::exchange(plan.costs.actions, nullptr);
  if (best.synthesised) {
    plan.schedule.order = *best.synthesised->order;
  } else if (schedule.traits.cost_driven) {
    // The limit that it planned for stands nowhere else in the plan.
    const CostTable searched =
        costs.table(parallel, best.stages, costs.simulated_replicas(parallel));
    const RankLimits limits = limits_of(costs, parallel, memory_limit);
    plan.schedule.order = schedule.make(request_for(parallel, best.stages, searched, limits));
  }
  // Of those that the order does not have, the backward is of the other kind.
  if (actions != nullptr)
    plan.costs.actions = std::make_shared<ActionTimes>(
        rows_of(actions->rows(), pipeline_order(plan)), actions->shape());
  plan.executable = executable_on_devices(job, parallel);
  plan.training = job.training;
  if (costs.chooses_recompute()) plan.training.recompute = recompute_of_plan(best, job.model);
  plan.tuner.evaluated = result.evaluated;
  for (const auto& [reason, count] : by_sentence(result.pruned))
    plan.tuner.pruned[reason] = static_cast<int>(count);
  plan.tuner.reasons = reasons_for(job, costs, result, memory_limit);
  if (const Candidate* baseline = best_baseline(result)) plan.tuner.baseline_step = baseline->step;
  const int replicas = replicas_that_show_all(costs, parallel, plan);
  const WaitReport report = replicas == plan.program_replicas()
                                ? fill_prediction(plan)
                                : fill_prediction(plan, table_of(replicas), replicas);
  PIPEWRIGHT_ASSERT(report.verdict == Verdict::Ok, "a plan that the search simulated is stuck");
  if (!costs.is_estimated())
    add_uneven_rows(plan, limits_of(costs, parallel, memory_limit).of(best.fullest_rank),
                    plan.tuner.reasons);
  return plan;
}

Plan plan_of_row(const Job& job, const ConfigurationCosts& costs, const SearchResult& result,
                 std::size_t row) {
  SearchResult first;
  first.ranked = {result.ranked.at(row)};
  first.baselines = result.baselines;
  return plan_of_candidate(job, costs, first, costs.memory_limit());
}

}  // namespace pipewright::planner
