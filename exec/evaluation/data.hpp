// Data sets for a forward-only run: each sample once, in its order, and how many there are.
#pragma once

#include <cstdint>
#include <memory>

#include "core/model/model.hpp"
#include "exec/data/data.hpp"

namespace pipewright::exec {

struct DataSet {
  /// Where the set ends inside a step, other samples fill up the rest and do not count
  /// (MicroBatch::counted_samples).
  std::unique_ptr<DataSource> source;
  std::int64_t samples = 0;

  /// Steps that it takes to see every sample.
  std::int64_t steps(const DataShape& shape) const;
};

/// The samples of the arrays where `files.data` ends with ".npy"; of a text, one after another
/// without overlap, the last one dropped if it is not whole; of random vectors so many as
/// `random_steps` steps hold, those of training. `shape` says whether answers are needed and is
/// not shuffled. Throws InputError as make_data() does.
DataSet make_data_set(const Model& model, const DataShape& shape, const DataFiles& files,
                      int random_steps);

}  // namespace pipewright::exec
