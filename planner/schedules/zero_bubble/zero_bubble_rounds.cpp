#include "planner/schedules/zero_bubble/zero_bubble_rounds.hpp"

#include <limits>
#include <utility>

#include "core/base/error.hpp"
#include "planner/schedules/building.hpp"
#include "planner/schedules/growing_order.hpp"
#include "planner/schedules/zero_bubble/try_settings.hpp"

namespace pipewright::planner {
namespace {

/// The heuristic's choices, as bits of a way.
enum RoundsChoice : unsigned {
  kKeepShortWaits = 1,  // a wait that makes the rank no worse than the worst gets no W
  kForwardAtOnce = 2,   // no F is held back for the sake of an I that will be here soon
  kLateFirstI = 4,      // the last forward ahead may end after the first gradient is here
};

struct RoundsRun {
  const PlannedCosts& costs;
  GrowingOrder order;
  const Growth nothing;
  std::vector<std::uint32_t> best;  // the actions of the best order so far
  std::vector<char> takes_f;        // by rank, in this round
  std::int64_t best_span = std::numeric_limits<std::int64_t>::max();
  unsigned mattered = 0;
};

/// Forwards that each rank runs ahead of its first I, not counting the very first, which every rank
/// has run.
std::vector<int> forwards_ahead(const PlannedCosts& costs, const GrowingOrder& order, bool late) {
  std::vector<int> ahead(static_cast<std::size_t>(costs.ranks), 0);
  std::int64_t gradient = 0;  // end of the first I on the next rank
  for (int r = costs.ranks - 1; r >= 0; --r) {
    const PlannedStage& stage = costs.at(r, 0);
    const GrowingRank& rank = growing::rank(order, r);
    std::int64_t clock = rank.clock, live = rank.live;
    if (r + 1 < costs.ranks) {
      int& count = ahead[static_cast<std::size_t>(r)];
      gradient += stage.wait_i;
      while (1 + count < costs.micro_batches &&
             live + stage.memory_f <= costs.room_f[static_cast<std::size_t>(r)] &&
             (late ? clock < gradient : clock + stage.f <= gradient)) {
        live += stage.memory_f;
        clock += stage.f;
        ++count;
      }
    }
    gradient = std::max(clock, gradient) + stage.i;
  }
  // A rank runs at least one forward fewer ahead than the rank that feeds it, unless that one has
  // all micro-batches.
  for (std::size_t r = 1; r < ahead.size(); ++r) {
    const int before = ahead[r - 1];
    if (before + 1 < costs.micro_batches) ahead[r] = std::min(ahead[r], std::max(0, before - 1));
  }
  return ahead;
}

void warm_up_rounds(RoundsRun& run, bool late) {
  const PlannedCosts& costs = run.costs;
  for (int r = 0; r < costs.ranks; ++r) put_f(run.order, costs, r);
  const std::vector<int> ahead = forwards_ahead(costs, run.order, late);
  if (ahead != forwards_ahead(costs, run.order, !late)) run.mattered |= kLateFirstI;
  for (int r = 0; r < costs.ranks; ++r)
    for (int k = 0; k < ahead[static_cast<std::size_t>(r)]; ++k) put_f(run.order, costs, r);
  for (int r = costs.ranks - 1; r >= 0; --r) put_i(run.order, costs, r);
}

/// Whether the rank's next F would delay an I whose gradient the next rank is about to send: that
/// gradient is expected after one F and one I there.
bool holds_f_back(const RoundsRun& run, int r) {
  const PlannedCosts& costs = run.costs;
  if (r + 1 == costs.ranks) return false;
  const GrowingStage& own = growing::stage(run.order, r);
  if (own.f < growing::stage(run.order, r + 1).f + 2) return false;
  const PlannedStage& stage = costs.at(r, 0);
  const PlannedStage& next = costs.at(r + 1, 0);
  const GrowingRank& rank = growing::rank(run.order, r);
  const std::int64_t gradient =
      growing::rank(run.order, r + 1).clock + next.f + next.i + stage.wait_i;
  if (rank.clock >= gradient) return true;
  std::int64_t end = rank.clock + stage.f, live = rank.live + stage.memory_f;
  for (int w = own.w; w < own.i && live > costs.room_f[static_cast<std::size_t>(r)]; ++w) {
    end += stage.w;
    live += stage.memory_w;
  }
  return end > gradient && gradient - rank.clock <= slack(run.order, r);
}

/// Which ranks take an F in this round: only those whose next rank takes one as well.
void choose_forwards(RoundsRun& run, unsigned way) {
  bool next_takes = true;
  for (int r = run.costs.ranks - 1; r >= 0; --r) {
    bool takes = next_takes && growing::stage(run.order, r).f < run.costs.micro_batches;
    if (takes && holds_f_back(run, r)) {
      run.mattered |= kForwardAtOnce;
      takes = (way & kForwardAtOnce) != 0;
    }
    run.takes_f[static_cast<std::size_t>(r)] = takes;
    next_takes = takes;
  }
}

/// W's while the rank waits for `input`.
void use_wait(RoundsRun& run, unsigned way, int r, std::int64_t input) {
  const std::int64_t wait = fill_wait(run.order, run.costs, r, input);
  if (wait == 0) return;
  if (wait <= slack(run.order, r)) {
    run.mattered |= kKeepShortWaits;
    if ((way & kKeepShortWaits) != 0) return;
  }
  put_w(run.order, run.costs, r);
}

void round_of_forwards(RoundsRun& run, unsigned way) {
  for (int r = 0; r < run.costs.ranks; ++r) {
    if (!run.takes_f[static_cast<std::size_t>(r)]) continue;
    const bool fits = make_room(run.order, run.costs, r, run.costs.at(r, 0).memory_f,
                                run.costs.room_f[static_cast<std::size_t>(r)]);
    PIPEWRIGHT_ASSERT(fits, "a forward of the heuristic exceeds its memory");
    use_wait(run, way, r, growing::input_of_f(run.order, run.costs, r));
    put_f(run.order, run.costs, r);
  }
}

void round_of_backwards(RoundsRun& run, unsigned way) {
  for (int r = run.costs.ranks - 1; r >= 0; --r) {
    const bool fits = make_room(run.order, run.costs, r, run.costs.at(r, 0).memory_i,
                                run.costs.room_i[static_cast<std::size_t>(r)]);
    PIPEWRIGHT_ASSERT(fits, "a backward of the heuristic exceeds its memory");
    use_wait(run, way, r, growing::input_of_i(run.order, run.costs, r));
    // Nobody waits for rank 0: once its forwards are done, it may as well catch up.
    if (r == 0 && growing::stage(run.order, 0).f == run.costs.micro_batches) {
      while (growing::w_is_due(growing::rank(run.order, 0))) put_w(run.order, run.costs, 0);
    }
    put_i(run.order, run.costs, r);
  }
}

/// The whole heuristic once; stops where it can no longer be better than the best so far.
unsigned attempt_rounds(RoundsRun& run, unsigned way) {
  run.mattered = 0;
  go_back(run.order, run.nothing);
  if (least_span(run.order, run.costs) >= run.best_span) return 0;
  warm_up_rounds(run, (way & kLateFirstI) != 0);
  for (int k = 1; k < run.costs.micro_batches; ++k) {
    if (least_span(run.order, run.costs) >= run.best_span) break;
    choose_forwards(run, way);
    round_of_forwards(run, way);
    round_of_backwards(run, way);
  }
  const std::int64_t span = least_span(run.order, run.costs);
  if (span < run.best_span) {
    run.best_span = span;
    put_rest(run.order, run.costs);
    keep_actions(run.order, run.nothing, run.best);
  }
  return run.mattered;
}

}  // namespace

std::optional<std::string> refuse_zero_bubble_rounds(std::string_view name,
                                                     const ScheduleRequest& request) {
  if (auto refused = refuse_chunks(name, request)) return refused;
  return refuse_costs(name, request, Placement::loop(request.ranks, 1));
}

Order zero_bubble_rounds(const ScheduleRequest& request, int under_way) {
  Placement placement = Placement::loop(request.ranks, 1);
  const PlannedCosts costs = planned_costs(request, placement, under_way);
  GrowingOrder order = nothing_yet(costs);
  const Growth nothing = order;
  RoundsRun run{costs, std::move(order), nothing, {}, {}};
  run.takes_f.resize(static_cast<std::size_t>(costs.ranks));
  try_settings(3, [&run](unsigned way) { return attempt_rounds(run, way); });
  return order_of(run.best, costs, std::move(placement));
}

}  // namespace pipewright::planner
