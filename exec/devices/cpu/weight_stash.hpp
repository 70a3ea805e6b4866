// Older versions of a stage's weights (docs/semantics.md §3.1), kept for the micro-batches that
// began with them (weight stashing, arXiv:1806.03377 §3.3). Owns copies, borrows the parameters.
// One thread at a time.
#pragma once

#include <map>
#include <vector>

#include "exec/layers/layer.hpp"
#include "exec/training/stage_weights.hpp"

namespace pipewright::exec::cpu {

class WeightStash final : public KeptVersions {
 public:
  /// The parameters must outlive it.
  explicit WeightStash(std::vector<Parameter*> parameters) : parameters_(std::move(parameters)) {}

  void keep(int version) override;
  void drop(int version) override;
  /// Costs no copy.
  void exchange(int version) override;
  int kept() const override { return static_cast<int>(versions_.size()); }

 private:
  using Values = std::vector<AlignedFloats>;  // by parameter

  std::vector<Parameter*> parameters_;
  std::map<int, Values> versions_;
  std::vector<Values> spare_;  // dropped ones, used again
};

}  // namespace pipewright::exec::cpu
