// Interleaved zero bubble: interleaved 1F1B with the backward split, and half its run-ahead. Rank r
// keeps r of its W's back, as ZB-H1 does (with one chunk it is ZB-H1). The rule is PyTorch's
// ScheduleInterleavedZeroBubble, idle slots included.
#include <algorithm>

#include "planner/schedules/building.hpp"
#include "planner/schedules/chunk_turns.hpp"
#include "planner/schedules/entries.hpp"
#include "planner/schedules/rounds.hpp"

namespace pipewright::planner {
namespace {

std::optional<std::string> refuse_interleaved_zb(const ScheduleRequest& request) {
  return refuse_unequal_rounds("interleaved-zb", request);
}

/// Writes one rank. PyTorch lets all ranks step together and puts a slot where a forward's input is
/// not there yet; that happens in one place only: with fewer micro-batches than ranks, each chunk
/// after the first begins p - m slots late. Its other idle slots are the fill of r slots, and one
/// for each rank after this one when the warm-up is over.
void write_interleaved_zb_rank(const ScheduleRequest& request, int rank, std::vector<Cell>& cells) {
  const int p = request.ranks, m = request.micro_batches, v = request.chunks;
  const int total = m * v, group = equal_round(request);
  const int ahead = std::min((v - 1) * group + (p - 1 - rank), total);
  const ChunkTurns turns(m, v, group);
  const auto forward = [&](int k) {
    const ChunkTurn turn = turns.forward(k);
    if (turn.chunk > 0 && turn.micro_batch == 0) append_idle(cells, p - m);
    append(cells, ActionKind::F, turn.chunk * p + rank, turn.micro_batch);
  };
  const auto backward = [&](ActionKind kind, int k) {
    const ChunkTurn turn = turns.backward(k);
    append(cells, kind, turn.chunk * p + rank, turn.micro_batch);
  };
  append_idle(cells, rank);
  for (int k = 0; k < ahead; ++k) forward(k);
  if (ahead > 0) append_idle(cells, p - 1 - rank);
  for (int k = 0; k < total; ++k) {
    if (ahead + k < total) forward(ahead + k);
    backward(ActionKind::I, k);
    if (k >= rank) backward(ActionKind::W, k - rank);
  }
  for (int k = std::max(0, total - rank); k < total; ++k) backward(ActionKind::W, k);
}

Order make_interleaved_zb(const ScheduleRequest& request) {
  const auto actions = 3 * static_cast<std::size_t>(request.micro_batches) *
                       static_cast<std::size_t>(request.chunks);
  const auto stages = static_cast<std::size_t>(request.ranks * request.chunks);
  Order order = empty_order(request, actions + 2 * stages);
  for (int r = 0; r < request.ranks; ++r) {
    write_interleaved_zb_rank(request, r, order.ranks[static_cast<std::size_t>(r)]);
  }
  return order;
}

}  // namespace

Schedule interleaved_zb_schedule() {
  Schedule entry;
  entry.name = "interleaved-zb";
  entry.aliases = {"InterleavedZeroBubble", "interleaved-zero-bubble"};
  entry.text.summary = "interleaved 1F1B with I and W apart: a third of its bubble at F = I = W";
  entry.text.constraint = "m divides into max(1, m/p) equal rounds of G micro-batches";
  entry.text.bubble = "(p-1)(max(F,I) + max(0, min(F,I)-W)) of one chunk, for m >= p";
  entry.text.memory = "min(mv, (v-1)G + p) chunks";
  entry.text.source = "PyTorch ScheduleInterleavedZeroBubble (its ZB1P)";
  entry.traits.splits_backward = true;
  entry.default_chunks = 2;
  entry.refusal = refuse_interleaved_zb;
  entry.make = make_interleaved_zb;
  return entry;
}

}  // namespace pipewright::planner
