#include "exec/profile/profile.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "core/base/error.hpp"
#include "core/model/context_split.hpp"
#include "exec/layers/footprint.hpp"
#include "exec/profile/transfer.hpp"

namespace pipewright::exec {
namespace {

ProfileClock clock_of(const ProfileOptions& options) {
  return options.clock == local::ClockKind::Virtual ? ProfileClock::Cpu : ProfileClock::Wall;
}

/// Layers of each rank, about equal work: begins, by rank.
std::vector<int> cut_evenly(const Model& model, int ranks, int micro_batch_size) {
  std::vector<double> work;
  for (const Layer& layer : model.layers)
    work.push_back(footprint(layer, model, micro_batch_size).forward_flops);
  const double total = std::accumulate(work.begin(), work.end(), 0.0);
  const auto layers = static_cast<int>(work.size());
  std::vector<int> begins;
  double before = 0;
  int layer = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    begins.push_back(layer);
    const int last = layers - (ranks - 1 - rank);  // every rank gets one
    do {
      before += work[static_cast<std::size_t>(layer++)];
    } while (layer < last &&
             before + work[static_cast<std::size_t>(layer)] / 2 < total * (rank + 1) / ranks);
  }
  return begins;
}

/// One size, whole or divided, measured twice: every layer as a stage of its own, and the layers of
/// a rank as one stage. The difference is what handing over messages costs.
class SizeMeter {
 public:
  SizeMeter(const Model& model, int micro_batch_size, const StageDivision& division, int replicas,
            const ProfileOptions& options, std::int64_t budget_ns)
      : layers_(static_cast<int>(model.layers.size())),
        devices_(division.tensor * division.experts * division.context * replicas),
        clock_(clock_of(options)) {
    const int ranks = std::clamp(options.ranks / devices_, 1, layers_);
    ranks_begin_ = cut_evenly(model, ranks, micro_batch_size);
    ProfileCase what{.model = &model,
                     .stage_begin = {},
                     .first_stage = ranks_begin_,
                     .division = division,
                     .replicas = replicas,
                     .micro_batch_size = micro_batch_size,
                     .optimizer = options.optimizer,
                     .data = options.data,
                     .options = {.numerics = options.numerics},
                     .seed = options.seed,
                     .clock = options.clock,
                     .budget_ns = budget_ns * 2 / 3,
                     .interrupted = options.interrupted,
                     .backend = options.backend};
    for (int l = 0; l < layers_; ++l) what.stage_begin.push_back(l);
    single_ = run_profile_case(what);
    what.stage_begin = ranks_begin_;
    std::iota(what.first_stage.begin(), what.first_stage.end(), 0);
    what.budget_ns = budget_ns / 3;
    joined_ = run_profile_case(what);
    const bool is_whole = division == StageDivision{};
    if (is_whole && replicas == options.replicas.front())
      loss_ = options.backend != nullptr ? options.backend->loss(model, micro_batch_size)
                                         : measure_loss(model, micro_batch_size, options.clock);
    for (int l = 0; l < layers_; ++l) {
      const LayerFootprint part =
          is_whole ? footprint(model.layers[static_cast<std::size_t>(l)], model, micro_batch_size)
                   : footprint_of_part(model, l, micro_batch_size, division);
      message_bytes_.push_back(static_cast<double>(part.output_bytes));
      parameters_.push_back(static_cast<double>(part.parameters));
    }
    micro_batch_size_ = micro_batch_size;
  }

  int steps() const { return single_.steps; }
  int ranks() const { return static_cast<int>(ranks_begin_.size()); }
  int devices() const { return ranks() * devices_; }  // that computed at once

  ProfileSize result() {
    ProfileSize size;
    size.micro_batch_size = micro_batch_size_;
    size.f_ns_per_message_byte = per_byte(&StageSamples::f);
    size.i_ns_per_message_byte = per_byte(&StageSamples::i);
    for (int s = 0; s < layers_; ++s) {
      const StageSamples& samples = single_.stages[static_cast<std::size_t>(s)];
      size.spreads.push_back(
          {distribution_of(samples.f), distribution_of(samples.i), distribution_of(samples.w), {}});
      const LayerSpread& spread = size.spreads.back();
      const double bytes = message_bytes(s - 1) + message_bytes(s);
      size.layers.push_back({.f = without(spread.f, bytes * size.f_ns_per_message_byte),
                             .i = without(spread.i, bytes * size.i_ns_per_message_byte),
                             .w = typical(spread.w),
                             .opt = {}});
    }
    if (loss_) take_out(*loss_, size);
    for (int r = 0; r < ranks(); ++r) share_update(r, size);
    return size;
  }

 private:
  /// Of the message after a layer, if another stage follows in single_.
  double message_bytes(int layer) const {
    return layer < 0 || layer + 1 >= layers_ ? 0 : message_bytes_[static_cast<std::size_t>(layer)];
  }
  int end_of(int rank) const {
    return rank + 1 < ranks() ? ranks_begin_[static_cast<std::size_t>(rank) + 1] : layers_;
  }

  Nanoseconds typical(const Distribution& measured) const {
    return pipewright::typical(measured, clock_);
  }
  double typical_ns(const std::vector<std::int64_t>& samples) const {
    return static_cast<double>(typical(distribution_of(samples)).value);
  }
  /// No layer is free: a cost of 0 would say that it was not measured.
  Nanoseconds without(const Distribution& measured, double ns) const {
    return Nanoseconds(std::max<std::int64_t>(1, typical(measured).value - std::llround(ns)));
  }

  /// The rank's stages in single_, messages between them, less the one stage in joined_.
  double per_byte(std::vector<std::int64_t> StageSamples::*kind) const {
    double more_ns = 0, bytes = 0;
    for (int r = 0; r < ranks(); ++r) {
      const int last = end_of(r) - 1;
      for (int s = ranks_begin_[static_cast<std::size_t>(r)]; s <= last; ++s) {
        more_ns += typical_ns(single_.stages[static_cast<std::size_t>(s)].*kind);
        if (s < last) bytes += 2 * message_bytes(s);  // written by one, read by the next
      }
      more_ns -= typical_ns(joined_.stages[static_cast<std::size_t>(r)].*kind);
    }
    return bytes > 0 ? std::max(0.0, more_ns / bytes) : 0;
  }

  /// The last layer was measured with the loss after it.
  static void take_out(const LossTimes& loss, ProfileSize& size) {
    const auto part = [](Nanoseconds& whole, std::int64_t loss_ns) {
      const Nanoseconds taken(
          std::clamp<std::int64_t>(loss_ns, 1, std::max<std::int64_t>(1, whole.value - 1)));
      whole = std::max(Nanoseconds(1), whole - taken);
      return taken;
    };
    size.loss.f = part(size.layers.back().f, loss.f);
    size.loss.i = part(size.layers.back().i, loss.i);
  }

  /// A rank updates all its parameters at once, and goes through them one after the other: each
  /// layer's part is that of its parameters.
  void share_update(int rank, ProfileSize& size) const {
    const int begin = ranks_begin_[static_cast<std::size_t>(rank)];
    std::vector<std::int64_t> samples = single_.opt[static_cast<std::size_t>(rank)];
    const auto& more = joined_.opt[static_cast<std::size_t>(rank)];
    samples.insert(samples.end(), more.begin(), more.end());
    double all = 0;
    for (int l = begin; l < end_of(rank); ++l) all += parameters_[static_cast<std::size_t>(l)];
    for (int l = begin; l < end_of(rank) && all > 0; ++l) {
      const auto at = static_cast<std::size_t>(l);
      std::vector<std::int64_t> own;
      for (const std::int64_t ns : samples)
        own.push_back(std::llround(static_cast<double>(ns) * parameters_[at] / all));
      size.spreads[at].opt = distribution_of(std::move(own));
      size.layers[at].opt = typical(size.spreads[at].opt);
    }
  }

  const int layers_, devices_;  // of a rank
  const ProfileClock clock_;
  int micro_batch_size_ = 0;
  std::vector<int> ranks_begin_;  // by rank: its first layer
  ProfileSamples single_, joined_;
  std::optional<LossTimes> loss_;                   // of whole layers
  std::vector<double> message_bytes_, parameters_;  // by layer
};

void require_division(const Model& model, const StageDivision& ranks) {
  for (const std::string& fault :
       {tensor_fault(model, ranks.tensor), expert_fault(model, ranks), context_fault(model, ranks)})
    if (!fault.empty()) throw InputError(fault);
}

}  // namespace

Profile measure_profile(const Model& model, const Cluster& machine, const ProfileOptions& options) {
  Profile profile;
  profile.model_name = model.name;
  profile.cluster = machine;
  profile.clock = clock_of(options);
  PIPEWRIGHT_ASSERT(options.backend == nullptr || options.divisions.empty(),
                    "divided layers are measured on CPUs alone");
  // A fifth for transfers and overhead, the rest shared by the sizes and divisions.
  const std::int64_t budget_ns =
      options.budget_ns * 4 / 5 /
      static_cast<std::int64_t>(options.micro_batch_sizes.size() * options.replicas.size() *
                                (options.divisions.size() + 1));
  const int first = options.replicas.front();
  const auto measure = [&](int size, const StageDivision& division, int replicas,
                           int& ranks_measured) {
    SizeMeter meter(model, size, division, replicas, options, budget_ns);
    ranks_measured = meter.devices();
    profile.repeats =
        profile.repeats == 0 ? meter.steps() : std::min(profile.repeats, meter.steps());
    return meter.result();
  };
  std::vector<StageDivision> divisions = {{}};
  for (const StageDivision& division : options.divisions) {
    require_division(model, division);
    divisions.push_back(division);
  }
  for (const int replicas : options.replicas) {
    for (const StageDivision& division : divisions) {
      if (replicas != first || division != StageDivision{})
        profile.divided.push_back(
            {.ranks = division, .replicas = replicas, .ranks_measured = 1, .sizes = {}});
    }
  }
  for (const int size : options.micro_batch_sizes) {
    profile.sizes.push_back(measure(size, {}, first, profile.ranks_measured));
    for (DividedProfile& divided : profile.divided)
      divided.sizes.push_back(
          measure(size, divided.ranks, divided.replicas, divided.ranks_measured));
  }
  // What is measured first stands for fewer, too.
  for (DividedProfile& divided : profile.divided)
    if (divided.replicas == first) divided.replicas = 1;
  constexpr int kTransferRepeats = 20;
  const TransferTimes transfers = options.backend != nullptr ? options.backend->transfers()
                                                             : measure_transfers(kTransferRepeats);
  profile.transfer_latency = transfers.latency;
  profile.transfer_bytes_per_second = transfers.bytes_per_second;
  if (options.backend != nullptr) {
    profile.action_overhead = options.backend->action_overhead();
  } else if (options.clock == local::ClockKind::Wall) {  // CPU time leaves the runtime's part out
    profile.action_overhead = measure_action_overhead(kTransferRepeats);
  }
  return profile;
}

}  // namespace pipewright::exec
