// A transformer by its widths: every kind of parallelism, by the analytical estimate.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "core/base/error.hpp"
#include "planner/configurations/costs.hpp"
#include "planner/configurations/requested_recompute.hpp"
#include "planner/configurations/requested_values.hpp"
#include "planner/configurations/stage_replicas.hpp"
#include "planner/estimate/block_work.hpp"
#include "planner/estimate/node_order_contexts.hpp"
#include "planner/estimate/rank_places.hpp"
#include "planner/estimate/stage_estimate.hpp"
#include "planner/estimate/step_parts.hpp"

namespace pipewright::planner {
namespace {

std::vector<RankOrder> asked_orders(const Choice& choice) {
  std::vector<RankOrder> orders;
  for (const RankOrder order : {RankOrder::PipelineOutermost, RankOrder::DataOutermost}) {
    if (std::find(choice.begin(), choice.end(), name_of(order)) != choice.end())
      orders.push_back(order);
  }
  return orders;
}

/// "NVIDIA A100-SXM4-80GB", of several kinds each once.
std::string devices_of(const Cluster& cluster) {
  if (cluster.kinds.empty()) return cluster.device.model;
  std::vector<std::string> models;
  for (const NodeKind& kind : cluster.kinds) {
    if (std::find(models.begin(), models.end(), kind.device.model) == models.end())
      models.push_back(kind.device.model);
  }
  std::string list;
  for (const std::string& model : models) list += (list.empty() ? "" : " and ") + model;
  return list;
}

ParallelSpace space_of(const Job& job) {
  const Strategy& asked = job.strategy;
  ParallelSpace space;
  space.devices = job.cluster.devices();
  space.global_batch = job.global_batch;
  space.tensor = asked_numbers(asked.mp_degree, "mp_degree");
  space.pipeline = asked_ranks(asked);
  space.data = asked_numbers(asked.dp_degree, "dp_degree");
  space.chunks = {1};  // the schedules have them
  space.experts = asked_numbers(asked.ep_degree, "ep_degree");
  space.expert_tensor =
      asked_numbers(asked.expert_tensor_parallel_size, "expert_tensor_parallel_size");
  space.whole_experts_too = asked.opens_expert_tensor_parallel_size;
  space.context = asked_numbers(asked.cp_degree, "cp_degree");
  space.micro_batch_size = asked_numbers(asked.micro_batch_size, "micro_batch_size");
  space.zero = asked_numbers(asked.sharding_stage, "sharding_stage", 0);
  if (asked.sharding_degree > 1) {
    space.shards = {asked.sharding_degree};
    if (space.zero.empty()) space.zero = {1};
  }
  const AskedRecompute recompute = estimated_recompute(job);
  space.recompute = recompute.for_all;
  space.by_stage = recompute.by_stage;
  space.sequence_parallel = asked_flags(asked.use_sequence_parallel);
  space.overlap_gradients = asked.overlap_grad_reduce;
  return space;
}

/// Remembers order_choice(): many setups with the same degrees come one after the other.
struct OrderChoices {
  const Machine& machine;
  std::tuple<int, int, int, int> degrees = {};
  OrderChoice choice = OrderChoice::Same;

  OrderChoice of(const ParallelSetup& setup) {
    const std::tuple own(setup.tensor, setup.pipeline, setup.context, setup.data);
    if (own != degrees) {
      degrees = own;
      choice = order_choice(machine, setup);
    }
    return choice;
  }
};

class EstimatedConfigurations final : public ConfigurationCosts {
 public:
  EstimatedConfigurations(const Job& job, const Architecture& model, const FittedCosts& fitted)
      : contexts_(job, model, fitted.scales),
        space_(space_of(job)),
        recompute_(estimated_recompute(job)),
        scale_(fitted.scales.time),
        memory_scale_(fitted.scales.memory),
        steps_asked_(asked_numbers(job.strategy.accumulate_steps, "accumulate_steps")),
        orders_asked_(asked_orders(job.strategy.rank_order)) {
    check(model);
    check(space_);
    if (job.training.optimizer != "adamw") {
      throw InputError("training.optimizer: the estimate knows adamw, found \"" +
                       job.training.optimizer + "\"");
    }
    // Then the size follows from the steps, and need not be a power of two.
    if (!steps_asked_.empty() && space_.micro_batch_size.empty())
      space_.micro_batch_size = divisors(job.global_batch);
    for (const NodeRates& node : contexts_.any().machine.nodes) {
      const Bytes own = memory_of(node);
      differ_in_memory_ = differ_in_memory_ || (limit_.value > 0 && own != limit_);
      limit_ = std::max(limit_, own);
    }
    if (job.strategy.memory_limit.value > 0) {
      limit_ = job.strategy.memory_limit;
      differ_in_memory_ = false;
    }
    source_ = "estimated from the model's widths and the rates of " + devices_of(job.cluster) +
              " (docs/cost-model.md), framework " + job.strategy.framework.name;
    if (model.lora.is_used())
      source_ += ", adapters of rank " + std::to_string(model.lora.rank) + " alone trained (LoRA)";
    if (!job.strategy.matmul_dtype.empty()) source_ += ", products in " + job.strategy.matmul_dtype;
    if (!job.strategy.grad_accum_dtype.empty())
      source_ += ", sums of gradients in " + job.strategy.grad_accum_dtype;
    remark_ = "Costs: " + source_ + (fitted.full.empty() ? "" : ", " + fitted.full) + ".";
    if (!fitted.brief.empty()) source_ += ", " + fitted.brief;
  }

  void for_each_mesh(const std::vector<int>& pipeline, const SpaceVisitor& visitor) const override {
    ParallelSpace space = space_;
    if (!pipeline.empty()) space.pipeline = pipeline;
    const EstimateContext& any = contexts_.any();
    OrderChoices choices{any.machine};
    OrdersOfSetups orders(contexts_);
    for_each_setup(any.model, any.framework, space,
                   {[&](const ParallelSetup& setup) {
                      if (admits(steps_asked_, setup.micro_batches))
                        visit_orders(setup, choices, orders, visitor);
                    },
                    visitor.ruled_out});
  }

  std::optional<Refusal> refusal(const ParallelSetup& mesh) const override {
    const EstimateContext& any = contexts_.any();
    return planner::refusal(any.model, any.machine, mesh);
  }
  std::int64_t least_step(const ParallelSetup& mesh) const override {
    return scaled_down(least_estimated_step(contexts_.of(mesh), mesh));
  }
  std::int64_t least_overlapped_step(const ParallelSetup& mesh) const override {
    return scaled_down(least_estimated_step(contexts_.of(mesh), mesh, false));
  }
  LayerCosts layer_costs(const ParallelSetup& mesh) const override {
    return estimated_layer_costs(contexts_.of(mesh), mesh);  // only their shares matter
  }
  std::vector<StageCosts> stage_costs(const ParallelSetup& mesh,
                                      std::span<const StagePlan> stages) const override {
    std::vector<StageCosts> costs = estimated_stage_costs(contexts_.of(mesh), mesh, stages);
    scale(costs);
    return costs;
  }
  std::vector<StageMemory> stage_memory(const ParallelSetup& mesh,
                                        std::span<const StagePlan> stages) const override {
    std::vector<StageMemory> memory = estimated_stage_memory(contexts_.of(mesh), mesh, stages);
    scale(memory);
    return memory;
  }
  std::vector<Wires> wires(const ParallelSetup& mesh,
                           std::span<const StagePlan> stages) const override {
    const EstimateContext& context = contexts_.of(mesh);
    const double bytes = hop_bytes(context.model, mesh);
    const auto wire = [&](const StagePlan& from, const StagePlan& to) {
      if (from.rank == to.rank) return Wire{};
      const Hop hop = hop_between(context.machine, mesh, static_cast<int>(from.rank.value),
                                  static_cast<int>(to.rank.value));
      const double least = (hop.latency + bytes / hop.bytes_per_second) * scale_ * 1e9;
      // The simulator rounds latency and bytes by themselves.
      return Wire{std::max<std::int64_t>(0, static_cast<std::int64_t>(least) - 1), 0};
    };
    Wires wires;
    for (std::size_t s = 0; s + 1 < stages.size(); ++s) {
      wires.up.push_back(wire(stages[s], stages[s + 1]));
      wires.down.push_back(wire(stages[s + 1], stages[s]));
    }
    return {wires};
  }
  Sending sending(const Schedule&) const override { return Sending::Shared; }
  CostTable table(const ParallelSetup& mesh, std::span<const StagePlan> stages,
                  int replicas) const override {
    CostTable costs = estimated_cost_table(contexts_.of(mesh), mesh, stages, replicas);
    costs.source = source_;
    scale(costs.stages);
    scale(costs.memory);
    const auto scale_route = [this](RouteCosts& route) {
      route.latency = scaled(route.latency);
      route.bytes_per_second /= scale_;
    };
    scale_route(costs.every_route);
    for (RouteCosts& route : costs.route_of_edge) scale_route(route);
    return costs;
  }
  StageParts stage_parts(const ParallelSetup& mesh, std::span<const StagePlan> stages,
                         std::span<const StageCosts> whole) const override {
    return estimated_stage_parts(contexts_.of(mesh), mesh, stages, whole, scale_);
  }
  std::vector<StageCosts> stage_computations(const ParallelSetup& mesh,
                                             std::span<const StagePlan> stages,
                                             std::span<const StageCosts> whole) const override {
    return estimated_stage_computations(contexts_.of(mesh), mesh, stages, whole, scale_);
  }
  std::vector<LayerRecompute> recompute_kinds() const override {
    if (!has_selective_recompute(contexts_.any().framework))
      return {LayerRecompute::None, LayerRecompute::Whole};
    return {LayerRecompute::None, LayerRecompute::Attention, LayerRecompute::Whole};
  }
  bool has_recompute(LayerRecompute recompute) const override {
    return recompute_.admits(recompute);
  }
  bool chooses_recompute() const override { return true; }
  int simulated_replicas(const ParallelSetup&) const override { return 1; }
  bool is_estimated() const override { return true; }
  bool knows_speeds() const override { return contexts_.any().machine.nodes.size() > 1; }
  Bytes least_memory(const ParallelSetup& mesh) const override {
    const Bytes least = least_estimated_memory(contexts_.of(mesh), mesh);
    return Bytes(static_cast<std::int64_t>(static_cast<double>(least.value) * memory_scale_));
  }
  Bytes memory_limit() const override { return limit_; }
  std::vector<Bytes> rank_memory(const ParallelSetup& mesh) const override {
    if (!differ_in_memory_) return {};
    const RankNodes ranks = nodes_of_ranks(contexts_.of(mesh).machine, mesh);
    std::vector<Bytes> memory;
    for (int rank = 0; rank < mesh.pipeline; ++rank)
      memory.push_back(memory_of(ranks.nodes[static_cast<std::size_t>(ranks.place(rank))]));
    return memory;
  }

  std::vector<std::string> remarks(const ParallelSetup&) const override { return {remark_}; }

 private:
  /// The setup in each order of its ranks that is asked for, or that may be the best one, and each
  /// of these in the orders of the nodes.
  void visit_orders(ParallelSetup setup, OrderChoices& choices, OrdersOfSetups& orders,
                    const SpaceVisitor& visitor) const {
    const bool has_choice = setup.pipeline > 1 && setup.data > 1;
    setup.order.of_ranks = has_choice && orders_asked_.size() == 1 ? orders_asked_.front()
                                                                   : RankOrder::PipelineOutermost;
    orders.visit(setup, visitor);
    if (!has_choice || orders_asked_.size() == 1) return;
    switch (choices.of(setup)) {
      case OrderChoice::Same:
        visitor.ruled_out(LeftOut::SameRankOrder, setup);
        return;
      case OrderChoice::Worse:
        visitor.ruled_out(LeftOut::WorseRankOrder, setup);
        return;
      case OrderChoice::Differs:
        setup.order.of_ranks = RankOrder::DataOutermost;
        orders.visit(setup, visitor);
    }
  }

  Bytes memory_of(const NodeRates& node) const {
    return Bytes(static_cast<std::int64_t>(usable_bytes(space_, node)));
  }

  std::int64_t scaled_down(std::int64_t ns) const {
    return static_cast<std::int64_t>(std::floor(static_cast<double>(ns) * scale_));
  }

  Nanoseconds scaled(Nanoseconds time) const {
    return Nanoseconds(std::llround(static_cast<double>(time.value) * scale_));
  }

  void scale(std::vector<StageCosts>& costs) const {
    for (StageCosts& stage : costs) {
      for (Nanoseconds* time : {&stage.f, &stage.b, &stage.w, &stage.opt}) *time = scaled(*time);
      stage.i = stage.b - stage.w;
    }
  }

  void scale(std::vector<StageMemory>& memory) const {
    if (memory_scale_ == 1) return;
    for (StageMemory& stage : memory) {
      for (Bytes* bytes : {&stage.f, &stage.w, &stage.constant, &stage.version})
        *bytes = Bytes(std::llround(static_cast<double>(bytes->value) * memory_scale_));
      stage.i = Bytes(0) - stage.f - stage.w;  // what F took is given back
    }
  }

  NodeOrderContexts contexts_;
  ParallelSpace space_;
  AskedRecompute recompute_;
  double scale_;         // of times
  double memory_scale_;  // of what devices hold
  std::vector<int> steps_asked_;
  std::vector<RankOrder> orders_asked_;  // empty: both
  Bytes limit_;                          // of the node that has most
  bool differ_in_memory_ = false;        // nodes do, and the job names no limit
  std::string source_, remark_;
};

}  // namespace

std::unique_ptr<ConfigurationCosts> estimated_configurations(const Job& job,
                                                             const Architecture& model,
                                                             const FittedCosts& fitted) {
  return std::make_unique<EstimatedConfigurations>(job, model, fitted);
}

}  // namespace pipewright::planner
