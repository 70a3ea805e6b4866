#include "planner/synthesis/any_placement.hpp"

#include <algorithm>
#include <chrono>
#include <limits>

#include "core/costs/cost_text.hpp"
#include "planner/schedules/building.hpp"
#include "planner/schedules/registry.hpp"
#include "planner/synthesis/as_it_is.hpp"

namespace pipewright::planner {

using namespace synthesis;

namespace {

constexpr int kMostChunks = 8;
/// The most actions of an order with more than two stages a rank: named orders of all sizes are
/// made before the search, and should take less time than it.
constexpr std::int64_t kMostImprovedActions = 60'000;
/// What making and timing an action of a named order takes, in actions of a search.
constexpr std::int64_t kNanosecondsANamedAction = 60;
constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

int most_chunks(const SynthesisRequest& by_rank) {
  const std::int64_t of_one = std::int64_t{3} * by_rank.placement.ranks() * by_rank.micro_batches;
  return static_cast<int>(std::clamp<std::int64_t>(kMostImprovedActions / of_one, 2, kMostChunks));
}

std::vector<Placement> placements_to_try(int ranks, int most) {
  std::vector<Placement> placements;
  for (int chunks = 1; chunks <= most; ++chunks)
    placements.push_back(Placement::loop(ranks, chunks));
  for (int chunks = 2; chunks <= most; ++chunks) placements.push_back(waves(ranks, chunks));
  return placements;
}

/// One placement, and the best that is known of it.
struct PlacementTrial {
  SynthesisRequest request;
  SynthesisResult found;

  std::int64_t value() const { return found.order ? found.value_ns : kNone; }
};

/// Part of the request's effort.
SynthesisRequest with_share(SynthesisRequest request, std::int64_t part, std::int64_t of) {
  request.budget_ns = request.budget_ns / of * part;
  if (request.steps > 0) request.steps = std::max<std::int64_t>(1, request.steps / of * part);
  return request;
}

class AnyPlacement {
 public:
  explicit AnyPlacement(const SynthesisRequest& by_rank)
      : by_rank_(by_rank), most_(most_chunks(by_rank)) {}

  SynthesisResult run() {
    name_orders();
    const std::int64_t spent = named_ * kNanosecondsANamedAction;
    SynthesisRequest left = by_rank_;
    left.budget_ns = std::max(by_rank_.budget_ns / 4, by_rank_.budget_ns - spent);
    search(left);
    if (by_rank_.prove) prove();
    return result();
  }

 private:
  /// Each placement with its named orders and its bound.
  void name_orders() {
    for (const Placement& placement : placements_to_try(by_rank_.placement.ranks(), most_)) {
      PlacementTrial trial;
      trial.request = by_rank_;
      trial.request.placement = placement;
      trial.request.costs = resampled(by_rank_.costs, placement);
      trial.request.starts.clear();
      trial.request.prove = false;
      watch(trial.request);
      SynthesisRequest quick = trial.request;
      quick.budget_ns = 0;
      quick.steps = std::min<std::int64_t>(1, quick.steps);
      trial.found = synthesise(quick);
      evaluated_ += trial.found.evaluated;
      named_ += trial.found.evaluated * 3 * placement.stages() * by_rank_.micro_batches;
      trials_.push_back(std::move(trial));
    }
    if (limit_counts_copies()) name_two_copies();
  }

  /// A limit that leaves the weights out says nothing of an order that has them twice.
  bool limit_counts_copies() const {
    const auto& limits = by_rank_.memory_limit;
    const auto& memory = by_rank_.costs.memory;
    return std::any_of(limits.begin(), limits.end(), [](Bytes b) { return b.value > 0; }) &&
           !memory.empty() && std::all_of(memory.begin(), memory.end(), [](const StageMemory& m) {
             return m.constant.value > 0;
           });
  }

  void name_two_copies() {
    const ScheduleRequest request{.ranks = by_rank_.placement.ranks(),
                                  .micro_batches = by_rank_.micro_batches,
                                  .chunks = 1,
                                  .parameters = {},
                                  .costs = by_rank_.costs,
                                  .memory_limit = Bytes(0)};
    for (const Schedule& schedule : schedules()) {
      if (schedule.layout != Layout::Bidirectional || refusal_of(schedule, request)) continue;
      auto timed = time_as_it_is(by_rank_, schedule.make(request));
      ++evaluated_;
      if (!timed || (two_copies_ &&
                     timed->value(by_rank_.objective) >= two_copies_->value(by_rank_.objective)))
        continue;
      two_copies_ = std::move(timed);
      two_copies_name_ = schedule.name;
    }
  }

  std::int64_t best() const {
    std::int64_t best = two_copies_ ? two_copies_->value(by_rank_.objective) : kNone;
    for (const PlacementTrial& trial : trials_) best = std::min(best, trial.value());
    return best;
  }

  /// Placements that may have an order below the best.
  std::vector<PlacementTrial*> open() {
    std::vector<PlacementTrial*> open;
    for (PlacementTrial& trial : trials_) {
      if (trial.found.order && trial.found.lower_bound_ns < best()) open.push_back(&trial);
    }
    return open;
  }

  /// Three fifths of the effort for all open placements alike, the rest for the one that is then
  /// the best.
  void search(const SynthesisRequest& effort) {
    const std::vector<PlacementTrial*> all = open();
    const auto count = static_cast<std::int64_t>(all.size());
    for (PlacementTrial* trial : all) search_on(*trial, with_share(effort, 3, 5 * count));
    std::vector<PlacementTrial*> left = open();
    if (left.empty()) return;
    const auto first = std::min_element(
        left.begin(), left.end(),
        [](const PlacementTrial* a, const PlacementTrial* b) { return a->value() < b->value(); });
    search_on(**first, with_share(effort, 2, 5));
  }

  /// Proves one open placement after the other, until one stays open: then the whole stays open.
  void prove() {
    std::vector<PlacementTrial*> left = open();
    std::stable_sort(left.begin(), left.end(),
                     [](const PlacementTrial* a, const PlacementTrial* b) {
                       return a->found.lower_bound_ns > b->found.lower_bound_ns;
                     });
    for (PlacementTrial* trial : left) {
      SynthesisRequest effort = by_rank_;
      effort.budget_ns = 0;
      effort.steps = std::min<std::int64_t>(1, effort.steps);
      search_on(*trial, effort, true);
      if (trial->found.lower_bound_ns < best()) return;
    }
  }

  void search_on(PlacementTrial& trial, const SynthesisRequest& effort, bool prove = false) {
    if (trial.found.lower_bound_ns >= best()) return;
    SynthesisRequest request = trial.request;
    request.budget_ns = effort.budget_ns;
    request.steps = effort.steps;
    request.prove = prove;
    request.named_schedules = false;
    request.wanted_below_ns = best();
    request.starts = {{trial.found.found_by, *trial.found.order}};
    SynthesisResult now = synthesise(request);
    SynthesisResult& known = trial.found;
    evaluated_ += now.evaluated;
    known.lower_bound_ns = std::max(known.lower_bound_ns, now.lower_bound_ns);
    if (!now.order || now.value_ns >= known.value_ns) return;
    known.order = std::move(now.order);
    known.value_ns = now.value_ns;
    known.makespan_ns = now.makespan_ns;
    known.span_ns = now.span_ns;
    known.found_by = now.found_by;
  }

  void watch(SynthesisRequest& request) const {
    if (!by_rank_.on_progress) return;
    request.on_progress = [this](SynthesisProgress progress) {
      progress.elapsed_ns = elapsed();
      progress.value_ns = std::min(progress.value_ns, best());
      for (const PlacementTrial& trial : trials_)
        progress.lower_bound_ns = std::min(progress.lower_bound_ns, trial.found.lower_bound_ns);
      by_rank_.on_progress(progress);
    };
  }

  SynthesisResult result() {
    const auto first = std::min_element(
        trials_.begin(), trials_.end(),
        [](const PlacementTrial& a, const PlacementTrial& b) { return a.value() < b.value(); });
    SynthesisResult result = first->found;
    if (two_copies_ && two_copies_->value(by_rank_.objective) < first->value())
      take_two_copies(result);
    if (!result.order) return least_of_all();
    result.lower_bound_ns = result.value_ns;
    for (const PlacementTrial& trial : trials_) {
      if (!trial.found.order) continue;
      result.lower_bound_ns = std::min(result.lower_bound_ns, trial.found.lower_bound_ns);
      const SynthesisResult& other = trial.found;
      if (other.best_named.empty() ||
          (!result.best_named.empty() && other.best_named_ns >= result.best_named_ns))
        continue;
      result.best_named = other.best_named;
      result.best_named_ns = other.best_named_ns;
      result.best_named_chunks = other.best_named_chunks;
    }
    finish(result);
    return result;
  }

  void take_two_copies(SynthesisResult& result) const {
    result.order = two_copies_->order;
    result.makespan_ns = two_copies_->makespan_ns;
    result.span_ns = two_copies_->span_ns;
    result.value_ns = two_copies_->value(by_rank_.objective);
    result.objective = by_rank_.objective;
    result.found_by = result.best_named = two_copies_name_;
    result.best_named_ns = result.value_ns;
    result.best_named_chunks = 1;
    result.least_limit.clear();
  }

  void finish(SynthesisResult& result) const {
    result.scope = any_scope(by_rank_, most_);
    for (const PlacementTrial& trial : trials_) {
      if (!trial.found.order || !cut_is_rough(by_rank_.costs, trial.request.placement.stages()))
        continue;
      result.scope.orders += std::string(result.scope.orders.empty() ? "" : ", ") +
                             "stages of whole ns and bytes, rounded up";
      break;
    }
    result.proven = result.value_ns <= result.lower_bound_ns;
    result.gap = result.lower_bound_ns > 0 ? static_cast<double>(result.value_ns) /
                                                     static_cast<double>(result.lower_bound_ns) -
                                                 1.0
                                           : 0.0;
    result.evaluated = evaluated_;
    result.elapsed_ns = elapsed();
  }

  /// The result of the placement with which the fullest rank needs least.
  SynthesisResult least_of_all() const {
    const auto fullest = [](const PlacementTrial& trial) {
      const auto& least = trial.found.least_limit;
      return least.empty() ? Bytes(0) : *std::max_element(least.begin(), least.end());
    };
    SynthesisResult nothing =
        std::min_element(trials_.begin(), trials_.end(),
                         [&](const PlacementTrial& a, const PlacementTrial& b) {
                           return fullest(a) < fullest(b);
                         })
            ->found;
    nothing.scope = any_scope(by_rank_, most_);
    return nothing;
  }

  std::int64_t elapsed() const { return (std::chrono::steady_clock::now() - begin_).count(); }

  const SynthesisRequest& by_rank_;
  int most_;
  std::vector<PlacementTrial> trials_;
  std::optional<AsItIs> two_copies_;
  std::string two_copies_name_;
  std::int64_t evaluated_ = 0;
  std::int64_t named_ = 0;  // actions of the orders that name_orders() timed
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

SynthesisResult synthesise_any_placement(const SynthesisRequest& by_rank) {
  return AnyPlacement(by_rank).run();
}

}  // namespace pipewright::planner
