// Older versions of a stage's weights (docs/semantics.md §3.1), kept for the micro-batches that
// began with them (weight stashing, arXiv:1806.03377 §3.3). Owns copies, borrows the parameters.
// One thread at a time.
#pragma once

#include <map>
#include <vector>

#include "exec/layers/layer.hpp"

namespace pipewright::exec::cpu {

class WeightStash {
 public:
  /// The parameters must outlive it.
  explicit WeightStash(std::vector<Parameter*> parameters) : parameters_(std::move(parameters)) {}

  /// Keeps a copy of the weights as they are now. Bug if the version is kept already.
  void keep(int version);
  /// Lets a version go; nothing if it is not kept.
  void drop(int version);
  /// Exchanges the parameters' weights with the kept ones; the same call again puts them back.
  /// Costs no copy. Bug if the version is not kept.
  void exchange(int version);

  int kept() const { return static_cast<int>(versions_.size()); }

 private:
  using Values = std::vector<AlignedFloats>;  // by parameter

  std::vector<Parameter*> parameters_;
  std::map<int, Values> versions_;
  std::vector<Values> spare_;  // dropped ones, used again
};

}  // namespace pipewright::exec::cpu
