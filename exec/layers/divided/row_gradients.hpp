// Gradients of weights that ranks have whole although each sees its own rows of a micro-batch alone
// (norms, under sequence parallelism): what the rows of all add comes together once in the W of a
// stage, in one array. In exact numerics ranks go on with it in turns, so that rows are added in
// their order. One thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "exec/layers/layer.hpp"
#include "exec/layers/rank_groups.hpp"

namespace pipewright::exec {

class RowGradients {
 public:
  /// Of a stage's layers, which outlive it, as do the others.
  RowGradients(std::span<const std::unique_ptr<TrainableLayer>> layers, RankGroups& groups,
               TensorOps& ops);

  /// Before W, with what each layer has kept: adds to the gradients what all ranks' rows give. The
  /// first thing that a W pauses for; nothing where there are no such weights.
  Task<void> bring_together(std::span<Saved> saved);

 private:
  struct Place {
    Parameter* parameter;
    std::size_t begin;  // in the array
  };

  void add(float* sums, std::span<Saved> saved) const;

  std::vector<TrainableLayer*> layers_;
  std::vector<Place> places_;
  std::size_t words_ = 0;
  TensorGroup* tensor_;
  std::vector<ChainTurn> turns_;
  TensorOps& ops_;
};

}  // namespace pipewright::exec
