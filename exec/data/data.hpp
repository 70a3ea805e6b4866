// Training data: what a micro-batch of a step holds. A source is a pure function of (step,
// micro-batch), so the rank with the first stage and the rank with the last one can each ask for
// their half, in any order, and a serial run gets the same. What a sample is depends on the seed,
// the step and its place in the step's batch alone: cutting the batch into other micro-batches, or
// among other replicas, changes no sample.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/model.hpp"

namespace pipewright::exec {

/// Row major, as exec/layers/ops.hpp says. One of `tokens` and `inputs` is filled, and one of
/// `labels` and `targets`.
struct MicroBatch {
  std::vector<std::int32_t> tokens;  // [rows], for a model that begins with an embedding
  std::vector<float> inputs;         // [rows][width]
  std::vector<std::int32_t> labels;  // [rows], for softmax-cross-entropy
  std::vector<float> targets;        // [rows][width], for mse
  int counted_samples = -1;  // forward only: so many, the first, are of the data set; -1: all
};

/// Appends `length` bytes of the text from `begin` on as tokens, and as label of each the byte
/// after it, which has to be there.
void append_sample(MicroBatch& batch, std::string_view text, std::size_t begin, std::size_t length);

/// What a file has given: equal files have equal checksums (exec/base/checksum.hpp).
struct DataContent {
  std::string name;  // "data", "labels", "targets"
  std::uint64_t bytes = 0, checksum = 0;
};

/// Sources are immutable: any number of threads may ask one at once.
class DataSource {
 public:
  virtual ~DataSource() = default;
  virtual MicroBatch micro_batch(std::int64_t step, int micro_batch) const = 0;
  /// Of the files that it was made of; empty where all is drawn from the seed. Takes the time of
  /// reading them.
  virtual std::vector<DataContent> contents() const { return {}; }
};
DataContent content_of(std::string name, std::string_view bytes);

/// What a source needs to know of the run. Sample s of micro-batch m is number m · samples + s of
/// the step's batch.
struct DataShape {
  int samples = 1;        // a micro-batch
  int micro_batches = 1;  // a step, of all replicas: replica d of M micro-batches asks for d·M + m
  std::uint64_t seed = 1;
  // Of array_source() only:
  bool shuffled = true;      // else samples come in the order of the file
  bool with_answers = true;  // else labels and targets may be missing: predictions need none

  /// Of the micro-batch's first sample in its step's batch.
  std::uint64_t first_sample(int micro_batch) const {
    return static_cast<std::uint64_t>(micro_batch) * static_cast<std::uint64_t>(samples);
  }
  std::uint64_t batch() const { return first_sample(micro_batches); }
};

/// Where data comes from; "" where a file is not given.
struct DataFiles {
  std::string data;     // bytes, or inputs as an array (".npy")
  std::string labels;   // an array; of softmax-cross-entropy
  std::string targets;  // an array; of mse
};

/// Byte-level language modelling: samples begin at random places of `text`, each byte is a token
/// and its label is the byte after it. Throws InputError if the text is shorter than a sample and
/// the label after it, or holds bytes outside the model's vocabulary; `file` names the text there.
std::unique_ptr<DataSource> text_source(const Model& model, const DataShape& shape,
                                        std::string text, const std::string& file);

/// Random vectors. Targets (mse) are a fixed sparse random linear map of the inputs, so that the
/// loss can fall; labels (softmax-cross-entropy) are the place of that map's largest element.
std::unique_ptr<DataSource> vector_source(const Model& model, const DataShape& shape);

/// The source that fits the files and the model: arrays where `files.data` ends with ".npy"
/// (exec/data/array_data.hpp); else the bytes of the file where the model begins with an embedding,
/// and synthetic images or random vectors where it does not (then the file is not looked at).
/// Throws InputError.
std::unique_ptr<DataSource> make_data(const Model& model, const DataShape& shape,
                                      const DataFiles& files);
/// The same for a file without others.
std::unique_ptr<DataSource> make_data(const Model& model, const DataShape& shape,
                                      const std::string& path);

}  // namespace pipewright::exec
