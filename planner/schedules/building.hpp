// What the schedules of this folder share: making cells fast, and refusals in the same words.
// Pure functions; any number of threads may call them.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "planner/schedules/registry.hpp"

namespace pipewright::planner {

/// Appends one action to a rank's list. The list has to be reserved: orders of 10^7 actions are
/// made in about a second.
inline void append(std::vector<Cell>& cells, ActionKind kind, int stage, int micro_batch) {
  cells.push_back(Cell{Action{kind, StageId(stage), MicroBatchId(micro_batch), -1}, std::nullopt});
}

/// Appends an overlapped pair, each of {stage, micro-batch}: the forward is written first.
struct Turn {
  int stage = 0;
  int micro_batch = 0;
};
inline void append_pair(std::vector<Cell>& cells, Turn forward, Turn backward) {
  append(cells, ActionKind::F, forward.stage, forward.micro_batch);
  cells.back().partner =
      Action{ActionKind::B, StageId(backward.stage), MicroBatchId(backward.micro_batch), -1};
}

/// For asynchronous schedules: an action that names its weight version, the update of a rank's
/// weights, the reduction of a stage's gradients over its replicas.
inline void append_version(std::vector<Cell>& cells, ActionKind kind, int stage, int micro_batch,
                           int version) {
  append(cells, kind, stage, micro_batch);
  cells.back().action.version = version;
}
inline void append_update(std::vector<Cell>& cells) { append(cells, ActionKind::Opt, 0, 0); }
inline void append_reduction(std::vector<Cell>& cells, int stage) {
  append(cells, ActionKind::ReduceGrad, stage, 0);
}

/// Appends empty cells; none for a count below 1. They cost no time: PyTorch's generators put them
/// where a rank waits, and lowering posts receives accordingly (docs/semantics.md §1.1).
inline void append_idle(std::vector<Cell>& cells, int count) {
  for (int k = 0; k < count; ++k) append(cells, ActionKind::Idle, 0, 0);
}

/// An order without cells: loop placement, `cells_per_rank` reserved on each rank.
Order empty_order(const ScheduleRequest& request, std::size_t cells_per_rank);

/// Waves down the ranks and up again, a wave for two chunks; two chunks are a V.
Placement waves(int ranks, int chunks);

/// For schedules with one stage a rank: refuses more chunks and names the way out.
std::optional<std::string> refuse_chunks(std::string_view name, const ScheduleRequest& request);

/// For schedules with a stage on each leg of a V: refuses all but two chunks.
std::optional<std::string> refuse_all_but_two_chunks(std::string_view name,
                                                     const ScheduleRequest& request);
/// For schedules with two replicas of the model, one each way: one stage of each on every rank, so
/// there are as many stages as ranks, and they are even.
std::optional<std::string> refuse_unless_bidirectional(std::string_view name,
                                                       const ScheduleRequest& request);

}  // namespace pipewright::planner
