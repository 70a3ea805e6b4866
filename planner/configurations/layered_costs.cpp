// A model as a chain of layers: pipeline and data parallelism, by a profile or operation counts.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/base/error.hpp"
#include "core/model/context_split.hpp"
#include "core/model/tensor_split.hpp"
#include "planner/base/number_text.hpp"
#include "planner/bounds/layer_bounds.hpp"
#include "planner/bounds/layer_replicas.hpp"
#include "planner/configurations/costs.hpp"
#include "planner/configurations/divided_stages.hpp"
#include "planner/configurations/policy.hpp"
#include "planner/configurations/requested_divisions.hpp"
#include "planner/configurations/requested_recompute.hpp"
#include "planner/configurations/requested_values.hpp"
#include "planner/configurations/stage_replicas.hpp"
#include "planner/costs/cost_model.hpp"

namespace pipewright::planner {
namespace {

constexpr int kMostWithoutGaps = 16;  // every pp up to here, then only regular ones

class LayerConfigurations final : public ConfigurationCosts {
 public:
  LayerConfigurations(const Job& job, const Profile* profile, int cores)
      : job_(job),
        asked_recompute_(layered_recompute(job)),
        has_attention_(has_attention(job.model)),
        replicas_measured_(replicas_measured(profile)),
        ranks_asked_(asked_ranks(job.strategy)),
        replicas_asked_(asked_numbers(job.strategy.dp_degree, "dp_degree")),
        tensor_asked_(asked_tensor(job)),
        context_asked_(asked_context(job)),
        experts_asked_(asked_experts(job)),
        expert_tensor_asked_(asked_expert_tensor(job)),
        rows_asked_(asked_rows(job)),
        ring_asked_(asked_ring(job)),
        zero_asked_(asked_zero(job.strategy)),
        steps_asked_(asked_numbers(job.strategy.accumulate_steps, "accumulate_steps")),
        sizes_asked_(asked_numbers(job.strategy.micro_batch_size, "micro_batch_size")),
        common_(common_of(job.strategy.schedule_mode)) {
    std::vector<StageDivision> divisions = divisions_of(job);
    divisions.push_back({});
    for (const StageDivision& division : divisions) {
      for (const int replicas : replicas_measured_)
        models_.emplace(std::pair(division, replicas),
                        models_of(job, profile, cores, asked_recompute_, division, replicas));
    }
  }

  void for_each_mesh(const std::vector<int>& pipeline, const SpaceVisitor& visitor) const override {
    const auto& asked = pipeline.empty() ? ranks_asked_ : pipeline;
    ParallelSetup mesh;
    for (const int tensor : tensor_asked_) {
      mesh.tensor = tensor;
      for (const bool rows : rows_asked_) {
        mesh.sequence_parallel = rows;
        mesh.context = 1;
        mesh.ring = false;
        if (!may_divide(mesh, visitor)) continue;
        for (const int context : context_asked_) {
          mesh.context = context;
          for (const bool ring : context > 1 ? ring_asked_ : std::vector<bool>{false}) {
            mesh.ring = ring;
            if (may_divide(mesh, visitor)) for_each_replicas(asked, mesh, visitor);
          }
        }
      }
    }
  }

  std::optional<Refusal> refusal(const ParallelSetup& mesh) const override {
    if (auto fault = division_fault(mesh)) return fault;
    if (!asked_recompute_.fixed_by_training || mesh.recompute == SetupRecompute{})
      return std::nullopt;
    return Refusal{
        LeftOut::Forbidden,
        "training.recompute says what is recomputed; to let the search choose, remove it and "
        "set strategy.recompute (values or \"auto\")"};
  }
  std::int64_t least_step(const ParallelSetup& mesh) const override {
    return least_layer_step(of(mesh), job_, mesh, common_);
  }
  /// Without the time that sums over the devices of ranks may add to it at most.
  std::int64_t least_overlapped_step(const ParallelSetup& mesh) const override {
    const StagePlan whole{0, static_cast<int>(job_.model.layers.size()), RankId(0)};
    const StageMessages told = of(mesh).messages_inside({&whole, 1}, mesh.micro_batch_size).front();
    const std::int64_t all = (told.f + told.i + told.w).value;
    const std::int64_t hidden =
        std::max(all, (mesh.micro_batches * all + mesh.pipeline - 1) / mesh.pipeline);
    return std::max<std::int64_t>(0, least_step(mesh) - hidden);
  }

  LayerCosts layer_costs(const ParallelSetup& mesh) const override {
    LayerCosts costs{{{}}, {}};
    for (const LayerTimes& layer : of(mesh).layer_times(mesh.micro_batch_size))
      costs.of_kind.front().push_back((layer.f + layer.b()).value);
    return costs;
  }

  std::vector<StageCosts> stage_costs(const ParallelSetup& mesh,
                                      std::span<const StagePlan> stages) const override {
    auto costs = of(mesh).stage_costs(stages, mesh.pipeline * mesh.program_replicas(),
                                      mesh.micro_batch_size, job_.training.optimizer);
    for (StageCosts& stage : costs)
      stage.opt = Nanoseconds(stage.opt.value / shards_of(job_, mesh).count);
    set_least_reductions(costs, of(mesh), job_, mesh, stages);
    return costs;
  }

  std::vector<StageMemory> stage_memory(const ParallelSetup& mesh,
                                        std::span<const StagePlan> stages) const override {
    return of(mesh).memory(stages, mesh.micro_batch_size, job_.training.optimizer,
                           shards_of(job_, mesh));
  }

  StageParts stage_parts(const ParallelSetup& mesh, std::span<const StagePlan> stages,
                         std::span<const StageCosts> whole) const override {
    return divided_stage_parts(of(mesh), job_.model, of_layers(mesh), mesh, stages, whole);
  }
  std::vector<Wires> wires(const ParallelSetup& mesh,
                           std::span<const StagePlan> stages) const override {
    return layer_wires(of(mesh), job_, mesh, stages);
  }
  Sending sending(const Schedule& schedule) const override {
    return sending_under(policy_for(job_, schedule));
  }

  CostTable table(const ParallelSetup& mesh, std::span<const StagePlan> stages,
                  int replicas) const override {
    return table_of_some(of(mesh), job_, mesh, stages, replicas);
  }
  int simulated_replicas(const ParallelSetup& mesh) const override {
    return replicas_to_simulate(job_, mesh, common_);
  }

  std::vector<LayerRecompute> recompute_kinds() const override {
    if (!has_attention_) return {LayerRecompute::None, LayerRecompute::Whole};
    return {LayerRecompute::None, LayerRecompute::Attention, LayerRecompute::Whole};
  }
  bool has_recompute(LayerRecompute recompute) const override {
    return asked_recompute_.admits(recompute);
  }
  bool chooses_recompute() const override { return !asked_recompute_.fixed_by_training; }

  bool is_estimated() const override { return false; }
  bool knows_speeds() const override { return false; }
  Bytes least_memory(const ParallelSetup&) const override { return {}; }
  Bytes memory_limit() const override {
    return job_.strategy.memory_limit.value > 0 ? job_.strategy.memory_limit
                                                : job_.cluster.device.memory;
  }
  std::vector<Bytes> rank_memory(const ParallelSetup&) const override { return {}; }

  std::vector<std::string> remarks(const ParallelSetup& mesh) const override {
    std::vector<std::string> remarks{"Costs: " + any_model().source() + "."};
    if (!shares_this_machine(job_.cluster)) return remarks;
    const double slower = of(mesh).contention(mesh.program_replicas() * mesh.pipeline);
    remarks.push_back(
        "The ranks share the " + count_of(any_model().cores(), "core") + " of this machine" +
        (slower > 1
             ? ", so every computation is taken to be " + hundredths(slower) + " times as long."
             : "; no plan with more ranks was tried unless the job names pp_degree or "
               "dp_degree."));
    return remarks;
  }

 private:
  /// Stages of ZeRO; 0 where nothing is sharded.
  static std::vector<int> asked_zero(const Strategy& strategy) {
    if (strategy.sharding_degree == 1) return {0};
    const std::vector<int> asked = asked_numbers(strategy.sharding_stage, "sharding_stage");
    return asked.empty() ? std::vector<int>{1} : asked;
  }

  /// How many pipelines beside one another the profile knows the costs of, ascending.
  static std::vector<int> replicas_measured(const Profile* profile) {
    std::set<int> all = {1};
    if (profile != nullptr)
      for (const DividedProfile& divided : profile->divided) all.insert(divided.replicas);
    return {all.begin(), all.end()};
  }

  static bool has_attention(const Model& model) {
    return std::any_of(model.layers.begin(), model.layers.end(), [&](const Layer& layer) {
      return exec::redone_share(layer, model, LayerRecompute::Attention) > 0;
    });
  }

  /// By LayerRecompute; one where the training says what is computed again.
  static std::vector<CostModel> models_of(const Job& job, const Profile* profile, int cores,
                                          const AskedRecompute& asked,
                                          const StageDivision& division, int replicas) {
    using Kind = RecomputeSpec::Kind;
    std::vector<RecomputeSpec> specs{job.training.recompute};
    if (!asked.fixed_by_training) specs = {{Kind::None}, {Kind::Selective}, {Kind::Full}};
    std::vector<CostModel> models;
    for (const RecomputeSpec& spec : specs)
      models.emplace_back(job.model, job.cluster, profile, cores, spec, division, replicas);
    return models;
  }

  const CostModel& of(const ParallelSetup& mesh) const {
    const StageDivision division = mesh.division();
    const int replicas = std::max(1, mesh.data / division.experts);
    const auto measured = std::ranges::upper_bound(replicas_measured_, replicas) - 1;
    const auto& models = models_.at({division, *measured});
    return asked_recompute_.fixed_by_training
               ? models.front()
               : models[static_cast<std::size_t>(mesh.recompute.of_all)];
  }
  /// What is computed again, by layer.
  std::vector<LayerRecompute> of_layers(const ParallelSetup& mesh) const {
    if (asked_recompute_.fixed_by_training)
      return recompute_of(job_.model, job_.training.recompute);
    return std::vector<LayerRecompute>(job_.model.layers.size(), mesh.recompute.of_all);
  }
  bool is_tensor_open() const { return job_.strategy.opens_mp_degree; }
  bool is_context_open() const { return job_.strategy.opens_cp_degree; }

  /// With the experts and replicas that are asked for.
  void for_each_replicas(const std::vector<int>& asked, ParallelSetup mesh,
                         const SpaceVisitor& visitor) const {
    for (const int experts : experts_asked_) {
      mesh.experts = experts;
      for (const int each : expert_tensor_asked_) {
        if (each > 0 && each == mesh.tensor && is_named(0, expert_tensor_asked_)) continue;
        mesh.expert_tensor_degree = each == mesh.tensor ? 0 : each;
        for (const int replicas : open_or_asked_replicas()) {
          mesh.data = replicas;
          for_each_division(asked, mesh, visitor);
        }
      }
    }
  }

  void for_each_division(const std::vector<int>& asked, const ParallelSetup& mesh,
                         const SpaceVisitor& visitor) const {
    if (!may_divide(mesh, visitor)) return;
    const auto batchings = this->batchings(mesh.data, visitor);
    const auto ranks = rank_counts(asked, mesh, visitor);
    for (const ParallelSetup& batching : batchings) {
      for (const int p : ranks) {
        ParallelSetup setup = mesh;
        setup.micro_batches = batching.micro_batches;
        setup.micro_batch_size = batching.micro_batch_size;
        setup.pipeline = p;
        for (const int zero : zero_asked_) {
          setup.zero = zero;
          visit_recomputes(setup, visitor);
        }
      }
    }
  }

  static std::string not_named(const std::string& field, const std::string& value) {
    return field + " does not name " + value + "; add it to the values there, or write \"auto\"";
  }
  template <class Value>
  static bool is_named(Value value, const std::vector<Value>& asked) {
    return std::find(asked.begin(), asked.end(), value) != asked.end();
  }
  /// Why so many devices of a rank do not divide the layers, as a sentence; "" if they do.
  std::string tensor_refusal(int tensor) const {
    if (tensor == 1) return "";
    const std::string fault = tensor_fault(job_.model, tensor);
    if (!fault.empty() || is_named(tensor, tensor_asked_)) return fault;
    return not_named("mp_degree", "tp " + std::to_string(tensor));
  }
  /// The same of ranks that divide the sequences.
  std::optional<Refusal> context_refusal(const StageDivision& division) const {
    const int context = division.context;
    if (context == 1) return std::nullopt;
    if (std::string fault = context_fault(job_.model, context); !fault.empty())
      return Refusal{LeftOut::IndivisibleSequences, std::move(fault)};
    if (std::string fault = context_fault(job_.model, division); !fault.empty())
      return Refusal{LeftOut::ContextBesideOthers, std::move(fault)};
    if (!is_named(division.ring, ring_asked_))
      return Refusal{LeftOut::ContextBesideOthers,
                     not_named("cp_comm_type", division.ring ? "p2p" : "all_gather")};
    if (is_named(context, context_asked_)) return std::nullopt;
    return Refusal{LeftOut::IndivisibleSequences,
                   not_named("cp_degree", "cp " + std::to_string(context))};
  }
  std::string expert_refusal(const ParallelSetup& mesh) const {
    if (std::string fault = mesh.expert_tensor_fault(); !fault.empty()) return fault;
    const StageDivision division = mesh.division();
    if (mesh.data % division.experts != 0)
      return "ep " + std::to_string(mesh.experts) + " has to divide dp " +
             std::to_string(mesh.data);
    const std::string fault = expert_fault(job_.model, division);
    if (!fault.empty()) return fault;
    if (!is_named(mesh.experts, experts_asked_))
      return not_named("ep_degree", "ep " + std::to_string(mesh.experts));
    const int each = mesh.expert_tensor();
    if (is_named(each, expert_tensor_asked_) ||
        (each == mesh.tensor && is_named(0, expert_tensor_asked_)))
      return "";
    return not_named("expert_tensor_parallel_size", "etp " + std::to_string(each));
  }

  std::string row_refusal(const StageDivision& division) const {
    const int tensor = division.tensor;
    const bool rows = division.rows;
    if (tensor == 1 && !rows) return "";
    const std::string fault = rows ? sequence_fault(job_.model, tensor) : "";
    if (!fault.empty() || is_named(rows, rows_asked_)) return fault;
    return not_named("use_sequence_parallel", rows ? "true" : "false");
  }

  /// Why devices and replicas do not divide the layers so, as a sentence; nullopt: they can.
  std::optional<Refusal> division_fault(const ParallelSetup& mesh) const {
    const StageDivision division = mesh.division();
    const int tensor = division.tensor, experts = division.experts;
    if (auto refusal = tensor_refusal(tensor); !refusal.empty())
      return Refusal{LeftOut::IndivisibleLayers, std::move(refusal)};
    if (auto refusal = row_refusal(division); !refusal.empty())
      return Refusal{tensor == 1 ? LeftOut::SequenceWithoutTensor : LeftOut::IndivisibleRows,
                     std::move(refusal)};
    if (auto refusal = context_refusal(division)) return refusal;
    if (mesh.experts == 1 && mesh.expert_tensor() == tensor) return std::nullopt;
    if (auto refusal = expert_refusal(mesh); !refusal.empty())
      return Refusal{LeftOut::ExpertsApart, std::move(refusal)};
    const int shards = job_.strategy.sharding_degree;
    if (shards == 1 || shards % experts == 0) return std::nullopt;
    return Refusal{LeftOut::ExpertsAcrossGroups,
                   "sharding_degree " + std::to_string(shards) + " has to be a multiple of " +
                       (division.folds_experts() ? "the replicas that hold all experts, "
                                                 : std::string("ep ")) +
                       std::to_string(experts) +
                       ", for the replicas that share out the optimizer's state have all experts"};
  }
  bool may_divide(const ParallelSetup& mesh, const SpaceVisitor& visitor) const {
    if (!division_fault(mesh)) return true;
    visitor.visit(mesh);  // whoever visits it asks refusal(), which has the sentence
    return false;
  }
  /// What does not depend on recompute.
  const CostModel& any_model() const { return models_.at({{}, 1}).front(); }

  void visit_recomputes(ParallelSetup setup, const SpaceVisitor& visitor) const {
    using ByStage = ParallelSpace::ByStage;
    for (const LayerRecompute recompute : asked_recompute_.for_all) {
      setup.recompute = {recompute};
      if (recompute == LayerRecompute::Attention && !has_attention_) {
        visitor.ruled_out(LeftOut::SelectiveWithoutAttention, setup);
      } else {
        visitor.visit(setup);
      }
    }
    if (asked_recompute_.by_stage == ByStage::No) return;
    setup.recompute = {.by_stage = true};
    visitor.visit(setup);
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

  static ParallelSetup setup_of(int ranks, int replicas, int micro_batches = 1, int size = 1) {
    ParallelSetup setup;
    setup.pipeline = ranks;
    setup.data = replicas;
    setup.micro_batches = micro_batches;
    setup.micro_batch_size = size;
    return setup;
  }

  /// Open replicas are the divisors of the number of devices.
  std::vector<int> open_or_asked_replicas() const {
    return replicas_asked_.empty() ? divisors(job_.cluster.devices()) : replicas_asked_;
  }

  /// Whether ranks are more than this machine's cores: then only what the job names is tried.
  bool is_crowded(const std::vector<int>& asked, const ParallelSetup& setup) const {
    const int devices = setup.pipeline * setup.program_replicas() * setup.tensor;
    if (!shares_this_machine(job_.cluster) || devices <= any_model().cores()) return false;
    return (asked.empty() && setup.pipeline > 1) || (replicas_asked_.empty() && setup.data > 1) ||
           (is_tensor_open() && setup.tensor > 1) || (is_context_open() && setup.context > 1);
  }

  std::vector<int> rank_counts(const std::vector<int>& asked, const ParallelSetup& mesh,
                               const SpaceVisitor& visitor) const {
    const int tensor = mesh.tensor, context = mesh.context, replicas = mesh.data;
    std::vector<int> list;
    const auto layers = static_cast<int>(job_.model.layers.size());
    for (const int p : asked.empty() ? open_rank_counts() : asked) {
      ParallelSetup setup = setup_of(p, replicas);
      setup.tensor = tensor;
      setup.context = context;
      if (std::int64_t{p} * replicas * tensor * context > job_.cluster.devices()) {
        // Of what is open only that is tried which there are devices for.
        if ((replicas_asked_.empty() && replicas > 1) || (is_tensor_open() && tensor > 1) ||
            (is_context_open() && context > 1))
          continue;
        visitor.ruled_out(LeftOut::MoreRanksThanDevices, setup);
      } else if (p > layers && common_.whole_ranks) {
        visitor.ruled_out(LeftOut::FewerLayersThanStages, setup);
      } else if (is_crowded(asked, setup)) {
        visitor.ruled_out(LeftOut::MoreRanksThanCores, setup);
      } else {
        list.push_back(p);
      }
    }
    return list;
  }

  /// Whether the batch divides into an asked size and an asked number of micro-batches, where the
  /// job names both.
  bool can_be_cut(int batch) const {
    return std::any_of(steps_asked_.begin(), steps_asked_.end(),
                       [&](int m) { return batch % m == 0 && admits(sizes_asked_, batch / m); });
  }

  /// The micro-batch sizes and numbers of one replica.
  std::vector<ParallelSetup> batchings(int replicas, const SpaceVisitor& visitor) const {
    std::vector<ParallelSetup> list;
    if (job_.global_batch % replicas != 0) {
      visitor.ruled_out(LeftOut::ReplicasOfGlobalBatch, setup_of(1, replicas));
      return list;
    }
    const int batch = job_.global_batch / replicas;
    for (const int m : steps_asked_) {
      if (batch % m != 0) visitor.ruled_out(LeftOut::StepsOfGlobalBatch, setup_of(1, replicas, m));
    }
    for (const int b : sizes_asked_) {
      if (batch % b != 0)
        visitor.ruled_out(LeftOut::SizeOfGlobalBatch, setup_of(1, replicas, 1, b));
    }
    if (!steps_asked_.empty() && !sizes_asked_.empty() && !can_be_cut(batch))
      visitor.ruled_out(LeftOut::NotGlobalBatch,
                        setup_of(1, replicas, steps_asked_.front(), sizes_asked_.front()));
    for (int m = 1; m <= batch; ++m) {
      if (batch % m != 0) continue;
      const int size = batch / m;
      if (!admits(steps_asked_, m) || !admits(sizes_asked_, size)) continue;
      if (any_model().refusal(size)) {
        visitor.ruled_out(LeftOut::SizeNotProfiled, setup_of(1, replicas, m, size));
        continue;
      }
      ParallelSetup setup;
      setup.data = replicas;
      setup.micro_batches = m;
      setup.micro_batch_size = size;
      list.push_back(setup);
    }
    return list;
  }

  const Job& job_;
  AskedRecompute asked_recompute_;
  bool has_attention_;
  const std::vector<int> replicas_measured_;
  /// By division and by the most replicas that were measured.
  std::map<std::pair<StageDivision, int>, std::vector<CostModel>> models_;
  std::vector<int> ranks_asked_, replicas_asked_, tensor_asked_, context_asked_, experts_asked_,
      expert_tensor_asked_;
  std::vector<bool> rows_asked_;  // sequence parallelism
  std::vector<bool> ring_asked_;  // keys and values go round the ranks along cp
  std::vector<int> zero_asked_, steps_asked_, sizes_asked_;
  CommonOfSchedules common_;
};

}  // namespace

std::unique_ptr<ConfigurationCosts> layer_configurations(const Job& job, const Profile* profile,
                                                         int cores) {
  return std::make_unique<LayerConfigurations>(job, profile, cores);
}

}  // namespace pipewright::planner
