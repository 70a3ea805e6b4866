// A stage on a GPU: the counterpart of exec/devices/cpu/stage.hpp, with the same calls in the same
// order for each micro-batch (set_batch, forward, backward_input, backward_weight), all of them
// work that is put on the queue's computing stream. The host sees losses, and whether gradients
// were numbers, when end_step() has enqueued their copies and the stream is done: read_step().
//
// A Stage owns a CPU stage of the same layers, its mirror, whose layers it runs on the GPU. The
// mirror says what the parameters are called and begin with, checks the data, and holds what
// download() has brought. The Queue must outlive the Stage. One thread at a time; functions that
// wait say so, and call the constructor's `between` meanwhile.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "exec/devices/cpu/stage.hpp"
#include "exec/devices/cuda/parameters.hpp"
#include "exec/devices/cuda/queue_ops.hpp"

namespace pipewright::exec::cuda {

struct StageSpec {
  const Model* model = nullptr;
  int first_layer = 0, end_layer = 0;
  int micro_batch_size = 1, micro_batches = 1;
  std::uint64_t seed = 1;
  OptimizerSpec optimizer;
  std::vector<LayerRecompute> recompute;  // by layer of the model; empty: nothing
};

class Stage final : public StageGradients {
 public:
  /// Throws InputError if the layers do not fit each other, or no GPU trains them. Functions that
  /// wait call `between` as Queue::finish() does.
  Stage(Queue& queue, const StageSpec& spec, std::function<void()> between = {});
  Stage(const Stage&) = delete;  // its layers hold on to its operators
  Stage& operator=(const Stage&) = delete;

  bool is_first() const { return mirror_->is_first(); }
  bool is_last() const { return mirror_->is_last(); }
  /// Bytes of the messages that come in and go out; gradients the other way.
  std::size_t input_bytes() const { return mirror_->input_floats() * sizeof(float); }
  std::size_t output_bytes() const { return mirror_->output_floats() * sizeof(float); }

  /// Between steps: what they read on the host. Old gradients are gone.
  void begin_step(int step);
  /// Between steps; the micro-batch's F copies it to the GPU. Throws InputError for data that does
  /// not fit.
  void set_batch(int micro_batch, const MicroBatch& batch);
  /// Messages as on the CPU: empty on the first stage, and after the last one.
  Buffer forward(int micro_batch, Buffer input);
  Buffer backward_input(int micro_batch, Buffer gradient);
  void backward_weight(int micro_batch);

  void update();
  void settle_gradients() override;
  void scale_gradients(float factor) override { parameters_->scale(factor); }
  /// Waits, as what follows and brings parts to the host, or takes some from it.
  SquareSum squares() override;
  GradientPart gradient_part() override;
  void set_gradients(std::span<const GradientPart* const> parts) override;
  bool shares_table() const override { return mirror_->shares_table(); }
  GradientPart table_part() override;
  void set_table(std::span<const GradientPart* const> parts) override;

  /// From now on the transport sums gradients where they lie. Not in exact numerics, whose sums are
  /// no floats.
  void leave_sums_to_transport() { sums_on_gpu_ = true; }
  PartPtr part_on_device() override;
  bool takes_from_device(const std::vector<PartPtr>& parts) override;

  /// Enqueues the copies of the step's facts to the host; read_step() when the stream is done.
  void end_step();
  void read_step();
  /// Last stage, after read_step(): as exec/devices/cpu/stage.hpp says.
  double loss_share(int micro_batch) const;
  /// After read_step(): of exact numerics' or clipped gradients, as exec/devices/cpu/stage.hpp
  /// says; of others the loss of the next step tells.
  const std::string& not_finite() const { return parameters_->not_finite(); }

  /// Waits: the mirror has the GPU's weights and gradients.
  void download() { parameters_->download(); }
  const cpu::Stage& mirror() const { return *mirror_; }

 private:
  struct InFlight {
    bool has_batch = false;
    Buffer answers;            // last stage: labels or targets
    std::vector<Saved> saved;  // by layer
    Buffer loss_saved;
    std::optional<double> loss;
  };

  void forward_loss(int micro_batch, Buffer output);
  Buffer loss_gradient(InFlight& one);
  Buffer uploaded(const Pinned<float>& staged, int micro_batch, std::size_t words);
  std::size_t input_words() const { return extent_.words(std::max(width_in_, 1)); }
  std::size_t answer_words() const;
  std::size_t facts_of_micro_batch() const;
  double loss_of(const float* facts) const;
  void begin_gradients();
  std::size_t table() const;
  const std::vector<std::unique_ptr<TrainableLayer>>& layers() const { return mirror_->layers(); }
  InFlight& at(int micro_batch) { return in_flight_.at(static_cast<std::size_t>(micro_batch)); }

  Queue& queue_;
  QueueOps ops_;  // which the mirror's layers use
  std::unique_ptr<cpu::Stage> mirror_;
  std::unique_ptr<Parameters> parameters_;
  Extent extent_;
  LossKind loss_kind_;
  int width_in_ = 0, width_out_ = 0;
  double loss_divisor_ = 1;
  std::vector<InFlight> in_flight_;  // by micro-batch
  Pinned<float> staged_inputs_, staged_answers_, facts_;
  bool gradients_are_old_ = true, is_settled_ = true;
  int gradient_micro_batches_ = 0;
  bool sums_on_gpu_ = false;
};

}  // namespace pipewright::exec::cuda
