#include "planner/branches/evaluation_key.hpp"

#include "core/base/content_key.hpp"
#include "core/costs/table_key.hpp"
#include "core/program/lower.hpp"
#include "planner/configurations/policy.hpp"
#include "planner/plans/data_parallel.hpp"
#include "planner/plans/program_of_plan.hpp"

// As in core/costs/table_key.cpp every member is named.

namespace pipewright {

static void add_to(ContentKey& key, const Protocol& protocol) {
  const auto& [kind, credit] = protocol;
  key.add_all(kind, credit);
}

static void add_to(ContentKey& key, const CommPolicy& policy) {
  const auto& [issue, channel, post, run_order, send_f, send_b, connect, buffers, in_flight,
               batches, device_queues] = policy;
  key.add_all(issue, channel, post, run_order, send_f, send_b, connect, buffers, in_flight, batches,
              device_queues);
}

static void add_to(ContentKey& key, const LowerOptions& options) {
  const auto& [fragment, clips, optimizer, sharded, sharding, tied] = options;
  const auto& [zero, groups, ahead] = sharding;
  key.add_all(fragment, clips, optimizer, sharded, zero, groups, ahead, tied);
}

static void add_to(ContentKey& key, const StagePlan& stage) {
  const auto& [first_layer, end_layer, rank] = stage;
  key.add_all(first_layer, end_layer, rank);
}

static void add_to(ContentKey& key, const Part& part) {
  const auto& [call, weight, beside] = part;
  const auto& [kind, group, data, shape, dtype, stream, peer] = call;
  key.add_all(weight, beside, kind, group, data, shape.has_value(),
              shape.value_or(std::vector<std::int64_t>()), dtype, stream, peer);
}

static void add_to(ContentKey& key, const ActionParts& action) {
  const auto& [stage, kind, parts] = action;
  key.add_all(stage, kind, parts);
}

namespace planner {

static void add_to(ContentKey& key, const StageParts& inside) {
  const auto& [parts, computations] = inside;
  key.add_all(parts, computations);
}

static void add_to(ContentKey& key, const ParallelSetup& setup) {
  const auto& [tensor, data, pipeline, chunks, holders, experts, expert_tensor_degree, context,
               ring, micro_batch_size, micro_batches, recompute, sequence_parallel, zero, shards,
               overlap_gradients, tied_head_reduced, blocks_of_rank, stage_replicas, order] = setup;
  const auto& [of_all, by_stage, of_stage] = recompute;
  const auto& [of_nodes, of_ranks] = order;
  key.add_all(tensor, data, pipeline, chunks, holders, experts, expert_tensor_degree, context, ring,
              micro_batch_size, micro_batches, of_all, by_stage, of_stage, sequence_parallel, zero,
              shards, overlap_gradients, tied_head_reduced, blocks_of_rank, stage_replicas,
              of_nodes, of_ranks);
}

static void add_to(ContentKey& key, const Configuration& configuration) {
  const auto& [schedule, parallel, even_layers, rank_evened] = configuration;
  key.add_all(schedule->name, parallel, even_layers, rank_evened);
}

static void add_to(ContentKey& key, const RankLimits& limits) {
  const auto& [all, own] = limits;
  key.add_all(all, own);
}

std::string evaluation_key(const Job& job, const ConfigurationCosts& costs,
                           const ChosenBranch& chosen) {
  const auto& [left_out, configuration, stages, by, order] = chosen;
  const ParallelSetup& setup = configuration.parallel;
  const ScheduleTraits& traits = configuration.schedule->traits;
  ContentKey key;
  key.add_all(configuration, *stages, by.table, costs.simulated_replicas(setup),
              costs.is_estimated(), policy_for(job, *configuration.schedule),
              lowering_of_training(job.training, sharding_of(job, setup), job.model, *stages));
  if (traits.cost_driven || !by.limits.own.empty()) key.add(by.limits);
  // What its pairs take follows from the parts of its stages.
  if (traits.overlaps) key.add(costs.stage_parts(setup, *stages, by.table.stages));
  return key.text();
}

}  // namespace planner
}  // namespace pipewright
