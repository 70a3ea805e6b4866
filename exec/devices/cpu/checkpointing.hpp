// A training's state to and from a checkpoint (exec/checkpoint/checkpoint.hpp): which rank writes
// what, when, and whether a checkpoint fits a training. Between steps, while all ranks stand still.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/program/program.hpp"
#include "exec/checkpoint/checkpoint.hpp"
#include "exec/checkpoint/folder_lock.hpp"
#include "exec/devices/cpu/device.hpp"
#include "exec/devices/cpu/trained_rank.hpp"
#include "exec/runtime/peers.hpp"

namespace pipewright::exec::cpu {

/// Throws InputError if the training cannot go on from there: another model, a parameter or a part
/// of its optimizer's state that is missing or of another size, or a count of updates from an
/// asynchronous schedule that a synchronous one cannot go on with. Looks at the whole model, before
/// any rank is started.
void require_resumable(const Checkpoint& checkpoint, const Program& program,
                       const Training& training);
/// What differs and is no fault, in sentences: the numbers will not be those of the run that saved.
std::vector<std::string> resume_notes(const Checkpoint& checkpoint, const Training& training);

/// Fills the stage; require_resumable() has looked.
void restore(TrainableStage& stage, const Checkpoint& checkpoint);

/// Saves a run of `steps` steps as training.save says, each stage once: its lowest rank writes it.
/// Of an array that ranks divide it brings the parts together, one array after another, so that a
/// checkpoint says nothing of how its training was divided.
class CheckpointSaver {
 public:
  /// Both must outlive it. Of several processes one leads: it holds the folder until the end and
  /// removes what a run that was killed has left there unfinished. Throws InputError if another run
  /// saves there.
  CheckpointSaver(const Program& program, const Training& training, int steps, bool leads);

  /// Whether after_step() saves, after the run's step `step`, counted from 0. Any thread.
  bool is_due(int step) const;
  /// After that step. `ranks` by rank, whose stages have fetched their state. With `peers`, all
  /// call it: each writes the parts of its ranks, and process 0 the manifest when it knows them
  /// all. Throws MachineError; the checkpoints before this one are still there.
  void after_step(int step, const std::vector<TrainedRank>& ranks, Peers* peers) const;

 private:
  std::vector<CheckpointPart> write_parts(const std::filesystem::path& folder,
                                          const std::vector<TrainedRank>& ranks) const;
  bool owns(RankId rank, StageId stage) const;
  std::vector<RankId> block_of(RankId rank, std::string_view group) const;
  CheckpointPart write_part(const std::filesystem::path& folder, RankId rank,
                            const std::vector<TrainedRank>& ranks) const;
  /// Updates of the weights so far; the number has to be the same in every stage.
  int updates(int step, const std::vector<TrainedRank>& ranks) const;
  CheckpointFacts facts(int step, int updates) const;

  const Program& program_;
  const Training& training_;
  const int steps_;
  std::optional<FolderLock> lock_;
};

}  // namespace pipewright::exec::cpu
