#include "exec/cuda/parameters.hpp"

#include <algorithm>
#include <numeric>
#include <string>

#include "core/error.hpp"
#include "exec/ops.hpp"

namespace pipewright::exec::cuda {
namespace {

/// Where a parameter may begin: what cuBLAS likes best, and more than its loads need.
constexpr std::size_t kAlignedFloats = 64;

}  // namespace

Parameters::Parameters(Queue& queue, const std::vector<Parameter*>& host,
                       const OptimizerSpec& optimizer)
    : queue_(queue), host_(host), optimizer_(optimizer) {
  for (const Parameter* p : host_) {
    all_.push_back({p->name, p->decays, p->value.size(), floats_, nullptr, nullptr});
    floats_ += (p->value.size() + kAlignedFloats - 1) / kAlignedFloats * kAlignedFloats;
  }
  values_ = zeros(floats_ * sizeof(float));
  gradients_ = zeros(floats_ * sizeof(float));
  if (optimizer_.kind == OptimizerKind::AdamW) {
    mean_ = zeros(floats_ * sizeof(float));
    square_ = zeros(floats_ * sizeof(float));
  }
  if (is_exact()) {
    high_ = zeros(floats_ * sizeof(std::int64_t));
    low_ = zeros(floats_ * sizeof(std::int64_t));
  }
  bad_ = zeros((all_.size() + 1) * sizeof(int));
  health_ = Pinned<int>(queue.cuda(), all_.size() + 1);
  std::fill_n(health_.data(), health_.size(), 0);
  for (std::size_t i = 0; i < all_.size(); ++i) {
    DeviceParameter& p = all_[i];
    p.value = values_.floats() + p.offset;
    p.gradient = gradients_.floats() + p.offset;
    queue_.copy(p.value, host_[i]->value.data(), p.size * sizeof(float));
  }
  finish({});
}

Buffer Parameters::zeros(std::size_t bytes) {
  Buffer made = queue_.weights().take(bytes);
  queue_.clear(made.at(), bytes);
  return made;
}

void Parameters::finish(const Between& between) {
  queue_.finish(queue_.record(queue_.computing()), between);
}

const DeviceParameter& Parameters::at(std::string_view name) const {
  const auto found =
      std::find_if(all_.begin(), all_.end(), [&](const auto& p) { return p.name == name; });
  PIPEWRIGHT_ASSERT(found != all_.end(), "no parameter \"" + std::string(name) + "\"");
  return *found;
}

void Parameters::clear() {
  queue_.clear(gradients_.at(), floats_ * sizeof(float));
  if (!is_exact()) return;
  queue_.clear(high_.at(), floats_ * sizeof(std::int64_t));
  queue_.clear(low_.at(), floats_ * sizeof(std::int64_t));
}

void Parameters::add_parts(std::size_t first, std::size_t end) {
  for (std::size_t i = first; i < end; ++i) {
    const DeviceParameter& p = all_[i];
    queue_.run(queue_.kernels().fixed_add, p.size, p.gradient, high_.words() + p.offset,
               low_.words() + p.offset, bad_.ids() + i);
  }
}

void Parameters::settle() {
  if (!is_exact()) return;
  queue_.run(queue_.kernels().fixed_round, floats_, high_.words(), low_.words(),
             gradients_.floats());
}

void Parameters::scale(float factor) {
  if (factor == 1.0F) return;
  queue_.run(queue_.kernels().scale, floats_, factor, gradients_.floats());
}

void Parameters::update(int step) {
  const auto rate = static_cast<float>(optimizer_.learning_rate);
  for (const DeviceParameter& p : all_) {
    if (optimizer_.kind == OptimizerKind::Sgd) {
      queue_.run(queue_.kernels().sgd, p.size, rate, p.gradient, p.value);
      continue;
    }
    const AdamFactors f = adam_factors(optimizer_, step, p.decays);
    const pipewright_cuda_adamw factors{f.keep_mean,   f.take_mean, f.keep_square,
                                        f.take_square, f.rate,      f.square_correction,
                                        f.epsilon,     f.keep_value};
    queue_.run(queue_.kernels().adamw, p.size, &factors, p.gradient, mean_.floats() + p.offset,
               square_.floats() + p.offset, p.value);
  }
}

// --- What the host wants to know ---

void Parameters::ask_for_health() {
  queue_.copy(health_.data(), bad_.at(), health_.size() * sizeof(int));
}

void Parameters::require_health() const {
  for (std::size_t i = 0; i < all_.size(); ++i) {
    if (health_.data()[i] == 0) continue;
    throw RunError("the gradient of \"" + all_[i].name +
                   "\" is not a number below 4e12: the training diverges; lower the learning "
                   "rate, or clip the gradients");
  }
}

cpu::SquareSum Parameters::squares(const Between& between) {
  if (!partial_) {
    partial_ = zeros(PIPEWRIGHT_CUDA_SQUARE_WORDS * sizeof(std::int64_t));
    total_ = zeros(4 * sizeof(std::int64_t));
  }
  Pinned<std::int64_t> found(queue_.cuda(), 4);
  queue_.clear(total_.at(), 4 * sizeof(std::int64_t));
  queue_.run(queue_.kernels().add_squares, floats_, gradients_.floats(), partial_.words(),
             total_.words(), bad_.ids() + all_.size());
  queue_.copy(found.data(), total_.at(), 4 * sizeof(std::int64_t));
  ask_for_health();
  finish(between);
  require_health();
  if (health_.data()[all_.size()] != 0) {
    throw RunError(
        "a gradient is not a number below 2e12, and cannot be clipped: the training diverges; "
        "lower the learning rate");
  }
  return {{found.data()[0], found.data()[1]}, {found.data()[2], found.data()[3]}};
}

cpu::GradientPart Parameters::part(int micro_batches, const Between& between) {
  cpu::GradientPart part;
  if (micro_batches == 0) return part;
  part.micro_batches = micro_batches;
  std::vector<cpu::FixedPointSums::Words> high(all_.size()), low(all_.size());
  for (std::size_t i = 0; i < all_.size(); ++i) {
    const DeviceParameter& p = all_[i];
    if (!is_exact()) {
      AlignedFloats& to = part.gradients.emplace_back(p.size);
      queue_.copy(to.data(), p.gradient, p.size * sizeof(float));
      continue;
    }
    high[i].resize(p.size);
    low[i].resize(p.size);
    queue_.copy(high[i].data(), high_.words() + p.offset, p.size * sizeof(std::int64_t));
    queue_.copy(low[i].data(), low_.words() + p.offset, p.size * sizeof(std::int64_t));
  }
  ask_for_health();
  finish(between);
  require_health();
  for (std::size_t i = 0; i < all_.size() && is_exact(); ++i)
    part.sums.emplace_back(std::move(high[i]), std::move(low[i]));
  return part;
}

void Parameters::set(std::span<const cpu::GradientPart* const> parts, const Between& between) {
  clear();
  if (is_exact()) {
    set_sums(parts);
  } else {
    for (std::size_t i = 0; i < all_.size(); ++i) {
      AlignedFloats& sum = host_[i]->gradient;
      std::fill(sum.begin(), sum.end(), 0.0F);
      for (const cpu::GradientPart* part : parts) {
        if (!part->gradients.empty()) add_to(sum.size(), part->gradients[i].data(), sum.data());
      }
      queue_.copy(all_[i].gradient, sum.data(), sum.size() * sizeof(float));
    }
  }
  finish(between);  // what was copied is the host's, and may change from now on
  uploaded_.clear();
}

void Parameters::set_sums(std::span<const cpu::GradientPart* const> parts) {
  for (std::size_t i = 0; i < all_.size(); ++i) {
    const DeviceParameter& p = all_[i];
    cpu::FixedPointSums sum(p.size);
    for (const cpu::GradientPart* part : parts) {
      if (part->sums.empty() || sum.add(part->sums[i])) continue;
      throw RunError("the replicas' gradients of \"" + p.name +
                     "\" add up to more than 4e12: the training diverges; lower the learning rate");
    }
    uploaded_.push_back(std::move(sum));
  }
  for (std::size_t i = 0; i < all_.size(); ++i) {
    const std::size_t bytes = all_[i].size * sizeof(std::int64_t);
    queue_.copy(high_.words() + all_[i].offset, uploaded_[i].high().data(), bytes);
    queue_.copy(low_.words() + all_[i].offset, uploaded_[i].low().data(), bytes);
  }
}

void Parameters::download(const Between& between) {
  for (std::size_t i = 0; i < all_.size(); ++i) {
    const DeviceParameter& p = all_[i];
    queue_.copy(host_[i]->value.data(), p.value, p.size * sizeof(float));
    queue_.copy(host_[i]->gradient.data(), p.gradient, p.size * sizeof(float));
  }
  finish(between);
}

std::int64_t Parameters::bytes() const { return queue_.weights().figures().live_bytes; }

}  // namespace pipewright::exec::cuda
