// An order under construction, for schedules that plan by a heuristic: what each rank has been
// given so far, when it ends under the papers' model (a latency on each cross-rank dependency and
// nothing else), how much memory is live, how long the rank has waited since it began, and which
// weight gradients it could still do. Plain data; the functions are pure but for the order they are
// given.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/order/order.hpp"
#include "planner/schedules/planned_costs.hpp"

namespace pipewright::planner {

struct GrowingRank {
  std::int64_t begin = 0;  // start of its first F, ns
  std::int64_t clock = 0;  // end of its last action, ns
  std::int64_t idle = 0;   // waits between its first F and `clock`, ns
  std::int64_t live = 0;   // bytes
  std::size_t actions = 0;
  std::size_t next_w = 0, end_w = 0;  // its part of `due`: W's whose I is done, oldest first
};

/// Actions of each kind that are done; each kind runs in the order of the micro-batches.
struct GrowingStage {
  std::int32_t f = 0, i = 0, w = 0;
};

/// How far an order has grown.
struct Growth {
  std::vector<GrowingRank> ranks;
  std::vector<GrowingStage> stages;
  std::int64_t worst_idle = 0;  // of all ranks; it never shrinks
};

/// Entries beyond the growth are never read, so that going back to an earlier growth costs next to
/// nothing.
struct GrowingOrder : Growth {
  std::vector<std::int64_t> end_f, end_i;  // stage * m + micro-batch
  std::vector<std::uint32_t> actions;      // rank * 3vm + n: stage * 4 + kind
  std::vector<std::int32_t> due;           // rank * vm + n: stages
};

/// The waits that an earlier run ended with. A later run lets a rank wait by as much longer as the
/// worst rank of the earlier run waited longer than it. Empty: there was none.
struct ApprovedWaits {
  std::vector<std::int64_t> idle;  // by rank
  std::int64_t worst = 0;
};

GrowingOrder nothing_yet(const PlannedCosts& costs);
/// The order is again what it was at `earlier`.
void go_back(GrowingOrder& order, const Growth& earlier);
/// Keeps the actions of an order that is whole in `kept`, and goes back. `earlier` is to be the
/// same in every call for one order.
void keep_actions(GrowingOrder& order, const Growth& earlier, std::vector<std::uint32_t>& kept);
/// The order of a whole list of actions.
Order order_of(const std::vector<std::uint32_t>& actions, const PlannedCosts& costs,
               Placement placement);

ApprovedWaits approved(const Growth& growth);
/// I's that are not done yet.
std::int64_t i_left(const Growth& growth, const PlannedCosts& costs);
/// The last rank's end if no rank has to wait any more, ns: the makespan, once the order is whole.
std::int64_t least_makespan(const Growth& growth, const PlannedCosts& costs);
/// The same for the longest span from a rank's first F to its end.
std::int64_t least_span(const Growth& growth, const PlannedCosts& costs);

namespace growing {

inline GrowingRank& rank(GrowingOrder& order, int r) {
  return order.ranks[static_cast<std::size_t>(r)];
}
inline const GrowingRank& rank(const GrowingOrder& order, int r) {
  return order.ranks[static_cast<std::size_t>(r)];
}
inline const GrowingStage& stage(const GrowingOrder& order, int s) {
  return order.stages[static_cast<std::size_t>(s)];
}
inline std::size_t at(const PlannedCosts& costs, int s, int micro_batch) {
  return static_cast<std::size_t>(s) * static_cast<std::size_t>(costs.micro_batches) +
         static_cast<std::size_t>(micro_batch);
}

/// Whether the stage's next F, or I, exists and has its input (it may still be on its way).
inline bool ready_f(const GrowingOrder& order, const PlannedCosts& costs, int s) {
  const std::int32_t next = stage(order, s).f;
  return next < costs.micro_batches && (s == 0 || stage(order, s - 1).f > next);
}
inline bool ready_i(const GrowingOrder& order, int s) {
  const std::int32_t next = stage(order, s).i;
  const bool last = s + 1 == static_cast<int>(order.stages.size());
  return stage(order, s).f > next && (last || stage(order, s + 1).i > next);
}

/// When the input of the stage's next F, or I, is there; 0 where nothing comes from another stage.
inline std::int64_t input_of_f(const GrowingOrder& order, const PlannedCosts& costs, int s) {
  if (s == 0) return 0;
  return order.end_f[at(costs, s - 1, stage(order, s).f)] +
         costs.stages[static_cast<std::size_t>(s)].wait_f;
}
inline std::int64_t input_of_i(const GrowingOrder& order, const PlannedCosts& costs, int s) {
  if (s + 1 == static_cast<int>(order.stages.size())) return 0;
  return order.end_i[at(costs, s + 1, stage(order, s).i)] +
         costs.stages[static_cast<std::size_t>(s)].wait_i;
}

inline void run(GrowingOrder& order, GrowingRank& rank, std::int64_t input, std::int64_t cost,
                std::int64_t memory) {
  const std::int64_t wait = input - rank.clock;
  if (wait > 0) {
    rank.clock = input;
    if (rank.actions > 0) {
      rank.idle += wait;
      order.worst_idle = std::max(order.worst_idle, rank.idle);
    } else {
      rank.begin = input;
    }
  }
  rank.clock += cost;
  rank.live += memory;
}

inline void note(GrowingOrder& order, const PlannedCosts& costs, GrowingRank& rank, int r, int s,
                 ActionKind kind) {
  const std::size_t each =
      3 * static_cast<std::size_t>(costs.chunks) * static_cast<std::size_t>(costs.micro_batches);
  order.actions[static_cast<std::size_t>(r) * each + rank.actions++] =
      static_cast<std::uint32_t>(s) * 4 + static_cast<std::uint32_t>(kind);
}

inline bool w_is_due(const GrowingRank& rank) { return rank.next_w < rank.end_w; }

}  // namespace growing

inline void put_f(GrowingOrder& order, const PlannedCosts& costs, int s) {
  const PlannedStage& stage = costs.stages[static_cast<std::size_t>(s)];
  GrowingRank& rank = growing::rank(order, stage.rank);
  growing::run(order, rank, growing::input_of_f(order, costs, s), stage.f, stage.memory_f);
  GrowingStage& done = order.stages[static_cast<std::size_t>(s)];
  order.end_f[growing::at(costs, s, done.f++)] = rank.clock;
  growing::note(order, costs, rank, stage.rank, s, ActionKind::F);
}

inline void put_i(GrowingOrder& order, const PlannedCosts& costs, int s) {
  const PlannedStage& stage = costs.stages[static_cast<std::size_t>(s)];
  GrowingRank& rank = growing::rank(order, stage.rank);
  growing::run(order, rank, growing::input_of_i(order, costs, s), stage.i, stage.memory_i);
  GrowingStage& done = order.stages[static_cast<std::size_t>(s)];
  order.end_i[growing::at(costs, s, done.i++)] = rank.clock;
  order.due[rank.end_w++] = s;
  growing::note(order, costs, rank, stage.rank, s, ActionKind::I);
}

/// The rank's oldest W that is due.
inline void put_w(GrowingOrder& order, const PlannedCosts& costs, int r) {
  GrowingRank& rank = growing::rank(order, r);
  const int s = order.due[rank.next_w++];
  const PlannedStage& stage = costs.stages[static_cast<std::size_t>(s)];
  growing::run(order, rank, 0, stage.w, stage.memory_w);
  ++order.stages[static_cast<std::size_t>(s)].w;
  growing::note(order, costs, rank, r, s, ActionKind::W);
}

/// Duration of the rank's oldest W that is due; there has to be one.
inline std::int64_t cost_of_w(const GrowingOrder& order, const PlannedCosts& costs, int r) {
  const std::int32_t s = order.due[growing::rank(order, r).next_w];
  return costs.stages[static_cast<std::size_t>(s)].w;
}

/// Does W's until `memory` more fits into `room`; false if it does not fit even without them.
inline bool make_room(GrowingOrder& order, const PlannedCosts& costs, int r, std::int64_t memory,
                      std::int64_t room) {
  GrowingRank& rank = growing::rank(order, r);
  while (rank.live + memory > room) {
    if (!growing::w_is_due(rank)) return false;
    put_w(order, costs, r);
  }
  return true;
}

/// Does the W's that end before `until`, and returns how long the rank would wait after them; 0
/// where no W is left to shorten the wait.
inline std::int64_t fill_wait(GrowingOrder& order, const PlannedCosts& costs, int r,
                              std::int64_t until) {
  GrowingRank& rank = growing::rank(order, r);
  if (until < rank.clock) return 0;
  while (growing::w_is_due(rank) && rank.clock + cost_of_w(order, costs, r) <= until)
    put_w(order, costs, r);
  return growing::w_is_due(rank) ? std::max<std::int64_t>(0, until - rank.clock) : 0;
}

/// How long the rank could wait now without becoming the one that has waited longest.
inline std::int64_t slack(const GrowingOrder& order, int r) {
  return order.worst_idle - growing::rank(order, r).idle;
}
inline std::int64_t slack(const GrowingOrder& order, const ApprovedWaits& waits, int r) {
  if (waits.idle.empty()) return slack(order, r);
  const std::int64_t most =
      std::max(order.worst_idle, waits.worst - waits.idle[static_cast<std::size_t>(r)]);
  return most - growing::rank(order, r).idle;
}

/// The W's that are left at the end.
inline void put_rest(GrowingOrder& order, const PlannedCosts& costs) {
  for (int r = 0; r < costs.ranks; ++r)
    while (growing::w_is_due(growing::rank(order, r))) put_w(order, costs, r);
}

}  // namespace pipewright::planner
