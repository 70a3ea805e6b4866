// Paddle's zero-bubble schedule of virtual stages for given costs: the chunks of a rank lie on
// waves that go down the ranks and up again. Forwards fill the time until each chunk's first
// forward and until the first gradient; then rounds of one I and one F a rank, with W in the waits.
#include <limits>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/units.hpp"
#include "planner/schedules/building.hpp"
#include "planner/schedules/entries.hpp"
#include "planner/schedules/v_shaped/first_forwards.hpp"
#include "planner/schedules/zero_bubble/try_settings.hpp"

namespace pipewright::planner {
namespace {

/// The heuristic's choices, as bits of a way.
enum ZbvppChoice : unsigned {
  kKeepLossRank = 1,       // the rank of the loss gets no W that overhangs its wait by up to 4/5
  kZbvppWaitsBeforeF = 2,  // an F gets no W before it that does not fit into the wait
  kZbvppWaitsBeforeI = 4,  // nor does an I
};

struct ZbvppRun {
  const PlannedCosts& costs;
  int loss_rank = 0;
  /// Micro-batches enter a rank only as far as its memory holds them whole. Slower, but ends within
  /// any limit.
  bool careful = false;
  GrowingOrder order;
  Growth warm;                      // where the rounds begin
  std::vector<std::uint32_t> best;  // the actions of the best order so far
  std::int64_t best_makespan = std::numeric_limits<std::int64_t>::max();
  unsigned mattered = 0;
};

/// W's while the rank waits for `input`, and one more that overhangs where the wait would be the
/// longest of all, or where it is for an I on the rank of the loss and worth a fifth of the W: that
/// rank works longest.
void use_wait(ZbvppRun& run, unsigned way, ZbvppChoice choice, const ApprovedWaits& waits, int r,
              std::int64_t input) {
  const std::int64_t wait = fill_wait(run.order, run.costs, r, input);
  if (wait == 0) return;
  const bool longest = wait > slack(run.order, waits, r);
  const bool loss = choice == kZbvppWaitsBeforeI && r == run.loss_rank &&
                    wait >= (cost_of_w(run.order, run.costs, r) + 4) / 5;
  const bool for_longest = longest && (way & choice) == 0;
  const bool for_loss = loss && (way & kKeepLossRank) == 0;
  if (longest) run.mattered |= choice;
  if (loss && !for_longest) run.mattered |= kKeepLossRank;
  if (for_longest || for_loss) put_w(run.order, run.costs, r);
}

/// One I: of the first chunk that has its gradient.
bool zbvpp_backward_of_rank(ZbvppRun& run, unsigned way, const ApprovedWaits& waits, int r) {
  for (int chunk = 0; chunk < run.costs.chunks; ++chunk) {
    const int s = run.costs.stage(r, chunk);
    if (!growing::ready_i(run.order, s)) continue;
    const std::int64_t room = run.costs.room_i[static_cast<std::size_t>(r)];
    if (!make_room(run.order, run.costs, r, run.costs.at(r, chunk).memory_i, room)) return false;
    use_wait(run, way, kZbvppWaitsBeforeI, waits, r, growing::input_of_i(run.order, run.costs, s));
    put_i(run.order, run.costs, s);
    return true;
  }
  return false;
}

/// One F: of the last chunk that has its input.
bool zbvpp_forward_of_rank(ZbvppRun& run, unsigned way, const ApprovedWaits& waits, int r) {
  for (int chunk = run.costs.chunks - 1; chunk >= 0; --chunk) {
    const int s = run.costs.stage(r, chunk);
    if (!growing::ready_f(run.order, run.costs, s)) continue;
    const GrowingStage& done = growing::stage(run.order, s);
    if (run.careful && chunk == 0 &&
        done.f - done.i >= run.costs.window[static_cast<std::size_t>(r)])
      return false;
    const std::int64_t room = run.costs.room_f[static_cast<std::size_t>(r)];
    if (!make_room(run.order, run.costs, r, run.costs.at(r, chunk).memory_f, room)) return false;
    use_wait(run, way, kZbvppWaitsBeforeF, waits, r, growing::input_of_f(run.order, run.costs, s));
    put_f(run.order, run.costs, s);
    return true;
  }
  return false;
}

/// True if the order is whole. Stops where it ends no earlier than the best and no run may follow.
bool finish(ZbvppRun& run, unsigned way, const ApprovedWaits& waits) {
  const int p = run.costs.ranks;
  const auto rank = [&](int k) { return run.loss_rank == 0 ? k : p - 1 - k; };
  for (std::int64_t left = i_left(run.order, run.costs); left > 0;) {
    if (!waits.idle.empty() && run.order.worst_idle >= waits.worst &&
        least_makespan(run.order, run.costs) >= run.best_makespan)
      return false;
    int backwards = 0, forwards = 0;
    for (int k = 0; k < p; ++k) backwards += zbvpp_backward_of_rank(run, way, waits, rank(k));
    for (int k = 0; k < p; ++k) forwards += zbvpp_forward_of_rank(run, way, waits, rank(k));
    if (backwards + forwards == 0) return false;
    left -= backwards;
  }
  put_rest(run.order, run.costs);
  return true;
}

/// One way; then the same way again and again with the waits of the run before approved, while the
/// longest wait shrinks.
unsigned attempt_zbvpp(ZbvppRun& run, unsigned way) {
  run.mattered = 0;
  ApprovedWaits waits;
  for (bool again = true; again;) {
    go_back(run.order, run.warm);
    if (!finish(run, way, waits)) break;
    again = waits.idle.empty() || run.order.worst_idle < waits.worst;
    waits = approved(run.order);
    const std::int64_t makespan = least_makespan(run.order, run.costs);
    if (makespan >= run.best_makespan) continue;
    run.best_makespan = makespan;
    keep_actions(run.order, run.warm, run.best);
  }
  return run.mattered;
}

constexpr std::int64_t kLargestLoss = 1'000'000'000'000'000'000;  // ns

/// The parameter `loss`, or nullopt where it is no duration.
std::optional<std::int64_t> loss_of(const ScheduleRequest& request) {
  const auto given = request.parameters.find("loss");
  if (given == request.parameters.end()) return 0;
  try {
    return parse_duration(given->second, "loss").value;
  } catch (const InputError&) {
    return std::nullopt;
  }
}

/// The request with the loss in the costs of the last stage.
ScheduleRequest with_loss(const ScheduleRequest& request) {
  ScheduleRequest planned = request;
  const int stages = request.ranks * request.chunks;
  const std::int64_t loss = loss_of(request).value_or(0);
  if (loss == 0) return planned;
  if (planned.costs.stages.empty()) {
    const Nanoseconds unit(1);
    planned.costs.stages.assign(static_cast<std::size_t>(stages), {unit, unit, unit, {}, {}});
  }
  StageCosts& last = planned.costs.stages.back();
  for (Nanoseconds* cost : {&last.f, &last.i, &last.w}) *cost += Nanoseconds(loss);
  return planned;
}

std::optional<std::string> refuse_zbvpp(const ScheduleRequest& request) {
  if (request.chunks < 2)
    return "zbvpp needs at least 2 chunks a rank; use vpp 2, or the schedule zb-1p";
  const auto loss = loss_of(request);
  if (!loss || *loss < 0 || *loss > kLargestLoss)
    return "loss is the time of the loss, such as \"34\" ns or \"5us\", at most 31 years; not \"" +
           request.parameters.at("loss") + "\"";
  const Placement placement = waves(request.ranks, request.chunks);
  if (auto refused = refuse_costs("zbvpp", request, placement)) return refused;
  return refuse_costs("zbvpp", with_loss(request), placement);
}

Order make_zbvpp(const ScheduleRequest& request) {
  Placement placement = waves(request.ranks, request.chunks);
  const PlannedCosts costs = planned_costs(with_loss(request), placement, 0);
  GrowingOrder order = nothing_yet(costs);
  const Growth nothing = order;
  ZbvppRun run{costs, request.chunks % 2 == 0 ? 0 : request.ranks - 1, false, std::move(order), {},
               {}};
  const auto try_all = [&run] {
    try_settings(3, [&](unsigned way) { return attempt_zbvpp(run, way); });
  };
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  if (run_first_forwards(run.order, costs)) {
    run.warm = run.order;
    try_all();
  }
  if (run.best_makespan == kNone) {
    run.careful = true;
    run.warm = nothing;
    try_all();
  }
  PIPEWRIGHT_ASSERT(run.best_makespan != kNone, "a careful run got stuck");
  return order_of(run.best, costs, std::move(placement));
}

}  // namespace

Schedule zbvpp_schedule() {
  Schedule entry;
  entry.name = "zbvpp";
  entry.text.summary = "Paddle's waves of chunks, I and W apart, ordered for the given costs";
  entry.text.constraint =
      "v >= 2; any p, m (Paddle itself: p divides m, m <= p); a memory limit of at least all "
      "forwards of a rank";
  entry.text.bubble = "none known";
  entry.text.memory = "the memory limit; unlimited without one";
  entry.text.source = "PaddlePaddle, pipeline_zero_bubble.py (VScheduleCreator) at 55325a0d";
  entry.parameters = {"loss"};
  entry.traits.splits_backward = true;
  entry.default_chunks = 2;
  entry.layout = Layout::Waves;
  entry.traits.cost_driven = true;
  entry.refusal = refuse_zbvpp;
  entry.make = make_zbvpp;
  return entry;
}

}  // namespace pipewright::planner
