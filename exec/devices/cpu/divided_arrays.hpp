// The arrays of a stage's state that ranks divide among them (exec/layers/tensor_group.hpp), whole
// to a checkpoint and in parts from it, one array at a time. Between steps, while all ranks stand
// still.
#pragma once

#include <cstddef>
#include <vector>

#include "core/program/program.hpp"
#include "exec/checkpoint/checkpoint.hpp"
#include "exec/collectives/group.hpp"
#include "exec/devices/cpu/trained_rank.hpp"
#include "exec/training/parameter_views.hpp"

namespace pipewright::exec::cpu {

/// Which array: of each member of the block, in the order of their parts, view `index` of the state
/// of this stage.
struct DividedArray {
  const std::vector<RankId>& block;
  StageId stage;
  std::size_t index = 0;
};

/// Brings the parts together on the first member, which adds to `writer` what they have of the
/// array: all, unless replicas share it out. `own` is this rank's part, and `group` its member.
/// Where the members are processes, all of them call it at the same time. Throws as the group and
/// the writer do.
void write_divided(const DividedArray& array, const std::vector<TrainedRank>& ranks,
                   collectives::Group* group, const StateView& own, CheckpointPartWriter& writer);

/// Fills the view, whole or divided.
void read_own(const Checkpoint& checkpoint, const StateView& view);

}  // namespace pipewright::exec::cpu
