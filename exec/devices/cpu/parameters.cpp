#include "exec/devices/cpu/parameters.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/base/error.hpp"
#include "exec/checkpoint/checkpoint.hpp"
#include "exec/devices/cpu/kernels/finite.hpp"
#include "exec/layers/ops.hpp"

namespace pipewright::exec::cpu {
namespace {

/// Of an array that begins with element `first` of a parameter.
AlignedFloats slice_of(const AlignedFloats& all, std::size_t first, const ElementRange& range) {
  return {all.begin() + static_cast<std::ptrdiff_t>(range.begin - first),
          all.begin() + static_cast<std::ptrdiff_t>(range.end - first)};
}

void put_slice(const AlignedFloats& slice, const ElementRange& range, AlignedFloats& all) {
  if (slice.size() != range.size()) throw RunError("received parameters of another part");
  std::copy(slice.begin(), slice.end(), all.begin() + static_cast<std::ptrdiff_t>(range.begin));
}

}  // namespace

Parameters::Parameters(std::vector<Parameter*> parameters, const OptimizerSpec& optimizer,
                       Numerics numerics)
    : all_(std::move(parameters)), optimizer_spec_(optimizer), stash_(all_) {
  if (numerics == Numerics::Exact) {
    for (const Parameter* p : all_) sums_.emplace_back(p->value.size());
  }
  optimizer_ = std::make_unique<Optimizer>(optimizer, weights());
}

/// What the optimizer trains: all but statistics.
std::vector<Parameter*> Parameters::weights() const {
  std::vector<Parameter*> weights;
  std::copy_if(all_.begin(), all_.end(), std::back_inserter(weights),
               [](const Parameter* p) { return !p->is_statistic; });
  return weights;
}

// --- Gradients ---

void Parameters::clear_gradients() {
  for (Parameter* p : all_) std::fill(p->gradient.begin(), p->gradient.end(), 0.0F);
  for (FixedPointSums& sums : sums_) sums.clear();
}

/// The next micro-batch's part begins with 0.
void Parameters::add_parts(std::span<const std::size_t> places, int micro_batch) {
  if (sums_.empty()) return;
  for (const std::size_t i : places) {
    Parameter& p = *all_[i];
    if (!sums_[i].add(p.gradient)) {
      note_not_finite("the gradient of \"" + p.name + "\" is not a number below 4e12 after " +
                      (micro_batch == kOfAnotherRank ? "another rank's micro-batch"
                                                     : "m" + std::to_string(micro_batch)));
      sums_[i].clear();
    }
    std::fill(p.gradient.begin(), p.gradient.end(), 0.0F);
  }
}

void Parameters::settle() {
  for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i].round_to(all_[i]->gradient);
}

void Parameters::scale(float factor, bool with_statistics) {
  for (Parameter* p : all_) {
    if (p->is_statistic && !with_statistics) continue;
    for (float& g : p->gradient) g *= factor;
  }
}

SquareSum Parameters::squares(std::span<const ElementRange> ranges) {
  SquareSum sum;
  for (std::size_t i = 0; i < all_.size(); ++i) {
    const Parameter* const p = all_[i];
    if (p->is_statistic || p->is_copy || (p->is_replicas_copy && !is_shared_out_)) continue;
    std::span<const float> own(p->gradient);
    if (!ranges.empty()) own = own.subspan(ranges[i].begin - p->first_gradient, ranges[i].size());
    if (sum.add(own)) continue;
    note_not_finite("the gradient of \"" + p->name +
                    "\" is not a number below 2e12, and cannot be clipped");
    return {};
  }
  return sum;
}

GradientPart Parameters::part(std::span<const std::size_t> places) {
  GradientPart part;
  for (const std::size_t i : places) {
    if (sums_.empty()) {
      part.gradients.push_back(all_[i]->gradient);
    } else {
      part.sums.push_back(sums_[i]);
    }
  }
  return part;
}

void Parameters::set(std::size_t place, const Summands& summands) {
  Parameter& p = *all_[place];
  std::fill(p.gradient.begin(), p.gradient.end(), 0.0F);
  if (!sums_.empty()) sums_[place].clear();
  add(place, summands);
}

void Parameters::add(std::size_t place, const Summands& summands) {
  Parameter& p = *all_[place];
  const ElementRange& range = summands.range;
  for (const AlignedFloats* one : summands.gradients)
    add_to(range.size(), one->data() + range.begin,
           p.gradient.data() + (range.begin - p.first_gradient));
  if (sums_.empty()) return;
  for (const FixedPointSums* one : summands.sums) {
    const bool is_part = divided_ && one->size() != sums_[place].size();
    if (is_part ? sums_[place].add(slice_of(*one, 0, range)) : sums_[place].add(*one)) continue;
    note_not_finite(std::string(summands.whose) + " of \"" + p.name +
                    "\" add up to more than 4e12");
    sums_[place].clear();
  }
}

// --- Facts ---

void Parameters::note_not_finite(const std::string& clause) {
  if (not_finite_.empty()) not_finite_ = clause;
}

std::string Parameters::not_finite() const {
  if (!not_finite_.empty()) return not_finite_;
  for (const Parameter* p : all_) {
    if (!all_finite(p->gradient))
      return "the gradient of \"" + p->name + "\" is not a finite number";
  }
  std::size_t trained = 0;  // in the optimizer's list
  for (const Parameter* p : all_) {
    if (!all_finite(p->value)) return "\"" + p->name + "\" is not a finite number any more";
    if (p->is_statistic) continue;
    for (const auto& slot : optimizer_->slots_of(trained++)) {
      if (!all_finite(slot.values))
        return "the optimizer's " + std::string(slot.name) + " of \"" + p->name +
               "\" is not a finite number";
    }
  }
  return {};
}

std::int64_t Parameters::bytes() const {
  std::size_t bytes = 0, weights = 0;
  for (const Parameter* p : all_) {
    weights += p->value.size() * sizeof(float);
    bytes += p->gradient.size() * sizeof(float);
  }
  for (const FixedPointSums& sums : sums_) bytes += 2 * sums.high().size() * sizeof(std::int64_t);
  bytes += weights * static_cast<std::size_t>(1 + stash_.kept());
  return static_cast<std::int64_t>(bytes) + optimizer_->state_bytes() +
         (divided_ ? divided_->bytes() : 0);
}

void Parameters::forget_training() {
  OptimizerSpec without_state;
  without_state.kind = OptimizerKind::Sgd;
  optimizer_ = std::make_unique<Optimizer>(without_state, weights());
  for (Parameter* p : all_) AlignedFloats().swap(p->gradient);
  sums_.clear();
}

std::vector<StateView> Parameters::state() {
  std::vector<StateView> views;
  std::size_t trained = 0;  // in the optimizer's list
  for (std::size_t i = 0; i < all_.size(); ++i) {
    Parameter* const p = all_[i];
    const auto total = static_cast<std::int64_t>(divided_ ? divided_->size_of(i) : p->value.size());
    const auto add = [&](std::string_view slot, std::int64_t first, bool is_shared_out,
                         std::span<float> values) {
      views.push_back({p->name, slot, first, total, is_shared_out, values,
                       p->is_copy || (p->is_replicas_copy && !is_shared_out), p->is_of_experts,
                       p->slice});
    };
    add(kValueSlot, static_cast<std::int64_t>(p->first_value), divides_weights_ && !p->is_statistic,
        p->value);
    if (p->is_statistic) continue;
    for (const auto& slot : optimizer_->slots_of(trained++))
      add(slot.name, slot.first, is_shared_out_, slot.values);
  }
  return views;
}

// --- Shared out ---

void Parameters::own(const std::vector<ElementRange>& ranges, const Sharding& sharding) {
  is_shared_out_ = true;
  divides_weights_ = sharding.divides_weights();
  if (sharding.divides_gradients()) divided_.emplace(all_, sums_, ranges, sharding);
  std::vector<ElementRange> of_weights;
  for (std::size_t i = 0; i < all_.size(); ++i) {
    if (!all_[i]->is_statistic) of_weights.push_back(ranges[i]);
  }
  optimizer_ = std::make_unique<Optimizer>(optimizer_spec_, weights(), std::move(of_weights));
}

GradientPart Parameters::owned_part(std::span<const ElementRange> ranges,
                                    bool with_gradients) const {
  GradientPart part;
  for (std::size_t i = 0; i < all_.size(); ++i)
    part.gradients.push_back(slice_of(all_[i]->value, all_[i]->first_value, ranges[i]));
  if (!with_gradients) return part;
  for (std::size_t i = 0; i < all_.size(); ++i)
    part.gradients.push_back(slice_of(all_[i]->gradient, all_[i]->first_gradient, ranges[i]));
  return part;
}

void Parameters::take(std::span<const ElementRange> ranges, bool with_experts,
                      const GradientPart& part) {
  const std::size_t n = all_.size();
  if (part.gradients.size() != n && part.gradients.size() != 2 * n)
    throw RunError("received parameters of another stage");
  for (std::size_t i = 0; i < part.gradients.size(); ++i) {
    Parameter& p = *all_[i % n];
    if (p.is_of_experts && !with_experts) continue;
    put_slice(part.gradients[i], ranges[i % n], i < n ? p.value : p.gradient);
  }
}

}  // namespace pipewright::exec::cpu
