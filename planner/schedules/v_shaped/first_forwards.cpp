#include "planner/schedules/v_shaped/first_forwards.hpp"

namespace pipewright::planner {
namespace {

/// Forwards of the chunks below `chunks`, on the ranks between where a wave comes from and `rank`,
/// that end on each of them before the time `until`.
struct Filling {
  int chunks = 0, rank = 0;
  bool up = false;  // ranks from the last one up to `rank`, else from 0 down to it
  std::int64_t until = 0;
  int fewer = 0;  // below so many forwards (those of rank 0) a rank may end one late
};

int first_of(const Filling& filling, int ranks) { return filling.up ? ranks - 1 : 0; }
int step_of(const Filling& filling) { return filling.up ? -1 : 1; }

int forwards_of(const GrowingOrder& order, const PlannedCosts& costs, int rank, int chunks) {
  int count = 0;
  for (int c = 0; c < chunks; ++c) count += growing::stage(order, costs.stage(rank, c)).f;
  return count;
}

/// Whether the rank's next forward of the chunk can be taken for the filling.
bool in_time(const GrowingOrder& order, const PlannedCosts& costs, const Filling& filling, int rank,
             int chunk) {
  const int s = costs.stage(rank, chunk);
  if (!growing::ready_f(order, costs, s)) return false;
  if (filling.fewer > 0 && forwards_of(order, costs, rank, filling.chunks) < filling.fewer)
    return true;
  const std::int64_t start =
      std::max(growing::rank(order, rank).clock, growing::input_of_f(order, costs, s));
  return start + costs.at(rank, chunk).f <= filling.until;
}

bool wave_fits(const GrowingOrder& order, const PlannedCosts& costs, int rank,
               std::int64_t memory) {
  return growing::rank(order, rank).live + memory <= costs.room_f[static_cast<std::size_t>(rank)];
}

bool goes_on(const GrowingOrder& order, const PlannedCosts& costs, const Filling& filling) {
  if (filling.fewer > 0 && forwards_of(order, costs, filling.rank, filling.chunks) < filling.fewer)
    return true;
  if (forwards_of(order, costs, filling.rank, filling.chunks) ==
      filling.chunks * costs.micro_batches)
    return false;
  if (!wave_fits(order, costs, filling.rank, costs.at(filling.rank, filling.chunks - 1).memory_f))
    return false;
  for (int chunk = 0; chunk < filling.chunks; ++chunk) {
    for (int r = first_of(filling, costs.ranks);; r += step_of(filling)) {
      if (in_time(order, costs, filling, r, chunk)) return true;
      if (r == filling.rank) break;
    }
  }
  return false;
}

/// What the rank's first forwards of later chunks will take.
std::int64_t kept_for_later_chunks(const GrowingOrder& order, const PlannedCosts& costs, int rank) {
  std::int64_t kept = 0;
  for (int chunk = 1; chunk < costs.chunks; ++chunk) {
    if (growing::stage(order, costs.stage(rank, chunk)).f == 0)
      kept += costs.at(rank, chunk).memory_f;
  }
  return kept;
}

/// The chunks take turns, beginning with `chunk`.
void fill(GrowingOrder& order, const PlannedCosts& costs, const Filling& filling, int chunk) {
  for (int in_vain = 0; in_vain < filling.chunks && goes_on(order, costs, filling);) {
    const std::int64_t kept = kept_for_later_chunks(order, costs, filling.rank);
    if (!wave_fits(order, costs, filling.rank, kept + costs.at(filling.rank, chunk).memory_f))
      return;
    bool put = false;
    for (int r = first_of(filling, costs.ranks);; r += step_of(filling)) {
      if (in_time(order, costs, filling, r, chunk) &&
          wave_fits(order, costs, r, costs.at(r, chunk).memory_f)) {
        put_f(order, costs, costs.stage(r, chunk));
        put = true;
      }
      if (r == filling.rank) break;
    }
    in_vain = put ? 0 : in_vain + 1;
    chunk = (chunk + 1) % filling.chunks;
  }
}

int chunk_of_last_action(const GrowingOrder& order, const PlannedCosts& costs, int rank) {
  const std::size_t each =
      3 * static_cast<std::size_t>(costs.chunks) * static_cast<std::size_t>(costs.micro_batches);
  const std::size_t last = static_cast<std::size_t>(rank) * each;
  const std::uint32_t action = order.actions[last + growing::rank(order, rank).actions - 1];
  return static_cast<int>(action / 4) / costs.ranks;
}

bool put_first(GrowingOrder& order, const PlannedCosts& costs, int rank, int chunk) {
  const int s = costs.stage(rank, chunk);
  if (!growing::ready_f(order, costs, s) ||
      !wave_fits(order, costs, rank, costs.at(rank, chunk).memory_f))
    return false;
  put_f(order, costs, s);
  return true;
}

/// Fills the time until the first forward of `chunk` on each rank and puts that forward; or, with
/// `chunk` = all chunks, the time until the rank's first I. That time is counted from the first
/// rank's last action, as if nothing in between had to wait.
bool ahead_of(GrowingOrder& order, const PlannedCosts& costs, int chunk) {
  Filling filling;
  filling.chunks = chunk;
  filling.up = chunk % 2 == 0;
  const bool forwards = chunk < costs.chunks;
  const int first = filling.up ? 0 : costs.ranks - 1, step = filling.up ? 1 : -1;
  filling.until = growing::rank(order, first).clock;
  if (forwards && !put_first(order, costs, first, chunk)) return false;
  for (int k = 1, r = first + step; k < costs.ranks; ++k, r += step) {
    const PlannedStage& due = costs.at(r, forwards ? chunk : chunk - 1);
    filling.until += forwards ? due.wait_f + due.f : due.wait_i + due.i;
    filling.rank = r;
    filling.fewer = filling.up ? forwards_of(order, costs, 0, chunk) : 0;
    fill(order, costs, filling, (chunk_of_last_action(order, costs, r) + 1) % chunk);
    if (forwards && !put_first(order, costs, r, chunk)) return false;
  }
  return true;
}

}  // namespace

bool run_first_forwards(GrowingOrder& order, const PlannedCosts& costs) {
  for (int r = 0; r < costs.ranks; ++r) {
    if (!put_first(order, costs, r, 0)) return false;
  }
  for (int chunk = 1; chunk <= costs.chunks; ++chunk) {
    if (!ahead_of(order, costs, chunk)) return false;
  }
  return true;
}

}  // namespace pipewright::planner
