// Gradients of weights of which each rank sees its own rows of a micro-batch alone: what the rows
// of all add comes together once in the W of a stage, in one array. Under sequence parallelism
// these are norms' weights, whole on every rank. Under context parallelism they are all weights,
// and in exact numerics alone, where a micro-batch's gradient is rounded by itself; elsewhere each
// rank's part goes into the sum of replicas' gradients. In exact numerics ranks go on with the
// array in turns, so that rows are added in their order; where ranks divide rows along tp beside
// cp, each of them gathers first what its layers have kept, for the rows of a sequence change ranks
// along both axes there. One thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "exec/layers/layer.hpp"
#include "exec/layers/rank_groups.hpp"

namespace pipewright::exec {

class RowGradients {
 public:
  /// Of a stage's layers, which outlive it, as do the others. `own`: what this rank has of a
  /// micro-batch.
  RowGradients(std::span<const std::unique_ptr<TrainableLayer>> layers, RankGroups& groups,
               TensorOps& ops, Extent own);

  /// Before W, with what each layer has kept: what all ranks' rows give, for add(). The first
  /// things that a W pauses for. Empty where there are no such weights; norms' are added at once.
  Task<Buffer> bring_together(std::span<Saved> saved);
  /// Adds to the gradients of layer number `layer` what came together. Of ranks that are replicas
  /// the first does it for all.
  void add(std::size_t layer, const Buffer& sums) const;

 private:
  struct Place {
    Parameter* parameter;
    std::size_t begin;  // in the array
  };

  void add_rows(const Range& rows, float* sums, std::span<Saved> saved) const;

  std::vector<TrainableLayer*> layers_;
  std::vector<std::vector<Place>> places_;  // by layer: a table that two share has two
  std::size_t words_ = 0;
  std::string what_;
  Range own_rows_;
  AxisGroup* group_ = nullptr;
  bool adds_ = true, adds_at_once_ = false, gathers_first_ = false;
  std::vector<ChainTurn> turns_;
  TensorOps& ops_;
};

}  // namespace pipewright::exec
