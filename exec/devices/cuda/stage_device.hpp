// What a stage on a GPU lies on: operators and memory of a queue, the parameters there, and pinned
// memory, from which data is copied to the GPU and to which it leaves the terms of losses, and what
// rows of outputs amount to. All of it is work on the queue's computing stream, of whole
// micro-batches, so that it is the same in each step; the host leaves out samples that do not
// count.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "exec/devices/cuda/parameters.hpp"
#include "exec/devices/cuda/pinned.hpp"
#include "exec/devices/cuda/queue_ops.hpp"
#include "exec/training/stage_device.hpp"
#include "exec/training/stage_shape.hpp"

namespace pipewright::exec::cuda {

class StageDevice final : public exec::StageDevice {
 public:
  /// The queue must outlive it. `between` as for Parameters.
  StageDevice(Queue& queue, const StageShape& shape, std::function<void()> between, RunMode mode,
              const OwnShard& shard, bool experts_differ);

  Queue& queue() const { return queue_; }
  Parameters& parameters() const { return *parameters_; }
  /// The stream is done: what F has left of all losses is read.
  void read_losses();

  TensorOps& ops() override { return ops_; }
  StageWeights& keep_parameters(const std::vector<Parameter*>& parameters,
                                const OptimizerSpec& optimizer, std::uint64_t seed) override;
  void keep_batch(int micro_batch, const MicroBatch& batch, bool with_answers) override;
  Buffer input(int micro_batch) override;
  void softmax_cross_entropy_forward(int micro_batch, const LossShape& shape, const float* logits,
                                     float* probabilities) override;
  void softmax_cross_entropy_backward_input(int micro_batch, const LossShape& shape,
                                            const float* probabilities, float scale,
                                            float* dlogits) override;
  void tell_logits(int micro_batch, const LogitsPart& part, const float* logits,
                   float* facts) override;
  void add_exponentials(const LogitsPart& part, const float* logits, const float* facts,
                        float* exponentials, float* sums) override;
  void finish_cross_entropy(int micro_batch, const LogitsPart& part, const float* facts,
                            const float* sums, float* probabilities) override;
  void divided_cross_entropy_backward_input(int micro_batch, const LogitsPart& part,
                                            const float* probabilities, float scale,
                                            float* dlogits) override;
  void mse_forward(int micro_batch, const LossShape& shape, const float* y) override;
  void mse_backward_input(int micro_batch, const LossShape& shape, const float* y, float scale,
                          float* dy) override;
  /// In exact numerics it waits: the logarithm is the host's.
  void put_row_losses(int micro_batch, float* at) override;
  void take_row_losses(int micro_batch, int samples, const float* all) override;
  double loss_sum(int micro_batch) const override;
  void note_outputs(int micro_batch, const LogitsPart& part, const float* outputs,
                    RunMode mode) override;
  /// The stream is done.
  ForwardOutcome take_outcome(int micro_batch) override;

 private:
  void take_answers(int micro_batch);
  Buffer uploaded(const Pinned<float>& staged, int micro_batch, std::size_t words);
  /// Floats that F leaves of a micro-batch's loss.
  std::size_t fact_words() const;
  Buffer taken_facts() { return queue_.memory().take_floats(fact_words()); }
  void enqueue_facts(int micro_batch, Buffer facts);
  /// What the kernels leave of a row's loss.
  int facts_of_row() const { return shape_.has_labels() ? 3 : 1; }
  double sum_of(const float* facts, int rows) const;
  /// Of all ranks' rows of a micro-batch, two floats for each.
  std::size_t loss_words() const { return 2 * shape_.whole_extent().words(1); }
  std::vector<RowOutcome> judged_rows(int micro_batch, int rows) const;
  std::vector<float> outputs_of(int micro_batch, int rows) const;
  std::size_t output_words() const { return shape_.extent.words(own_width_); }
  Buffer& answers(int micro_batch) { return answers_.at(static_cast<std::size_t>(micro_batch)); }

  Queue& queue_;
  const StageShape shape_;
  const std::function<void()> between_;
  const RunMode mode_;
  const OwnShard shard_;
  const bool experts_differ_;
  UnwrittenGradients unwritten_;
  QueueOps ops_;
  std::unique_ptr<Parameters> parameters_;
  Pinned<float> staged_inputs_, staged_answers_, facts_;
  Pinned<float> row_facts_;    // evaluate
  Pinned<float> row_losses_;   // where ranks have a part of every sequence each
  Pinned<std::byte> outputs_;  // predict: numbers of the queue's own
  // By micro-batch:
  std::vector<Buffer> answers_;  // labels or targets, from F to I
  std::vector<std::optional<double>> loss_sums_;
  Buffer latest_facts_;  // from F of a loss until put_row_losses()
  std::vector<int> counted_rows_;

  int own_width_, first_column_ = 0;  // of the outputs' columns those that this rank has
};

}  // namespace pipewright::exec::cuda
