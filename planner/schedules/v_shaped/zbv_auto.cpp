// ZBV for given costs: two chunks a rank that go down the ranks and up again, so that the last
// stage's I comes early and p micro-batches' memory is enough for no wait at all with equal costs.
// Rounds of one I and one F a rank; W fills the waits.
#include <limits>
#include <utility>

#include "core/base/error.hpp"
#include "planner/schedules/building.hpp"
#include "planner/schedules/entries.hpp"
#include "planner/schedules/growing_order.hpp"
#include "planner/schedules/zero_bubble/try_settings.hpp"

namespace pipewright::planner {
namespace {

constexpr int kDown = 0, kUp = 1;  // a rank's chunks, by the direction of their forwards

/// The heuristic's choices, as bits of a way. An I of the way down always gets its W.
enum VariantChoice : unsigned {
  kKeepWaitsBeforeF = 1,    // an F gets no W before it that does not fit into the wait
  kKeepWaitsBeforeUpI = 2,  // nor does an I of the chunk that goes up
};

struct Run {
  const PlannedCosts& costs;
  /// Micro-batches enter a rank only as far as its memory holds them whole. Slower, but ends within
  /// any limit.
  bool careful = false;
  GrowingOrder order;
  Growth warm;                      // where the rounds begin
  std::vector<std::uint32_t> best;  // the actions of the best order so far
  std::vector<int> turn;            // by rank: the chunk whose I it does in this round
  std::int64_t best_wait = std::numeric_limits<std::int64_t>::max();
  unsigned mattered = 0;
};

bool zbv_fits(const GrowingOrder& order, const PlannedCosts& costs, int r, std::int64_t memory) {
  return growing::rank(order, r).live + memory <= costs.room_f[static_cast<std::size_t>(r)];
}

/// Puts the stage's next F if its input and its memory are there.
bool put_f_if_possible(GrowingOrder& order, const PlannedCosts& costs, int r, int chunk) {
  const int s = costs.stage(r, chunk);
  if (!growing::ready_f(order, costs, s)) return false;
  if (!zbv_fits(order, costs, r, costs.at(r, chunk).memory_f)) return false;
  put_f(order, costs, s);
  return true;
}

/// The first micro-batch down and up again. While it is away, the ranks above the one that it comes
/// back to take further micro-batches down, as long as that rank is not late for it and keeps the
/// memory that two chunks of all ranks above it will need.
bool first_micro_batch(GrowingOrder& order, const PlannedCosts& costs) {
  for (int r = 0; r < costs.ranks; ++r) {
    if (!put_f_if_possible(order, costs, r, kDown)) return false;
  }
  for (int r = costs.ranks - 1; r >= 0; --r) {
    const int up = costs.stage(r, kUp), down = costs.stage(r, kDown);
    const std::int64_t forwards = costs.at(r, kDown).memory_f + costs.at(r, kUp).memory_f;
    const auto another_fits = [&] {
      const std::int64_t end = growing::rank(order, r).clock + costs.at(r, kDown).f;
      bool all = growing::stage(order, down).f < costs.micro_batches &&
                 end <= growing::input_of_f(order, costs, up) &&
                 zbv_fits(order, costs, r, (1 + r) * forwards);
      for (int above = 0; above < r && all; ++above)
        all = zbv_fits(order, costs, above, costs.at(above, kDown).memory_f);
      return all;
    };
    while (r + 1 < costs.ranks && another_fits()) {
      for (int above = 0; above <= r; ++above) put_f(order, costs, costs.stage(above, kDown));
    }
    if (!put_f_if_possible(order, costs, r, kUp)) return false;
  }
  return true;
}

/// Then each rank runs forwards, both chunks in turn, until it is level with the rank above it.
void level_forwards(GrowingOrder& order, const PlannedCosts& costs) {
  int chunk = kDown, in_vain = 0;
  const auto done = [&](int r, int c) { return growing::stage(order, costs.stage(r, c)).f; };
  for (int r = 1; r < costs.ranks; ++r) {
    const auto behind = [&] {
      const int up = done(r, kUp), above = done(r - 1, kUp);
      return done(r, kDown) + up < done(r - 1, kDown) + above ||
             (up <= above && above < costs.micro_batches);
    };
    for (in_vain = 0; in_vain < 2 && behind(); chunk = 1 - chunk) {
      bool put = false;
      for (int below = costs.ranks - 1; below >= r; --below)
        put |= put_f_if_possible(order, costs, below, chunk);
      in_vain = put ? 0 : in_vain + 1;
    }
  }
}

/// Which chunk each rank does an I of: on the way back the gradient comes down the ranks through
/// the chunk that went up, then up through the other, and that one is preferred once it has begun.
void choose_turns(Run& run) {
  for (int r = 0; r < run.costs.ranks; ++r) {
    const int down = run.costs.stage(r, kDown);
    const std::int32_t downs = growing::stage(run.order, down).i;
    const std::int32_t ups = growing::stage(run.order, run.costs.stage(r, kUp)).i;
    const bool here = r + 1 == run.costs.ranks || growing::stage(run.order, down + 1).i > downs ||
                      ups >= run.costs.micro_batches;
    run.turn[static_cast<std::size_t>(r)] = downs < ups && here ? kDown : kUp;
  }
}

bool backward_of_rank(Run& run, unsigned way, const ApprovedWaits& waits, int r) {
  int chunk = run.turn[static_cast<std::size_t>(r)];
  if (!growing::ready_i(run.order, run.costs.stage(r, chunk))) chunk = 1 - chunk;
  const int s = run.costs.stage(r, chunk);
  if (!growing::ready_i(run.order, s)) return false;
  const std::int64_t room = run.costs.room_i[static_cast<std::size_t>(r)];
  if (!make_room(run.order, run.costs, r, run.costs.at(r, chunk).memory_i, room)) return false;
  const std::int64_t wait =
      fill_wait(run.order, run.costs, r, growing::input_of_i(run.order, run.costs, s));
  if (wait > 0 && wait > slack(run.order, waits, r)) {
    if (chunk == kUp) run.mattered |= kKeepWaitsBeforeUpI;
    if (chunk == kDown || (way & kKeepWaitsBeforeUpI) == 0) put_w(run.order, run.costs, r);
  }
  put_i(run.order, run.costs, s);
  return true;
}

/// The way down's I's from the last rank up, then the way up's from the first rank down: each may
/// use what the rank before it has just done.
int round_of_backwards(Run& run, unsigned way, const ApprovedWaits& waits) {
  int done = 0;
  choose_turns(run);
  for (int r = run.costs.ranks - 1; r >= 0; --r) {
    if (run.turn[static_cast<std::size_t>(r)] == kDown)
      done += backward_of_rank(run, way, waits, r);
  }
  for (int r = 0; r < run.costs.ranks; ++r) {
    if (run.turn[static_cast<std::size_t>(r)] == kUp) done += backward_of_rank(run, way, waits, r);
  }
  return done;
}

bool forward_of_rank(Run& run, unsigned way, const ApprovedWaits& waits, int r) {
  int chunk = kUp;
  if (!growing::ready_f(run.order, run.costs, run.costs.stage(r, kUp))) {
    chunk = kDown;
    const int down = run.costs.stage(r, kDown);
    if (!growing::ready_f(run.order, run.costs, down)) return false;
    const GrowingStage& done = growing::stage(run.order, down);
    if (run.careful && done.f - done.i >= run.costs.window[static_cast<std::size_t>(r)])
      return false;
  }
  const std::int64_t room = run.costs.room_f[static_cast<std::size_t>(r)];
  if (!make_room(run.order, run.costs, r, run.costs.at(r, chunk).memory_f, room)) return false;
  const int s = run.costs.stage(r, chunk);
  const std::int64_t wait =
      fill_wait(run.order, run.costs, r, growing::input_of_f(run.order, run.costs, s));
  if (wait > 0 && wait > slack(run.order, waits, r)) {
    run.mattered |= kKeepWaitsBeforeF;
    if ((way & kKeepWaitsBeforeF) == 0) put_w(run.order, run.costs, r);
  }
  put_f(run.order, run.costs, s);
  return true;
}

/// True if the order is whole and no rank waits as long as `bound`.
bool finish(Run& run, unsigned way, const ApprovedWaits& waits, std::int64_t bound) {
  for (std::int64_t left = i_left(run.order, run.costs); left > 0;) {
    const int backwards = round_of_backwards(run, way, waits);
    int forwards = 0;
    for (int r = 0; r < run.costs.ranks; ++r) forwards += forward_of_rank(run, way, waits, r);
    if (backwards + forwards == 0 || run.order.worst_idle >= bound) return false;
    left -= backwards;
  }
  put_rest(run.order, run.costs);
  return true;
}

/// One way; then the same way again and again with the waits of the run before approved, while the
/// longest wait shrinks.
unsigned attempt(Run& run, unsigned way) {
  run.mattered = 0;
  ApprovedWaits waits;
  std::int64_t bound = std::numeric_limits<std::int64_t>::max();
  while (run.best_wait > 0) {
    go_back(run.order, run.warm);
    if (!finish(run, way, waits, bound)) break;
    bound = run.order.worst_idle;
    waits = approved(run.order);
    if (bound < run.best_wait) {
      run.best_wait = bound;
      keep_actions(run.order, run.warm, run.best);
    }
  }
  return run.mattered;
}

std::optional<std::string> refuse_zbv_auto(const ScheduleRequest& request) {
  if (request.chunks != 2) {
    return "zbv-auto puts two stages on each rank, not " + std::to_string(request.chunks) +
           "; use vpp 2, or the schedule zb-2p";
  }
  return refuse_costs("zbv-auto", request, Placement::v_shape(request.ranks));
}

Order make_zbv_auto(const ScheduleRequest& request) {
  Placement placement = Placement::v_shape(request.ranks);
  const PlannedCosts costs = planned_costs(request, placement, request.ranks);
  GrowingOrder order = nothing_yet(costs);
  const Growth nothing = order;
  Run run{costs, false, std::move(order), {}, {}, {}};
  run.turn.resize(static_cast<std::size_t>(costs.ranks));
  const auto try_all = [&run] { try_settings(2, [&](unsigned way) { return attempt(run, way); }); };
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  if (first_micro_batch(run.order, costs)) {
    level_forwards(run.order, costs);
    run.warm = run.order;
    try_all();
  }
  if (run.best_wait == kNone) {
    run.careful = true;
    run.warm = nothing;
    try_all();
  }
  PIPEWRIGHT_ASSERT(run.best_wait != kNone, "a careful run got stuck");
  return order_of(run.best, costs, std::move(placement));
}

}  // namespace

Schedule zbv_auto_schedule() {
  Schedule entry;
  entry.name = "zbv-auto";
  entry.text.summary =
      "a V of two chunks a rank, ordered for the given costs: zb-2p's waits in 1F1B's memory";
  entry.text.constraint = "v = 2; any p, m; a memory limit of at least both forwards of a rank";
  entry.text.bubble =
      "(p-1)F, of the span max(0, 2p-1-m)F, for F = I = W without latency and m >= p; else none "
      "known";
  entry.text.memory = "p forwards of each chunk, or the limit of --mem";
  entry.text.source =
      "Zero Bubble Pipeline Parallelism (arXiv:2401.10241) §6; scheduler/zbv.py of its authors' "
      "code";
  entry.traits.splits_backward = true;
  entry.default_chunks = 2;
  entry.layout = Layout::V;
  entry.traits.cost_driven = true;
  entry.refusal = refuse_zbv_auto;
  entry.make = make_zbv_auto;
  return entry;
}

}  // namespace pipewright::planner
