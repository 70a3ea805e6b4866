// Interleaved 1F1B: v chunks on each rank, stage k*p + r on rank r. Micro-batches go through the
// chunks in groups; the fill is v times shorter than 1F1B's for the same model.
#include <algorithm>

#include "planner/base/number_text.hpp"
#include "planner/schedules/building.hpp"
#include "planner/schedules/chunk_turns.hpp"
#include "planner/schedules/entries.hpp"
#include "planner/schedules/rounds.hpp"

namespace pipewright::planner {
namespace {

int interleaved_group_of(const ScheduleRequest& request) {
  const auto found = request.parameters.find("group");
  if (found == request.parameters.end()) return equal_round(request);
  return positive_integer(found->second).value_or(0);
}

std::optional<std::string> refuse_group(const ScheduleRequest& request) {
  const int m = request.micro_batches, p = request.ranks, group = interleaved_group_of(request);
  const int least = std::min(p, m);
  if (group < least || group > m) {
    return "the parameter group is a number of micro-batches from " + std::to_string(least) +
           " (the smaller of p and m) to " + std::to_string(m) + " (m), not \"" +
           request.parameters.at("group") + "\"";
  }
  const int rest = m % group;
  if (rest == 0 || rest >= p) return std::nullopt;
  return "groups of " + std::to_string(group) + " leave a last group of " + std::to_string(rest) +
         ", fewer than the " + count_of(p, "rank") + "; choose a group that divides " +
         std::to_string(m) + " or leaves at least " + std::to_string(p);
}

std::optional<std::string> refuse_interleaved(const ScheduleRequest& request) {
  if (request.parameters.count("group") > 0) return refuse_group(request);
  auto refused = refuse_unequal_rounds("interleaved", request);
  if (refused) *refused += ", or set the parameter group";
  return refused;
}

/// Writes one rank. Idle slots as PyTorch's generator has them: r before the first forward, then
/// until the first gradient has come back, then one before each backward that stands alone.
void write_interleaved_rank(const ScheduleRequest& request, int group, int rank,
                            std::vector<Cell>& cells) {
  const int p = request.ranks, v = request.chunks;
  const int total = request.micro_batches * v;
  const int ahead = static_cast<int>(interleaved_warm_up(p, rank, v, group, total));
  const ChunkTurns turns(request.micro_batches, v, group);
  const auto forward = [&](int k) {
    const ChunkTurn turn = turns.forward(k);
    append(cells, ActionKind::F, turn.chunk * p + rank, turn.micro_batch);
  };
  append_idle(cells, rank);
  for (int k = 0; k < ahead; ++k) forward(k);
  if (ahead > 0) append_idle(cells, v * p + 2 * (p - 1 - rank) - (ahead + rank));
  for (int k = 0; k < total; ++k) {
    if (ahead + k < total) {
      forward(ahead + k);
    } else {
      append_idle(cells, 1);
    }
    const ChunkTurn turn = turns.backward(k);
    append(cells, ActionKind::B, turn.chunk * p + rank, turn.micro_batch);
  }
}

Order make_interleaved(const ScheduleRequest& request) {
  const auto total =
      static_cast<std::size_t>(request.micro_batches) * static_cast<std::size_t>(request.chunks);
  const auto stages = static_cast<std::size_t>(request.ranks * request.chunks);
  Order order =
      empty_order(request, 2 * total + 4 * stages + static_cast<std::size_t>(request.ranks));
  for (int r = 0; r < request.ranks; ++r) {
    write_interleaved_rank(request, interleaved_group_of(request), r,
                           order.ranks[static_cast<std::size_t>(r)]);
  }
  return order;
}

}  // namespace

Schedule interleaved_schedule() {
  Schedule entry;
  entry.name = "interleaved";
  entry.aliases = {"VPP", "Interleaved1F1B", "interleaved-1f1b", "1F1B-I"};
  entry.text.summary =
      "1F1B with v chunks on each rank: 1/v of the bubble, more activations, more messages";
  entry.text.constraint =
      "m divides into max(1, m/p) equal rounds (G = micro-batches a round), or the parameter group "
      "sets G: min(p,m) <= G <= m and m mod G is 0 or at least p";
  entry.text.bubble = "(p-1)(F+B) of one chunk, for m >= p and G = p";
  entry.text.memory = "min(mv, (v-1)G + 2(p-1-r) + 1) chunks";
  entry.text.source = "Megatron-LM (arXiv:2104.04473); PyTorch ScheduleInterleaved1F1B";
  entry.parameters = {"group", "jobs"};
  entry.default_chunks = 2;
  entry.refusal = refuse_interleaved;
  entry.make = make_interleaved;
  return entry;
}

}  // namespace pipewright::planner
