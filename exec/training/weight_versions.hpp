// Which version of its weights a stage has, and which one its next F, I or W uses
// (docs/semantics.md §3.1). Versions count the updates of a step. One thread at a time.
#pragma once

#include "exec/training/stage_weights.hpp"

namespace pipewright::exec {

class WeightVersions {
 public:
  /// `kept` must outlive it; null: there are no older versions, and none can be kept.
  explicit WeightVersions(KeptVersions* kept) : kept_(kept) {}

  /// A step begins: the weights are version 0. Bug if older ones are still kept.
  void begin();
  /// F, I and W use this version until the next call. Bug if it is not there.
  void use(int version);
  /// The weights that follow are the next version. `keep`: the old ones stay there.
  void begin_next(bool keep);
  void drop(int version);

  int newest() const { return newest_; }
  int live() const { return 1 + (kept_ != nullptr ? kept_->kept() : 0); }
  /// The most there were at once so far.
  int peak() const { return peak_; }

 private:
  void exchange(int version);

  KeptVersions* kept_;
  int newest_ = 0, in_use_ = 0, peak_ = 1;
};

}  // namespace pipewright::exec
