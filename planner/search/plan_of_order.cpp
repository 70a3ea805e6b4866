#include "planner/search/plan_of_order.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/base/error.hpp"
#include "core/program/lower.hpp"
#include "planner/branches/evaluation.hpp"
#include "planner/branches/named_configuration.hpp"
#include "planner/configurations/policy.hpp"
#include "planner/configurations/rank_limits.hpp"
#include "planner/search/job_costs.hpp"
#include "planner/search/plan_of_candidate.hpp"
#include "sim/engine.hpp"

namespace pipewright::planner {
namespace {

bool names_versions(const Order& order) {
  for (const auto& rank : order.ranks) {
    for (const Cell& cell : rank) {
      if (cell.action.version >= 0) return true;
    }
  }
  return false;
}

/// The registry's entry whose traits the order has; its rule makes no order here.
const Schedule& traits_of(const Order& order) {
  return find_schedule(names_versions(order) ? "pipedream" : "auto");
}

void require_plannable(const Order& order) {
  if (order.fragment)
    throw InputError("the order is a part of a log (# fragment), and a plan needs all of it");
  if (!order.calls.empty() || !order.parts.empty())
    throw InputError(
        "a plan holds no calls and no parts of an own order; leave them out, the plan's degrees "
        "say what its ranks exchange");
  if (order.has_transfers())
    throw InputError(
        "the order writes its transfers, and a plan's policy makes them; leave them out");
  if (order.placement.looks_at_micro_batch())
    throw InputError(
        "several ranks compute the same stage; such a plan comes from tune with schedule_mode "
        "dualpipe or 1f1b-rr");
}

int most_stages_of_rank(const Order& order) {
  std::size_t most = 1;
  for (int r = 0; r < order.rank_count(); ++r)
    most = std::max(most, order.placement.stages_of(RankId(r)).size());
  return static_cast<int>(most);
}

RequestedValues requested_by(const OrderSetup& setup) {
  return setup.configuration.empty() ? RequestedValues{} : read_requested(setup.configuration);
}

/// The setup's configuration with what the order says.
NamedConfiguration named_by(const Order& order, const Job& job, const OrderSetup& setup) {
  const RequestedValues given = requested_by(setup);
  for (const char* key : {"pp", "vpp", "replicas", "micro_batches", "schedule"}) {
    if (given.count(key) != 0)
      throw InputError(std::string(key) + " follows from the order; leave it out");
  }
  if (const auto cut = given.find("partition"); cut != given.end() && !setup.layers.empty())
    throw InputError(
        "partition says how layers are cut, and so do the numbers of layers; leave one out");
  std::string text = "schedule=" + std::string(traits_of(order).name) +
                     ",pp=" + std::to_string(order.rank_count()) +
                     ",micro_batches=" + std::to_string(order.micro_batches);
  if (!setup.configuration.empty()) text += "," + setup.configuration;
  NamedConfiguration named = read_configuration(text, job, nullptr);
  named.configuration.parallel.chunks = most_stages_of_rank(order);
  return named;
}

void require_possible(const NamedConfiguration& named, const ConfigurationCosts& costs) {
  if (!named.too_many_devices.empty()) throw InputError(named.too_many_devices);
  if (!named.other_batch.empty()) throw InputError(named.other_batch);
  const ParallelSetup& parallel = named.configuration.parallel;
  ParallelSetup mesh = parallel;
  mesh.chunks = 1;
  if (const auto reason = costs.refusal(mesh))
    throw InputError("a rule forbids it: " + reason->sentence);
  if (parallel.recompute.is_to_choose())
    throw InputError("recompute by-stage is chosen by tune; name none, selective or full");
  if (named.configuration.schedule->traits.asynchronous &&
      (parallel.data > 1 || parallel.tensor > 1 || parallel.context > 1))
    throw InputError(
        "an order that names versions of weights updates inside the step, which is not "
        "done with replicas or divided layers; leave out dp, tp and cp");
}

Partition given_partition(const std::vector<int>& layers, int stages, int all) {
  if (static_cast<int>(layers.size()) != stages)
    throw InputError("there are numbers of layers for " + std::to_string(layers.size()) +
                     " stages, and the order has " + std::to_string(stages));
  Partition partition{{0}, 0};
  for (const int count : layers)
    partition.first_layer.push_back(partition.first_layer.back() + count);
  if (partition.first_layer.back() != all)
    throw InputError("the numbers of layers add up to " +
                     std::to_string(partition.first_layer.back()) + ", and the model has " +
                     std::to_string(all));
  return partition;
}

std::vector<StagePlan> stages_for(const Order& order, const Job& job, const OrderSetup& setup,
                                  const Configuration& configuration,
                                  const ConfigurationCosts& costs) {
  const int all = static_cast<int>(job.model.layers.size());
  if (order.stages() > all)
    throw InputError("the order has " + std::to_string(order.stages()) +
                     " stages, and the model has " + std::to_string(all) + " layers");
  if (!setup.layers.empty())
    return plan_stages(given_partition(setup.layers, order.stages(), all), order.placement);
  return stages_of(configuration, costs, order.placement);
}

/// The job with what the configuration says in place of what it leaves open, so that its costs know
/// of these divisions.
Job of_one_configuration(const Job& job, const ParallelSetup& parallel, bool says_recompute) {
  Job one = job;
  Strategy& strategy = one.strategy;
  strategy.mp_degree = {std::to_string(parallel.tensor)};
  strategy.cp_degree = {std::to_string(parallel.context)};
  strategy.cp_comm_type = {parallel.ring ? "p2p" : "all_gather"};
  strategy.ep_degree = {std::to_string(parallel.experts)};
  strategy.expert_tensor_parallel_size = {std::to_string(parallel.expert_tensor())};
  strategy.sharding_stage = {std::to_string(parallel.zero)};
  strategy.use_sequence_parallel = {parallel.sequence_parallel ? "true" : "false"};
  if (says_recompute)
    strategy.recompute = {parallel.recompute.by_stage
                              ? "by_stage"
                              : std::string(to_string(parallel.recompute.of_all))};
  return one;
}

std::vector<std::string> over_memory(const Evaluation& evaluation, const RankLimits& limits,
                                     int ranks) {
  std::vector<std::string> sentences;
  for (int r = 0; r < ranks; ++r) {
    const Bytes peak = evaluation.rank_peaks[static_cast<std::size_t>(r)], limit = limits.of(r);
    if (limit.value > 0 && peak > limit)
      sentences.push_back("rank " + std::to_string(r) + " holds " + format_bytes(peak) +
                          " at most, of " + format_bytes(limit) + " allowed");
  }
  return sentences;
}

}  // namespace

int global_batch_of(const Order& order, const Job& job, const OrderSetup& setup) {
  const ParallelSetup& parallel = named_by(order, job, setup).configuration.parallel;
  const std::int64_t samples =
      std::int64_t{order.micro_batches} * parallel.data * parallel.micro_batch_size;
  if (samples > kMostGlobalBatch)
    throw InputError("a step of " + std::to_string(samples) + " samples; at most " +
                     std::to_string(kMostGlobalBatch) + " are possible");
  return static_cast<int>(samples);
}

std::variant<PlanOfOrder, StuckOrder> plan_of_order(const Job& job, const Profile* profile,
                                                    int cores, const Order& order,
                                                    const OrderSetup& setup) {
  require_plannable(order);
  const NamedConfiguration named = named_by(order, job, setup);
  const bool says_recompute = requested_by(setup).count("recompute") != 0;
  const Job one = of_one_configuration(job, named.configuration.parallel, says_recompute);
  const auto costs = costs_of_job(one, profile, cores);
  require_possible(named, *costs);
  const Configuration& configuration = named.configuration;
  const std::vector<StagePlan> stages = stages_for(order, job, setup, configuration, *costs);

  OrderCosts by = order_costs(*costs, configuration, stages, costs->memory_limit());
  const RankLimits limits = std::exchange(by.limits, RankLimits());
  Evaluation judged = evaluate_order(job, *costs, configuration, stages, order, by);
  if (judged.pruned) {
    Program program = lower(order, policy_for(job, *configuration.schedule));
    WaitReport report = sim::check(program, by.table);
    return StuckOrder{std::move(program), std::move(report)};
  }
  judged.candidate.synthesised = {std::make_shared<const Order>(order), "", {}};
  if (!setup.layers.empty()) judged.candidate.partition = "given";
  SearchResult result;
  result.evaluated = 1;
  result.ranked = {judged.candidate};
  PlanOfOrder made{plan_of_candidate(job, *costs, result, costs->memory_limit()), {}};
  made.plan.schedule.name = "custom";
  made.over_memory = over_memory(judged, limits, order.rank_count());
  return made;
}

}  // namespace pipewright::planner
