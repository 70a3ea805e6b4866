#include "planner/costs/drawn_durations.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>

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

const ProfileSize& nearest_size(const std::vector<ProfileSize>& sizes, int micro_batch_size) {
  return *std::ranges::min_element(sizes, {}, [&](const ProfileSize& size) {
    return std::abs(size.micro_batch_size - micro_batch_size);
  });
}

const std::vector<ProfileSize>& sizes_of(const Profile& profile, const StageDivision& division,
                                         int replicas) {
  const DividedProfile* divided = find_divided(profile, division, replicas);
  return divided != nullptr ? divided->sizes : profile.sizes;
}

/// A computation, or a part of one.
bool takes_time(const Instruction& in) {
  return is_compute(in.kind) || in.kind == ActionKind::Opt || in.kind == ActionKind::Part;
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
                               int micro_batch_size, const StageDivision& division, int replicas)
    : program_(program),
      costs_(costs),
      stages_(stages.begin(), stages.end()),
      clock_(profile.clock),
      layers_(nearest_size(sizes_of(profile, division, replicas), micro_batch_size).spreads) {
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

double DrawnDurations::draw_ratio(RankId rank, std::span<const Action> actions,
                                  std::mt19937_64& random) const {
  Sum sum(random, clock_);
  for (const Action& action : actions) {
    const auto add = [&](StageId stage) {
      const StagePlan& plan = stages_[static_cast<std::size_t>(stage.value)];
      for (const SpreadKind kind : kinds_of(action.kind, layers_)) {
        for (int l = plan.first_layer; l < plan.end_layer; ++l)
          sum.add(layers_[static_cast<std::size_t>(l)].*kind);
      }
    };
    if (action.kind != ActionKind::Opt) {
      add(action.stage);
    } else {
      for (const StageId stage : program_.placement.stages_of(rank)) add(stage);
    }
  }
  return sum.ratio();
}

std::vector<double> DrawnDurations::draw_ratios(RankId rank, std::mt19937_64& random) const {
  std::vector<double> ratios;
  std::vector<std::pair<Action, double>> under_way;  // whose parts have begun
  const auto of_part = [&](const Action& action) {
    for (const auto& [begun, ratio] : under_way)
      if (same_action(begun, action)) return ratio;
    return under_way.emplace_back(action, draw_ratio(rank, {&action, 1}, random)).second;
  };
  const auto end = program_.rank_begin[static_cast<std::size_t>(rank.value) + 1];
  for (auto id = program_.rank_begin[static_cast<std::size_t>(rank.value)]; id < end; ++id) {
    if (!takes_time(program_.code[id])) continue;
    if (program_.code[id].kind == ActionKind::Part) {
      ratios.push_back(of_part(*program_.action_of_part(id)));
      continue;
    }
    under_way.clear();
    const Cell cell = program_.cell(id);
    std::vector<Action> actions = {cell.action};
    if (cell.partner) actions.push_back(*cell.partner);
    ratios.push_back(draw_ratio(rank, actions, random));
  }
  return ratios;
}

std::vector<std::int64_t> DrawnDurations::draw(std::uint64_t seed) const {
  std::mt19937_64 random(seed);
  std::vector<std::int64_t> durations(program_.code.size(), 0);
  std::vector<double> ratios;
  for (int rank = 0; rank < program_.ranks(); ++rank) {
    if (rank % devices_of_rank(program_.devices) == 0) ratios = draw_ratios(RankId(rank), random);
    auto ratio = ratios.begin();
    const auto end = program_.rank_begin[static_cast<std::size_t>(rank) + 1];
    for (auto id = program_.rank_begin[static_cast<std::size_t>(rank)]; id < end; ++id) {
      if (!takes_time(program_.code[id])) continue;
      const auto cost = static_cast<double>(costs_.duration(program_, id).value);
      durations[id] = std::llround(cost * *ratio++);
    }
  }
  return durations;
}

}  // namespace pipewright::planner
