#include "planner/costs/drawn_durations.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <string>

#include "core/base/error.hpp"

namespace pipewright::planner {
namespace {

using SpreadKind = Distribution LayerSpread::*;

/// Of B by itself where it was measured.
std::vector<SpreadKind> kinds_of(ActionKind kind, const std::vector<LayerSpread>& layers) {
  switch (kind) {
    case ActionKind::F:
      return {&LayerSpread::f};
    case ActionKind::I:
      return {&LayerSpread::i};
    case ActionKind::W:
      return {&LayerSpread::w};
    case ActionKind::B:
      if (std::ranges::all_of(layers, [](const LayerSpread& layer) { return layer.b.count > 0; }))
        return {&LayerSpread::b};
      return {&LayerSpread::i, &LayerSpread::w};
    case ActionKind::Opt:
      return {&LayerSpread::opt};
    default:
      return {};
  }
}

const ProfileSize& nearest_size(const Profile& profile, int micro_batch_size) {
  return *std::min_element(profile.sizes.begin(), profile.sizes.end(),
                           [&](const ProfileSize& a, const ProfileSize& b) {
                             return std::abs(a.micro_batch_size - micro_batch_size) <
                                    std::abs(b.micro_batch_size - micro_batch_size);
                           });
}

/// What several layers take, as drawn and as typical.
class Sum {
 public:
  Sum(std::mt19937_64& random, ProfileClock clock) : random_(random), clock_(clock) {}

  void add(const Distribution& measured) {
    if (measured.count == 0) return;
    constexpr double kOneOf2To53 = 1.0 / 9007199254740992.0;
    drawn_ += measured.at(static_cast<double>(random_() >> 11U) * kOneOf2To53);
    typical_ += static_cast<double>(typical(measured, clock_).value);
  }
  double ratio() const { return typical_ > 0 ? drawn_ / typical_ : 1; }

 private:
  std::mt19937_64& random_;
  const ProfileClock clock_;
  double drawn_ = 0, typical_ = 0;
};

}  // namespace

DrawnDurations::DrawnDurations(const Program& program, const CostTable& costs,
                               std::span<const StagePlan> stages, const Profile& profile,
                               int micro_batch_size)
    : program_(program),
      costs_(costs),
      stages_(stages.begin(), stages.end()),
      clock_(profile.clock),
      layers_(nearest_size(profile, micro_batch_size).spreads) {
  if (layers_.empty()) {
    throw InputError(
        "this profile does not say how its measurements are spread; take it anew with `pipewright "
        "profile`");
  }
  if (static_cast<std::size_t>(stages_.back().end_layer) != layers_.size()) {
    throw InputError("the profile has " + std::to_string(layers_.size()) + " layers, the plan " +
                     std::to_string(stages_.back().end_layer) + "; profile the model of the plan");
  }
}

std::vector<std::int64_t> DrawnDurations::draw(std::uint64_t seed) const {
  std::mt19937_64 random(seed);
  std::vector<std::int64_t> durations(program_.code.size(), 0);
  for (InstructionId id = 0; id < program_.code.size(); ++id) {
    const Instruction& in = program_.code[id];
    if (is_transfer(in.kind)) continue;
    Sum sum(random, clock_);
    const auto add = [&](StageId stage, ActionKind kind) {
      const StagePlan& plan = stages_[static_cast<std::size_t>(stage.value)];
      for (const SpreadKind one : kinds_of(kind, layers_)) {
        for (int l = plan.first_layer; l < plan.end_layer; ++l)
          sum.add(layers_[static_cast<std::size_t>(l)].*one);
      }
    };
    if (in.kind == ActionKind::Opt) {
      for (const StageId stage : program_.placement.stages_of(program_.rank_of(id)))
        add(stage, in.kind);
    } else {
      const Cell cell = program_.cell(id);
      add(cell.action.stage, cell.action.kind);
      if (cell.partner) add(cell.partner->stage, cell.partner->kind);
    }
    const auto cost = static_cast<double>(costs_.duration(program_, id).value);
    durations[id] = std::llround(cost * sum.ratio());
  }
  return durations;
}

}  // namespace pipewright::planner
