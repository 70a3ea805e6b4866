#include "exec/layers/optimizer.hpp"

#include <cmath>
#include <string>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/suggest.hpp"
#include "exec/layers/adam_step.hpp"

namespace pipewright::exec {
namespace {

/// Of the elements of a range the first.
float* value_of(Parameter& parameter, const ElementRange& range) {
  return parameter.value.data() + (range.begin - parameter.first_value);
}
const float* gradient_of(const Parameter& parameter, const ElementRange& range) {
  return parameter.gradient.data() + (range.begin - parameter.first_gradient);
}

void sgd(const OptimizerSpec& spec, Parameter& parameter, const ElementRange& range) {
  const auto rate = static_cast<float>(spec.learning_rate);
  float* value = value_of(parameter, range);
  const float* gradient = gradient_of(parameter, range);
  for (std::size_t i = 0; i < range.size(); ++i) value[i] -= rate * gradient[i];
}

/// A moment whose gradient stays 0 (a token that does not occur) shrinks until it is denormal and
/// then stays there, and arithmetic on denormal numbers is many times slower.
inline float without_dust(float x) { return std::fabs(x) < 1e-30F ? 0.0F : x; }

}  // namespace

void adam_step(const AdamFactors& f, std::size_t n, const float* gradient, float* mean,
               float* square, float* value) {
  for (std::size_t i = 0; i < n; ++i) {
    const float g = gradient[i];
    const float m = without_dust(f.keep_mean * mean[i] + f.take_mean * g);
    const float s = without_dust(f.keep_square * square[i] + f.take_square * g * g);
    mean[i] = m;
    square[i] = s;
    value[i] =
        f.keep_value * value[i] - f.rate * m / (std::sqrt(s * f.square_correction) + f.epsilon);
  }
}

AdamFactors adam_factors(const OptimizerSpec& spec, int step, bool decays) {
  const double mean_correction = 1 - std::pow(spec.beta1, step + 1);
  const double square_correction = 1 - std::pow(spec.beta2, step + 1);
  return {static_cast<float>(spec.beta1),
          static_cast<float>(1 - spec.beta1),
          static_cast<float>(spec.beta2),
          static_cast<float>(1 - spec.beta2),
          static_cast<float>(spec.learning_rate / mean_correction),
          static_cast<float>(1 / square_correction),
          static_cast<float>(spec.epsilon),
          decays ? static_cast<float>(1 - spec.learning_rate * spec.weight_decay) : 1.0F};
}

OptimizerSpec optimizer_spec(std::string_view name, double learning_rate) {
  OptimizerSpec spec;
  if (!(learning_rate > 0) || !std::isfinite(learning_rate)) {
    throw InputError("the learning rate must be a positive number");
  }
  spec.learning_rate = learning_rate;
  if (name == "sgd") {
    spec.kind = OptimizerKind::Sgd;
  } else if (name != "adamw") {
    throw InputError("unknown optimizer \"" + std::string(name) + "\"" +
                     did_you_mean(name, {"sgd", "adamw"}) + "; choose sgd or adamw");
  }
  return spec;
}

std::span<const std::string_view> slot_names(OptimizerKind kind) {
  static constexpr std::string_view kMoments[] = {"mean", "square"};
  if (kind == OptimizerKind::Sgd) return {};
  return kMoments;
}

Optimizer::Optimizer(const OptimizerSpec& spec, std::vector<Parameter*> parameters,
                     std::vector<ElementRange> ranges)
    : spec_(spec), parameters_(std::move(parameters)), ranges_(std::move(ranges)) {
  if (ranges_.empty()) {
    for (const Parameter* parameter : parameters_) ranges_.push_back({0, parameter->value.size()});
  }
  if (spec_.kind != OptimizerKind::AdamW) return;
  for (const ElementRange& range : ranges_) {
    const std::size_t n = range.size();
    moments_.push_back({AlignedFloats(n, 0.0F), AlignedFloats(n, 0.0F)});
  }
}

std::vector<Optimizer::Slot> Optimizer::slots_of(std::size_t parameter) {
  if (moments_.empty()) return {};
  Moments& moments = moments_[parameter];
  const auto first = static_cast<std::int64_t>(ranges_[parameter].begin);
  const auto names = slot_names(spec_.kind);
  return {{names[0], first, moments.mean}, {names[1], first, moments.square}};
}

void Optimizer::update(int step) {
  if (spec_.kind == OptimizerKind::Sgd) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) sgd(spec_, *parameters_[i], ranges_[i]);
    return;
  }
  const AdamFactors decaying = adam_factors(spec_, step, true);
  const AdamFactors plain = adam_factors(spec_, step, false);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& p = *parameters_[i];
    const ElementRange& range = ranges_[i];
    adam_step(p.decays ? decaying : plain, range.size(), gradient_of(p, range),
              moments_[i].mean.data(), moments_[i].square.data(), value_of(p, range));
  }
}

std::int64_t Optimizer::state_bytes() const {
  std::size_t floats = 0;
  for (const Moments& one : moments_) floats += one.mean.size() + one.square.size();
  return static_cast<std::int64_t>(floats * sizeof(float));
}

}  // namespace pipewright::exec
