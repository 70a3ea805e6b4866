// Training data from arrays: inputs with labels or targets, as .npy files hold them. The order of
// the samples is a function of the seed and the epoch alone (docs/plan-format.md, "data").
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/model/model.hpp"
#include "exec/data/data.hpp"
#include "exec/data/npy.hpp"

namespace pipewright::exec {

/// An array and the file that it came from, for errors.
struct NamedArray {
  std::string file;
  NpyArray array;
};

struct TrainingArrays {
  NamedArray inputs;
  std::optional<NamedArray> labels, targets;
};

/// Reads the files that are named. Throws InputError.
TrainingArrays read_arrays(const DataFiles& files);

/// Owns the arrays. Throws InputError that names the file if an array does not fit the model: the
/// number of samples, the size of one, a token or a label outside of what the model knows, and
/// whole numbers where fractions belong or the other way round.
std::unique_ptr<DataSource> array_source(const Model& model, const DataShape& shape,
                                         TrainingArrays arrays);

}  // namespace pipewright::exec
