#include "exec/devices/cuda/parameters.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "core/base/error.hpp"
#include "exec/base/random.hpp"
#include "exec/layers/ops.hpp"

namespace pipewright::exec::cuda {
namespace {

/// Where a parameter may begin: what cuBLAS likes best, and more than its loads need.
constexpr std::size_t kAlignedFloats = 64;

}  // namespace

Parameters::Parameters(Queue& queue, UnwrittenGradients& unwritten,
                       const std::vector<Parameter*>& host, const Start& start,
                       std::function<void()> between)
    : queue_(queue),
      unwritten_(unwritten),
      optimizer_(start.optimizer),
      between_(std::move(between)) {
  place(host);
  values_ = zeros(floats_ * sizeof(float));
  if (queue.site().precision == Precision::Bfloat16) read_ = zeros(floats_ * sizeof(Bfloat16));
  gradients_ = zeros(floats_ * sizeof(float));
  if (optimizer_.kind == OptimizerKind::AdamW) {
    mean_ = zeros(floats_ * sizeof(float));
    square_ = zeros(floats_ * sizeof(float));
    staged_factors_ = Pinned<pipewright_cuda_adamw>(queue.cuda(), 2);
    factors_ = zeros(2 * sizeof(pipewright_cuda_adamw));
  }
  if (is_exact()) {
    high_ = zeros(floats_ * sizeof(std::int64_t));
    low_ = zeros(floats_ * sizeof(std::int64_t));
  }
  bad_ = zeros((all_.size() + 1) * sizeof(int));
  if (optimizer_.clip_grad_norm > 0) {
    partial_ = zeros(PIPEWRIGHT_CUDA_SQUARE_WORDS * sizeof(std::int64_t));
    total_ = zeros(4 * sizeof(std::int64_t));
  }
  health_ = Pinned<int>(queue.cuda(), all_.size() + 1);
  std::fill_n(health_.data(), health_.size(), 0);
  for (const Placed& p : all_) {
    p.host->device_value =
        read_ ? reinterpret_cast<float*>(static_cast<Bfloat16*>(read_.at()) + p.offset)
              : value_of(p);
    p.host->device_gradient = gradients_.floats() + p.offset;
    this->start(p, start.seed);
  }
  if (read_) queue_.run(queue_.kernels().round, floats_, values_.floats(), read_.at());
  queue_.finish(queue_.record(queue_.computing()), {});
}

/// In the order of the host's list, with the offsets of the array's order.
void Parameters::place(const std::vector<Parameter*>& host) {
  for (Parameter* p : host) {
    const auto declared = static_cast<std::size_t>(p->start.size);
    all_.push_back({p, p->value.empty() ? declared : p->value.size(), 0});
  }
  for (const bool decays : {false, true}) {
    if (decays) decay_from_ = floats_;
    const std::size_t begin = floats_;
    for (const bool is_copy : {false, true}) {
      for (Placed& p : all_) {
        if (p.host->decays != decays || p.host->is_copy != is_copy) continue;
        p.offset = floats_;
        floats_ += (p.size + kAlignedFloats - 1) / kAlignedFloats * kAlignedFloats;
      }
      if (!is_copy) counted_.push_back({begin, floats_});
    }
  }
}

void Parameters::start(const Placed& p, std::uint64_t seed) {
  const Parameter& of = *p.host;
  if (!of.value.empty()) return queue_.copy(value_of(p), of.value.data(), p.size * sizeof(float));
  PIPEWRIGHT_ASSERT(of.slice.is_whole(), "parts of weights on a GPU");
  queue_.run(queue_.kernels().start, p.size, key_of(seed, of.name), of.start.bound, of.start.value,
             value_of(p));
}

Buffer Parameters::zeros(std::size_t bytes) {
  Buffer made = queue_.weights().take(bytes);
  queue_.clear(made.at(), bytes);
  return made;
}

void Parameters::finish() const { queue_.finish(queue_.record(queue_.computing()), between_); }

void Parameters::clear_gradients() {
  if (!is_exact()) {
    for (const Placed& p : all_) unwritten_.add({p.host->device_gradient, p.size});
    return;
  }
  queue_.clear(gradients_.at(), floats_ * sizeof(float));
  queue_.clear(high_.at(), floats_ * sizeof(std::int64_t));
  queue_.clear(low_.at(), floats_ * sizeof(std::int64_t));
}

void Parameters::clear_rest() {
  unwritten_.take_all([this](const UnwrittenGradients::Array& gradient) {
    queue_.clear(gradient.at, gradient.size * sizeof(float));
  });
}

Buffer Parameters::gradients() {
  clear_rest();
  return gradients_;
}

void Parameters::add_parts(std::span<const std::size_t> places, int) {
  if (!is_exact()) return;
  for (const std::size_t i : places) {
    const Placed& p = all_[i];
    queue_.run(queue_.kernels().fixed_add, p.size, p.host->device_gradient,
               high_.longs() + p.offset, low_.longs() + p.offset, bad_.ids() + i);
  }
}

void Parameters::settle() {
  clear_rest();
  if (!is_exact()) return;
  queue_.run(queue_.kernels().fixed_round, floats_, high_.longs(), low_.longs(),
             gradients_.floats());
}

/// There are no statistics on GPUs.
void Parameters::scale(float factor, bool) {
  clear_rest();
  queue_.run(queue_.kernels().scale, floats_, factor, gradients_.floats());
}

void Parameters::scale_by(const float* factor) {
  clear_rest();
  queue_.run(queue_.kernels().scale_by, floats_, factor, gradients_.floats());
}

void Parameters::begin_step(int step) {
  if (optimizer_.kind != OptimizerKind::AdamW) return;
  for (const bool decays : {false, true}) {
    const AdamFactors f = adam_factors(optimizer_, step, decays);
    staged_factors_.data()[decays ? 1 : 0] = {f.keep_mean,   f.take_mean, f.keep_square,
                                              f.take_square, f.rate,      f.square_correction,
                                              f.epsilon,     f.keep_value};
  }
}

/// The factors go by way of memory, so that a step that is replayed takes those of its own time.
/// The gaps between parameters stay 0.
void Parameters::update(int) {
  clear_rest();
  if (optimizer_.kind == OptimizerKind::Sgd) {
    const auto rate = static_cast<float>(optimizer_.learning_rate);
    return queue_.run(queue_.kernels().sgd, floats_, rate, gradients_.floats(), values_.floats(),
                      read_.at());
  }
  queue_.copy(factors_.at(), staged_factors_.data(), factors_.bytes());
  queue_.run(queue_.kernels().adamw, floats_, decay_from_,
             static_cast<const pipewright_cuda_adamw*>(factors_.at()), gradients_.floats(),
             mean_.floats(), square_.floats(), values_.floats(), read_.at());
}

// --- What the host wants to know ---

void Parameters::ask_for_health() {
  queue_.copy(health_.data(), bad_.at(), health_.size() * sizeof(int));
}

void Parameters::read_health() {
  for (std::size_t i = 0; i < all_.size(); ++i) {
    if (health_.data()[i] != 0)
      note_not_finite("the gradient of \"" + all_[i].host->name + "\" is not a number below 4e12");
  }
}

void Parameters::forget_health() { queue_.clear(bad_.at(), health_.size() * sizeof(int)); }

void Parameters::note_not_finite(const std::string& clause) {
  if (not_finite_.empty()) not_finite_ = clause;
}

void Parameters::add_squares(std::int64_t* total) {
  PIPEWRIGHT_ASSERT(static_cast<bool>(partial_), "a norm of a run that does not clip");
  clear_rest();
  for (const ElementRange& range : counted_) {
    if (range.size() == 0) continue;
    queue_.run(queue_.kernels().add_squares, range.size(), gradients_.floats() + range.begin,
               partial_.longs(), total, norm_flag());
  }
}

SquareSum Parameters::squares(std::span<const ElementRange> ranges) {
  PIPEWRIGHT_ASSERT(ranges.empty(), "parts of weights on a GPU");
  Pinned<std::int64_t> found(queue_.cuda(), 4);
  queue_.clear(total_.at(), 4 * sizeof(std::int64_t));
  add_squares(total_.longs());
  queue_.copy(found.data(), total_.at(), 4 * sizeof(std::int64_t));
  ask_for_health();
  finish();
  read_health();
  if (health_.data()[all_.size()] != 0)
    note_not_finite("a gradient is not a number below 2e12, and cannot be clipped");
  if (!not_finite_.empty()) return {};
  return {{found.data()[0], found.data()[1]}, {found.data()[2], found.data()[3]}};
}

GradientPart Parameters::part(std::span<const std::size_t> places) {
  clear_rest();
  GradientPart part;
  std::vector<FixedPointSums::Words> high, low;
  part.gradients.reserve(places.size());
  high.reserve(places.size());
  low.reserve(places.size());
  for (const std::size_t i : places) {
    const Placed& p = all_[i];
    if (!is_exact()) {
      AlignedFloats& to = part.gradients.emplace_back(p.size);
      queue_.copy(to.data(), p.host->device_gradient, p.size * sizeof(float));
      continue;
    }
    const std::size_t bytes = p.size * sizeof(std::int64_t);
    queue_.copy(high.emplace_back(p.size).data(), high_.longs() + p.offset, bytes);
    queue_.copy(low.emplace_back(p.size).data(), low_.longs() + p.offset, bytes);
  }
  ask_for_health();
  finish();
  read_health();
  for (std::size_t k = 0; k < high.size(); ++k)
    part.sums.emplace_back(std::move(high[k]), std::move(low[k]));
  return part;
}

FixedPointSums Parameters::sum_of(std::size_t place, const Summands& summands) {
  FixedPointSums sum(all_[place].size);
  for (const FixedPointSums* one : summands.sums) {
    if (sum.add(*one)) continue;
    note_not_finite("the gradients of \"" + all_[place].host->name + "\" add up to more than 4e12");
    sum.clear();
  }
  return sum;
}

/// The sum is taken on the host, where the summands are; what is copied stays there until it is on
/// the GPU.
void Parameters::set(std::size_t place, const Summands& summands) {
  const Placed& p = all_[place];
  if (is_exact()) {
    const FixedPointSums sum = sum_of(place, summands);
    const std::size_t bytes = p.size * sizeof(std::int64_t);
    queue_.clear(p.host->device_gradient, p.size * sizeof(float));
    queue_.copy(high_.longs() + p.offset, sum.high().data(), bytes);
    queue_.copy(low_.longs() + p.offset, sum.low().data(), bytes);
    return finish();
  }
  static_cast<void>(unwritten_.take(p.host->device_gradient));
  AlignedFloats sum(p.size, 0.0F);
  for (const AlignedFloats* one : summands.gradients) add_to(p.size, one->data(), sum.data());
  queue_.copy(p.host->device_gradient, sum.data(), p.size * sizeof(float));
  finish();
}

void Parameters::download() {
  clear_rest();
  for (const Placed& p : all_) {
    p.host->value.resize(p.size);
    p.host->gradient.resize(p.size);
    queue_.copy(p.host->value.data(), value_of(p), p.size * sizeof(float));
    queue_.copy(p.host->gradient.data(), p.host->device_gradient, p.size * sizeof(float));
  }
  queue_.finish(queue_.record(queue_.computing()), {});
}

std::int64_t Parameters::bytes() const { return queue_.weights().figures().live_bytes; }

}  // namespace pipewright::exec::cuda
