// Which layers of a model a stage has, the sizes that follow from that, and whether data fits them.
// Plain data; pure functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/model/model.hpp"
#include "core/model/recompute.hpp"
#include "exec/base/numerics.hpp"
#include "exec/data/data.hpp"
#include "exec/layers/layer.hpp"
#include "exec/layers/optimizer.hpp"

namespace pipewright::exec {

/// The layers [first, end) of a model, and how they are trained. first == end is allowed after the
/// last layer: a stage of the loss only.
struct StageSpec {
  const Model* model = nullptr;
  int first_layer = 0, end_layer = 0;
  int micro_batch_size = 1, micro_batches = 1;  // samples in each; of a step
  std::uint64_t seed = 1;
  OptimizerSpec optimizer;
  std::vector<LayerRecompute> recompute;  // by layer of the model; empty: nothing
  /// Who makes the model's own layers (exec/layers/own_layer.hpp); must outlive the making of the
  /// stage.
  const LayerFactory* factory = nullptr;
  /// Of the ranks that divide its layers, this one's place among them and their number.
  StageDivision place = kFirstPlace, ranks;
  Numerics numerics = Numerics::Fast;  // of their sums
};

struct StageShape {
  Extent extent;         // what this rank has of a micro-batch
  ContextPlace context;  // where ranks have a part of every sequence each
  int micro_batches = 1;
  bool is_first = false, is_last = false;
  int width_in = 0, width_out = 0;
  int vocabulary = 0;  // of the first layer, if that is an embedding
  LossKind loss = LossKind::SoftmaxCrossEntropy;
  bool divides_logits = false;  // ranks have a part each of the last layer's output
  int row_parts = 1;            // ranks have so many parts of a message's rows

  bool has_labels() const { return loss == LossKind::SoftmaxCrossEntropy; }
  /// Floats of the message that comes in from the stage before, and goes out to the next one; 0
  /// on the first and on the last stage.
  std::size_t input_floats() const { return is_first ? 0 : message_floats(width_in); }
  std::size_t output_floats() const { return is_last ? 0 : message_floats(width_out); }
  /// Of all ranks that have a part of every sequence each.
  Extent whole_extent() const { return {extent.samples, extent.sequence * context.parts}; }
  /// Words of this rank's data: of the first stage a token or the inputs of each row, of the
  /// last one a label or the targets.
  std::size_t data_words() const { return extent.words(std::max(width_in, 1)); }
  std::size_t answer_words() const { return extent.words(has_labels() ? 1 : width_out); }

 private:
  std::size_t message_floats(int width) const {
    return extent.words(width) / static_cast<std::size_t>(row_parts);
  }
};

/// Bug if there is no such stage; throws InputError as width_in_front_of() does.
StageShape shape_of(const StageSpec& spec);

/// Of a whole micro-batch what this rank has of it; of arrays that are empty nothing.
MicroBatch own_part_of(const StageShape& shape, const MicroBatch& whole);

/// Throws InputError for ids outside the vocabulary and for arrays of the wrong size, of what the
/// stage needs of the whole micro-batch: inputs on the first stage, answers on the last one.
void require_fit(const StageShape& shape, const MicroBatch& batch, bool with_answers);

}  // namespace pipewright::exec
