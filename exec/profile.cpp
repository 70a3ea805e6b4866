#include "exec/profile.hpp"

#include <algorithm>
#include <barrier>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>

#include "core/error.hpp"
#include "exec/buffer.hpp"
#include "exec/cpu/stage.hpp"
#include "exec/data.hpp"
#include "exec/layer.hpp"
#include "exec/local/waiting.hpp"
#include "exec/profile_transfer.hpp"
#include "exec/random.hpp"

namespace pipewright::exec {
namespace {

constexpr int kLeastRepeats = 3, kMostRepeats = 200;

struct Samples {
  std::vector<std::int64_t> f, i, w, opt;

  void join(const Samples& o) {
    f.insert(f.end(), o.f.begin(), o.f.end());
    i.insert(i.end(), o.i.begin(), o.i.end());
    w.insert(w.end(), o.w.begin(), o.w.end());
    opt.insert(opt.end(), o.opt.begin(), o.opt.end());
  }
};

Nanoseconds median(std::vector<std::int64_t>& samples) {
  if (samples.empty()) return Nanoseconds(0);
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  return Nanoseconds(*middle);
}

LayerTimes medians(Samples& samples) {
  return {.f = median(samples.f),
          .i = median(samples.i),
          .w = median(samples.w),
          .opt = median(samples.opt)};
}

template <class Work>
std::int64_t time_of(Work work) {
  const std::int64_t begin = local::steady_ns();
  work();
  return local::steady_ns() - begin;
}

/// Repeats `once` until the time is used, at least kLeastRepeats times after a first one that warms
/// caches and pools and does not count.
template <class Once>
int repeat(std::int64_t budget_ns, const std::atomic<bool>* interrupted, Once once) {
  once(false);
  const std::int64_t until = local::steady_ns() + budget_ns;
  int repeats = 0;
  while (repeats < kLeastRepeats || (repeats < kMostRepeats && local::steady_ns() < until)) {
    if (interrupted != nullptr && interrupted->load()) throw RunError("profiling was interrupted");
    once(true);
    ++repeats;
  }
  return repeats;
}

/// One layer on one thread.
class LayerMeter {
 public:
  LayerMeter(const Model& model, int index, int micro_batch_size, const ProfileOptions& options)
      : is_first_(index == 0) {
    const Layer& layer = model.layers[static_cast<std::size_t>(index)];
    const int width = width_in_front_of(model, index);
    const Extent extent{.samples = micro_batch_size, .sequence = model.sequence};
    layer_ = make_layer(layer, {.extent = extent,
                                .pool = &pool_,
                                .seed = options.seed,
                                .path = layer_path("", index, layer),
                                .width = width});
    layer_->collect(parameters_);
    optimizer_.emplace(options.optimizer, parameters_);
    saved_ = layer_->new_saved();
    if (width > 0) {
      input_ = pool_.take(extent.words(width));
      fill(input_, options.seed);
    } else {
      input_ = pool_.take(static_cast<std::size_t>(extent.rows()));
      std::fill_n(input_.ids(), input_.words(), 0);
      for (std::size_t k = 0; k < input_.words(); ++k) {
        input_.ids()[k] = static_cast<std::int32_t>(uniform_below(
            options.seed, k, static_cast<std::uint64_t>(std::max(1, layer.vocabulary))));
      }
    }
    const int behind = width_behind(layer, width, layer_path("", index, layer));
    gradient_ = pool_.take(extent.words(behind));
    fill(gradient_, options.seed + 1);
  }

  /// F, I, W and the update once; notes the times if they count.
  void once(bool counts, Samples& samples) {
    Buffer output, result;
    // The layer may write into what nobody shares; ours are shared.
    const std::int64_t f = time_of([&] { output = layer_->forward(input_, saved_); });
    const std::int64_t i =
        time_of([&] { result = layer_->backward_input(gradient_, saved_, !is_first_); });
    const std::int64_t w = time_of([&] { layer_->backward_weight(saved_); });
    const std::int64_t opt = time_of([&] { optimizer_->update(0); });
    if (!counts) return;
    samples.f.push_back(f);
    samples.i.push_back(i);
    samples.w.push_back(w);
    samples.opt.push_back(opt);
  }

 private:
  static void fill(Buffer& buffer, std::uint64_t seed) {
    for (std::size_t k = 0; k < buffer.words(); ++k) {
      buffer.floats()[k] = symmetric_uniform(seed, k);
    }
  }

  const bool is_first_;
  BufferPool pool_;  // before what holds its buffers
  std::unique_ptr<TrainableLayer> layer_;
  std::vector<Parameter*> parameters_;
  std::optional<Optimizer> optimizer_;
  Saved saved_;
  Buffer input_, gradient_;
};

/// The loss alone: a stage behind the last layer.
class LossMeter {
 public:
  LossMeter(const Model& model, int micro_batch_size, const ProfileOptions& options)
      : stage_(model, static_cast<int>(model.layers.size()), static_cast<int>(model.layers.size()),
               micro_batch_size, 1, options.seed, options.optimizer) {
    const std::size_t rows =
        static_cast<std::size_t>(micro_batch_size) * static_cast<std::size_t>(model.sequence);
    input_.assign(stage_.input_floats(), 0.5F);
    if (model.loss == LossKind::SoftmaxCrossEntropy) {
      batch_.labels.assign(rows, 0);
    } else {
      batch_.targets.assign(stage_.input_floats(), 0.25F);
    }
    stage_.set_batch(0, batch_);
  }

  void once(bool counts, Samples& samples) {
    std::vector<float> message = input_;
    const std::int64_t f = time_of([&] { stage_.forward(0, std::move(message)); });
    const std::int64_t i = time_of([&] { stage_.backward_input(0, {}); });
    stage_.backward_weight(0);
    if (!counts) return;
    samples.f.push_back(f);
    samples.i.push_back(i);
  }

 private:
  cpu::Stage stage_;
  MicroBatch batch_;
  std::vector<float> input_;
};

/// Runs `Meter` on `ranks` threads at once, each with its own, and takes the medians of all.
template <class MakeMeter>
LayerTimes measure_together(const ProfileOptions& options, std::int64_t budget_ns, int& repeats,
                            MakeMeter make) {
  std::barrier ready(options.ranks);
  std::mutex mutex;
  Samples all;
  std::exception_ptr error;
  const auto one_rank = [&] {
    bool arrived = false;
    try {
      auto meter = make();
      Samples samples;
      ready.arrive_and_wait();
      arrived = true;
      const int done = repeat(budget_ns, options.interrupted,
                              [&](bool counts) { meter->once(counts, samples); });
      const std::scoped_lock lock(mutex);
      all.join(samples);
      repeats = repeats == 0 ? done : std::min(repeats, done);
    } catch (...) {
      if (!arrived) ready.arrive_and_drop();
      const std::scoped_lock lock(mutex);
      if (!error) error = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    int missing = options.ranks - 1;
    try {
      for (; missing > 0; --missing) threads.emplace_back(one_rank);
    } catch (const std::system_error& e) {
      // Those that have started may not wait for those that never will.
      for (; missing > 0; --missing) ready.arrive_and_drop();
      const std::scoped_lock lock(mutex);
      error = std::make_exception_ptr(
          MachineError(std::string("cannot start a thread for each measured rank: ") + e.what()));
    }
    one_rank();
  }
  if (error) std::rethrow_exception(error);
  return medians(all);
}

}  // namespace

Profile measure_profile(const Model& model, const Cluster& machine, const ProfileOptions& options) {
  Profile profile;
  profile.model_name = model.name;
  profile.cluster = machine;
  profile.ranks_measured = options.ranks;
  const auto layers = static_cast<int>(model.layers.size());
  // A fifth for transfers and overhead, the rest shared by all layers and the loss of each size.
  const auto meters = static_cast<std::int64_t>(layers + 1) *
                      static_cast<std::int64_t>(options.micro_batch_sizes.size());
  const std::int64_t budget_ns = options.budget_ns * 4 / 5 / std::max<std::int64_t>(1, meters);
  for (const int size : options.micro_batch_sizes) {
    ProfileSize measured;
    measured.micro_batch_size = size;
    for (int index = 0; index < layers; ++index) {
      measured.layers.push_back(measure_together(
          options, budget_ns, profile.repeats,
          [&, index, size] { return std::make_unique<LayerMeter>(model, index, size, options); }));
    }
    measured.loss = measure_together(options, budget_ns, profile.repeats, [&, size] {
      return std::make_unique<LossMeter>(model, size, options);
    });
    profile.sizes.push_back(std::move(measured));
  }
  constexpr int kTransferRepeats = 20;
  const TransferTimes transfers = measure_transfers(kTransferRepeats);
  profile.transfer_latency = transfers.latency;
  profile.transfer_bytes_per_second = transfers.bytes_per_second;
  profile.action_overhead = measure_action_overhead(kTransferRepeats);
  return profile;
}

}  // namespace pipewright::exec
