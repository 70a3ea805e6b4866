// What a layer costs, by the formulas of docs/metrics.md, "Layer footprints": found by running it
// on a device that counts (exec/layers/metered_ops.hpp). Pure functions.
#pragma once

#include <cstdint>

#include "core/model/model.hpp"
#include "core/model/recompute.hpp"
#include "core/model/tensor_split.hpp"

namespace pipewright::exec {

/// For some samples, each of which has the model's `sequence` rows. A multiply-add counts as two
/// operations. Byte counts and parameters stop at 2^50.
struct LayerFootprint {
  std::int64_t parameters = 0;
  double forward_flops = 0, input_gradient_flops = 0, weight_gradient_flops = 0;
  std::int64_t output_bytes = 0;  // the message to the next stage, if a cut follows
};
LayerFootprint footprint(const Layer& layer, const Model& model, int samples);
/// Of layer `index`, which so many ranks divide: parameters and operations are those of one of
/// them.
LayerFootprint footprint_of_part(const Model& model, int index, int samples,
                                 const StageDivision& ranks);
/// That of a footprint, alone.
std::int64_t output_bytes(const Layer& layer, const Model& model, int samples);

/// The part of the layer's F that I does again, by operations: 0 to 1.
double redone_share(const Layer& layer, const Model& model, LayerRecompute what);

}  // namespace pipewright::exec
