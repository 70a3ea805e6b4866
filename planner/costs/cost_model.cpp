#include "planner/costs/cost_model.hpp"

#include <algorithm>
#include <cmath>

#include "core/base/error.hpp"
#include "core/cluster/collectives.hpp"
#include "core/model/tie.hpp"
#include "core/order/devices.hpp"
#include "core/plan/tied_stages.hpp"
#include "exec/layers/divided/divided_parts.hpp"
#include "planner/memory/memory.hpp"

namespace pipewright::planner {
namespace {

// AdamW reads weight, gradient and two moments and writes three of them back; SGD reads two and
// writes one.
constexpr double kAdamWAccesses = 7, kSgdAccesses = 3;

Nanoseconds rounded(double ns) { return Nanoseconds(std::llround(ns)); }

LayerTimes mix(const LayerTimes& a, const LayerTimes& b, double share_of_b) {
  const auto between = [share_of_b](Nanoseconds x, Nanoseconds y) {
    return rounded(static_cast<double>(x.value) +
                   share_of_b * static_cast<double>(y.value - x.value));
  };
  return {between(a.f, b.f), between(a.i, b.i), between(a.w, b.w), between(a.opt, b.opt),
          between(a.saved_by_b, b.saved_by_b)};
}

void add(LayerTimes& sum, const LayerTimes& more) {
  sum.f += more.f;
  sum.i += more.i;
  sum.w += more.w;
  sum.opt += more.opt;
  sum.saved_by_b += more.saved_by_b;
}

void require_same_model(const Profile& profile, const Model& model) {
  if (profile.model_name != model.name) {
    throw InputError("the profile is of the model \"" + profile.model_name +
                     "\", the job trains \"" + model.name +
                     "\"; run `pipewright profile` for this model");
  }
  for (const ProfileSize& size : profile.sizes) {
    if (size.layers.size() == model.layers.size()) continue;
    throw InputError("the profile has " + std::to_string(size.layers.size()) +
                     " layers, the model \"" + model.name + "\" has " +
                     std::to_string(model.layers.size()) +
                     "; run `pipewright profile` for this model");
  }
  if (profile.sizes.empty()) throw InputError("the profile holds no micro-batch size");
}

void require_same_device(const Profile& profile, const Cluster& cluster) {
  const DeviceSpec &measured = profile.cluster.device, &asked = cluster.device;
  if (measured.kind == asked.kind && measured.model == asked.model) return;
  throw InputError("the profile was taken on " + measured.kind + " \"" + measured.model +
                   "\", the job's cluster has " + asked.kind + " \"" + asked.model +
                   "\"; profile that machine, or leave the profile out");
}

/// Between how many of its neighbours and a stage messages are transfers: those of other ranks.
int transfers_at(std::span<const StagePlan> stages, std::size_t s) {
  const bool before = s > 0 && stages[s - 1].rank != stages[s].rank;
  const bool after = s + 1 < stages.size() && stages[s + 1].rank != stages[s].rank;
  return (before ? 1 : 0) + (after ? 1 : 0);
}

/// By part: of a call, what is computed meanwhile, as a share of all that the action computes.
std::vector<double> shares_beside(const std::vector<Part>& parts) {
  double all = 0;
  for (const Part& part : parts)
    all += part.is_computation() ? static_cast<double>(part.weight) : 0;
  std::vector<double> shares(parts.size(), 0);
  for (std::size_t k = 0; k + 1 < parts.size(); ++k) {
    if (parts[k].beside && parts[k + 1].is_computation())
      shares[k] = static_cast<double>(parts[k + 1].weight) / all;
  }
  return shares;
}

std::string source_of(const Cluster& cluster, const std::optional<Profile>& profile) {
  if (profile) {
    return "profile of " + profile->model_name + " on " + profile->cluster.name + ", " +
           std::to_string(profile->ranks_measured) + " ranks at once, " +
           std::to_string(profile->repeats) +
           (profile->clock == ProfileClock::Cpu ? " steps, CPU time" : " steps");
  }
  const double percent = 100 * coefficients_for(cluster.device.kind).efficiency;
  return "assumed: " + std::to_string(std::llround(percent)) + " % of the peak rate of " +
         cluster.device.model;
}

}  // namespace

DeviceCoefficients coefficients_for(std::string_view device_kind) {
  if (device_kind == "cuda") return {0.5, 1.5e12, Nanoseconds(5'000)};
  return {0.25, 5e9, Nanoseconds(20'000)};
}

bool shares_this_machine(const Cluster& cluster) {
  return cluster.nodes == 1 && cluster.device.kind == "cpu" && cluster.device.model == "cpu";
}

CostModel::CostModel(const Model& model, const Cluster& cluster, const Profile* profile, int cores,
                     const RecomputeSpec& recompute, const StageDivision& division, int replicas)
    : model_(model),
      cluster_(cluster),
      cores_(cores > 0 ? cores : cores_of_this_machine()),
      division_(division),
      buffers_(std::make_shared<KnownBuffers>()) {
  if (profile != nullptr) {
    require_same_model(*profile, model);
    require_same_device(*profile, cluster);
    profile_ = *profile;
    const DividedProfile* divided = find_divided(*profile, division, replicas);
    StageDivision gathered = division;
    gathered.ring = false;
    if (divided == nullptr) divided = find_divided(*profile, gathered, replicas);
    if (divided != nullptr) {
      profile_->sizes = divided->sizes;
      profile_->ranks_measured = divided->ranks_measured;
      measures_parts_ = true;
    }
    profile_->divided.clear();  // a model for each of them would hold all of them
    std::sort(profile_->sizes.begin(), profile_->sizes.end(),
              [](const ProfileSize& a, const ProfileSize& b) {
                return a.micro_batch_size < b.micro_batch_size;
              });
  }
  recompute_ = recompute_of(model, recompute);
  for (std::size_t l = 0; l < recompute_.size(); ++l)
    redone_.push_back(exec::redone_share(model.layers[l], model, recompute_[l]));
  for (const Layer& layer : model.layers) {
    if (!profile_) work_.push_back(exec::footprint(layer, model, 1));
  }
  source_ = source_of(cluster_, profile_);
  if (profile_ && division_ != StageDivision{} && !measures_parts_)
    source_ += ", divided layers by their share of the operations";
  if (division_ != StageDivision{}) divide_layers();
}

/// Where parts of layers were not measured, times are those of whole layers: what one of the
/// devices computes of a layer takes as much of them as it has of the layer's operations.
void CostModel::divide_layers() {
  const auto share = [](double own, double all) { return all > 0 ? own / all : 1; };
  for (int l = 0; l < static_cast<int>(model_.layers.size()); ++l) {
    if (!measures_parts_) {
      const Layer& layer = model_.layers[static_cast<std::size_t>(l)];
      const exec::LayerFootprint all = exec::footprint(layer, model_, 1);
      const exec::LayerFootprint own = exec::footprint_of_part(model_, l, 1, division_);
      own_share_.push_back({share(own.forward_flops, all.forward_flops),
                            share(own.input_gradient_flops, all.input_gradient_flops),
                            share(own.weight_gradient_flops, all.weight_gradient_flops)});
    }
    Calls calls;
    for (const ActionParts& action :
         exec::divided_parts(model_, l, l + 1, 1, recompute_, division_)) {
      if (action.kind == ActionKind::B) continue;
      const std::vector<double> beside = shares_beside(action.parts);
      for (std::size_t k = 0; k < action.parts.size(); ++k) {
        const Part& part = action.parts[k];
        if (part.is_computation()) continue;
        auto& of_kind = action.kind == ActionKind::F   ? calls.f
                        : action.kind == ActionKind::I ? calls.i
                                                       : calls.w;
        if (action.kind == ActionKind::W && part.call.kind == ActionKind::AllReduce)
          calls.norms = part.call;
        else
          of_kind.push_back({part.call, beside[k]});
      }
    }
    calls_.push_back(std::move(calls));
  }
}

Nanoseconds CostModel::call_time(const Call& call) const {
  const bool is_along_tp = call.group == kTensorAxis;
  const int devices = exec::members_of(division_, call);
  CostTable table;
  table.every_route =
      profile_ && cluster_.nodes == 1
          ? RouteCosts{profile_->transfer_latency, profile_->transfer_bytes_per_second, {}}
          : way_between(cluster_, 0, (is_along_tp ? devices : cluster_.devices()) - 1);
  set_collectives(table, cluster_, {0});
  const Collective members{.kind = call.kind,
                           .stage = {},
                           .members = {{RankId(0), kNoInstruction}},
                           .call_bytes = bytes_of(call),
                           .devices = devices};
  return table.collective_time(members, 1);
}

std::vector<StageMessages> CostModel::messages_inside(std::span<const StagePlan> stages,
                                                      int micro_batch_size) const {
  const std::vector<LayerTimes> layers =
      division_.ring ? layer_times(micro_batch_size) : std::vector<LayerTimes>(calls_.size());
  const auto times = [&](const std::vector<Told>& calls, Nanoseconds computed) {
    Nanoseconds sum;
    for (Told told : calls) {
      told.call.shape->front() *= micro_batch_size;
      const Nanoseconds hidden = rounded(told.beside * static_cast<double>(computed.value));
      sum += std::max(Nanoseconds(), call_time(told.call) - hidden);
    }
    return sum;
  };
  std::vector<StageMessages> messages(stages.size());
  for (std::size_t s = 0; s < stages.size() && !calls_.empty(); ++s) {
    for (int l = stages[s].first_layer; l < stages[s].end_layer; ++l) {
      const auto layer = static_cast<std::size_t>(l);
      messages[s].f += times(calls_[layer].f, layers[layer].f);
      messages[s].i += times(calls_[layer].i, layers[layer].i);
      messages[s].w += times(calls_[layer].w, layers[layer].w);
    }
    messages[s].w += time_of_norms(stages[s]);
  }
  return messages;
}

/// The gradients of a stage's norms are one sum.
Nanoseconds CostModel::time_of_norms(const StagePlan& stage) const {
  std::optional<Call> all;
  for (int l = stage.first_layer; l < stage.end_layer; ++l) {
    const Call& own = calls_[static_cast<std::size_t>(l)].norms;
    if (!own.shape) continue;
    if (all)
      all->shape->back() += own.shape->back();
    else
      all = own;
  }
  return all ? call_time(*all) : Nanoseconds();
}

std::optional<std::string> CostModel::refusal(int micro_batch_size) const {
  if (!profile_) return std::nullopt;
  const int least = profile_->sizes.front().micro_batch_size;
  const int most = profile_->sizes.back().micro_batch_size;
  if (micro_batch_size >= least && micro_batch_size <= most) return std::nullopt;
  return "micro-batches of " + std::to_string(micro_batch_size) +
         " were not profiled: the profile covers " + std::to_string(least) + " to " +
         std::to_string(most);
}

CostModel::Between CostModel::sizes_around(int micro_batch_size) const {
  const auto& sizes = profile_->sizes;
  const auto above = std::lower_bound(
      sizes.begin(), sizes.end(), micro_batch_size,
      [](const ProfileSize& size, int wanted) { return size.micro_batch_size < wanted; });
  PIPEWRIGHT_ASSERT(above != sizes.end(), "a size beyond the profile was priced");
  if (above->micro_batch_size == micro_batch_size || above == sizes.begin())
    return {*above, *above, 0};
  const auto below = above - 1;
  return {*below, *above,
          static_cast<double>(micro_batch_size - below->micro_batch_size) /
              (above->micro_batch_size - below->micro_batch_size)};
}

LayerTimes CostModel::measured(std::size_t layer, int micro_batch_size) const {
  const bool is_last = layer + 1 == model_.layers.size();
  const auto at = [&](const ProfileSize& size) {
    LayerTimes times = size.layers[layer];
    if (is_last) {
      times.f += size.loss.f;
      times.i += size.loss.i;
    }
    return times;
  };
  const Between sizes = sizes_around(micro_batch_size);
  return mix(at(sizes.below), at(sizes.above), sizes.share_of_above);
}

LayerTimes CostModel::message_times(const StagePlan& stage, int ends, int micro_batch_size) const {
  if (!profile_) return {};
  double bytes = 0;
  for (const int cut : {stage.first_layer, stage.end_layer}) {
    if (cut == 0 || cut == static_cast<int>(model_.layers.size())) continue;
    const Layer& before = model_.layers[static_cast<std::size_t>(cut) - 1];
    bytes += static_cast<double>(exec::output_bytes(before, model_, micro_batch_size)) /
             members_of_message();
  }
  const Between sizes = sizes_around(micro_batch_size);
  const auto rate = [&](double ProfileSize::*per_byte) {
    return sizes.below.*per_byte +
           sizes.share_of_above * (sizes.above.*per_byte - sizes.below.*per_byte);
  };
  const Nanoseconds issuing = profile_->transfer_issue * ends;
  return {.f = rounded(bytes * rate(&ProfileSize::f_ns_per_message_byte)) + issuing,
          .i = rounded(bytes * rate(&ProfileSize::i_ns_per_message_byte)) + issuing,
          .w = {},
          .opt = {}};
}

LayerTimes CostModel::computed(std::size_t layer, int micro_batch_size) const {
  const exec::LayerFootprint& one = work_[layer];
  const DeviceCoefficients rates = coefficients_for(cluster_.device.kind);
  const double rate = cluster_.device.flops * rates.efficiency;
  PIPEWRIGHT_ASSERT(rate > 0, "the cluster's device has no rate");
  LayerTimes times;
  times.f = rounded(micro_batch_size * one.forward_flops / rate * 1e9);
  times.i = rounded(micro_batch_size * one.input_gradient_flops / rate * 1e9);
  times.w = rounded(micro_batch_size * one.weight_gradient_flops / rate * 1e9);
  return times;
}

Nanoseconds CostModel::overhead() const {
  return profile_ ? profile_->action_overhead
                  : coefficients_for(cluster_.device.kind).action_overhead;
}

std::vector<LayerTimes> CostModel::layer_times(int micro_batch_size) const {
  std::vector<LayerTimes> times;
  times.reserve(model_.layers.size());
  for (std::size_t l = 0; l < model_.layers.size(); ++l) {
    times.push_back(profile_ ? measured(l, micro_batch_size) : computed(l, micro_batch_size));
    if (!own_share_.empty()) {
      const auto own = [](Nanoseconds time, double share) {
        return rounded(static_cast<double>(time.value) * share);
      };
      LayerTimes& time = times.back();
      time = {own(time.f, own_share_[l][0]), own(time.i, own_share_[l][1]),
              own(time.w, own_share_[l][2]), own(time.opt, own_share_[l][2]),
              own(time.saved_by_b, std::min(own_share_[l][1], own_share_[l][2]))};
    }
    const auto forward = static_cast<double>(times.back().f.value);
    times.back().i += rounded(redone_[l] * forward);
  }
  return times;
}

double CostModel::contention(int ranks) const {
  if (!shares_this_machine(cluster_)) return 1;
  if (profile_ && profile_->clock == ProfileClock::Cpu) return 1;  // as if each rank had a core
  const double cores = cores_;
  const double asked = std::max(1.0, ranks * division_.tensor / cores);
  const double contained = profile_ ? std::max(1.0, profile_->ranks_measured / cores) : 1.0;
  return std::max(1.0, asked / contained);
}

RouteCosts CostModel::route(int source, int destination) const {
  if (profile_ && cluster_.nodes == 1)
    return {profile_->transfer_latency, profile_->transfer_bytes_per_second, {}};
  return way_between(cluster_, source * division_.tensor, destination * division_.tensor);
}

std::vector<Bytes> CostModel::message_bytes(std::span<const StagePlan> stages,
                                            int micro_batch_size) const {
  std::vector<Bytes> bytes;
  for (std::size_t s = 0; s + 1 < stages.size(); ++s) {
    const Layer& last = model_.layers[static_cast<std::size_t>(stages[s].end_layer) - 1];
    bytes.emplace_back(exec::output_bytes(last, model_, micro_batch_size) / members_of_message());
  }
  return bytes;
}

std::vector<StageCosts> CostModel::stage_costs(std::span<const StagePlan> stages, int ranks,
                                               int micro_batch_size,
                                               std::string_view optimizer) const {
  const auto layers = layer_times(micro_batch_size);
  const double slower = contention(ranks);
  const auto scaled = [slower](Nanoseconds t) {
    return rounded(static_cast<double>(t.value) * slower);
  };
  std::vector<StageCosts> costs;
  const std::vector<StageMessages> inside = messages_inside(stages, micro_batch_size);
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const StagePlan& stage = stages[s];
    LayerTimes sum;
    for (int l = stage.first_layer; l < stage.end_layer; ++l) {
      add(sum, layers[static_cast<std::size_t>(l)]);
    }
    if (!profile_) {
      const double accesses = optimizer == "adamw" ? kAdamWAccesses : kSgdAccesses;
      const auto bytes =
          static_cast<double>(state_of(model_, stage, optimizer, division_).parameters.value);
      sum.opt = rounded(accesses * bytes /
                        coefficients_for(cluster_.device.kind).update_bytes_per_second * 1e9);
    }
    if (profile_) {
      const auto stages_of_rank = std::ranges::count(stages, stage.rank, &StagePlan::rank);
      sum.opt += Nanoseconds(profile_->step_overhead.value / stages_of_rank);
    }
    add(sum, message_times(stage, transfers_at(stages, s), micro_batch_size));
    costs.push_back({scaled(sum.f + overhead()), scaled(sum.i + overhead()),
                     scaled(sum.w + overhead()), scaled(sum.b() + overhead()), scaled(sum.opt)});
    const StageMessages& told = inside[s];
    costs.back().f += told.f;
    costs.back().i += told.i;
    costs.back().w += told.w;
    costs.back().b += told.i + told.w;
  }
  return costs;
}

std::vector<StageMemory> CostModel::memory(std::span<const StagePlan> stages, int micro_batch_size,
                                           std::string_view optimizer,
                                           const StateShards& shards) const {
  std::vector<StageMemory> memory;
  for (const StagePlan& stage : stages) {
    const StageState whole = state_of(model_, stage, optimizer, division_);
    memory.push_back(
        memory_of(whole, buffers_->of(model_, stage, micro_batch_size, recompute_, division_)));
    divide(memory.back(), whole, shards);
    if (cluster_.device.kind == "cpu") set_copies(memory.back(), whole, shards);
  }
  return memory;
}

CostTable CostModel::table(std::span<const StagePlan> stages, int ranks, int micro_batch_size,
                           std::string_view optimizer, const StateShards& shards) const {
  CostTable costs;
  costs.source = source_;
  costs.stages = stage_costs(stages, ranks, micro_batch_size, optimizer);
  costs.activation_bytes = costs.gradient_bytes = message_bytes(stages, micro_batch_size);
  costs.memory = memory(stages, micro_batch_size, optimizer, shards);
  for (std::size_t s = 0; s < stages.size(); ++s) {
    costs.parameter_bytes.push_back(gradients_of(model_, costs.memory[s].version));
    costs.stages[s].opt = Nanoseconds(costs.stages[s].opt.value / shards.count);
  }
  if (!tied_stages(model_, stages).empty())
    costs.tied_bytes =
        gradients_of(model_, Bytes(tie_of(model_)->weights * model_.bytes_per_element));
  std::vector<int> device_of_rank(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r)
    device_of_rank[static_cast<std::size_t>(r)] = r * division_.tensor;
  if (profile_ && cluster_.nodes == 1) {
    costs.every_route = {profile_->transfer_latency, profile_->transfer_bytes_per_second, {}};
    set_collectives(costs, cluster_, device_of_rank);
  } else {
    set_routes(costs, cluster_, device_of_rank);
  }
  return costs;
}

}  // namespace pipewright::planner
