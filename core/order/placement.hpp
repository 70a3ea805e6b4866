// Which rank computes a stage: a function of the stage and, for schedules with
// replicas, of the micro-batch.
#pragma once

#include <string>
#include <vector>

#include "core/base/units.hpp"

namespace pipewright {

class Placement {
 public:
  Placement() = default;
  /// Stage k*p + r on rank r.
  static Placement loop(int ranks, int chunks);
  /// Rank r holds stages r and 2p-1-r.
  static Placement v_shape(int ranks);
  /// One rank a stage, in stage order. `ranks` may exceed the largest rank
  /// named.
  static Placement explicit_stages(std::vector<RankId> rank_of_stage, int ranks);
  /// rank_of[stage][micro_batch]: replicas, bidirectional pipelines.
  static Placement explicit_micro_batches(std::vector<std::vector<RankId>> rank_of, int ranks);

  int ranks() const { return ranks_; }
  int stages() const { return stages_; }
  bool looks_at_micro_batch() const { return micro_batches_ > 0; }
  /// "loop", "v" or "explicit".
  const std::string& name() const { return name_; }

  RankId rank_of(StageId stage, MicroBatchId micro_batch) const {
    const std::size_t s = static_cast<std::size_t>(stage.value);
    return micro_batches_ == 0 ? table_[s]
                               : table_[s * static_cast<std::size_t>(micro_batches_) +
                                        static_cast<std::size_t>(micro_batch.value)];
  }
  /// Stages that the rank computes for at least one micro-batch, ascending.
  std::vector<StageId> stages_of(RankId rank) const;

 private:
  std::string name_ = "explicit";
  int ranks_ = 0, stages_ = 0, micro_batches_ = 0;
  std::vector<RankId> table_;  // by stage, or by stage and micro-batch
};

}  // namespace pipewright
