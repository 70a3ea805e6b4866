// A stage on this machine's CPU: the layers [first, end) of a model with their parameters,
// gradients, optimizer state, and what each micro-batch under way has left for its backward.
//
// A Stage owns all of that and borrows nothing: the Model may go after construction. It belongs to
// one thread at a time; Stages share nothing, so ranks compute at once. Calls for a micro-batch go
// set_batch (first and last stage) -> forward -> backward_input -> backward_weight, micro-batches
// in any order among each other; another order is a Bug. Gradients add up over the micro-batches:
// in fast numerics in the order of backward_weight(), so two runs with the same order of W agree
// bit for bit; in exact numerics the order does not matter (exec/base/fixed_point.hpp), and
// not_finite() names a gradient that is no finite number or too large for that. Messages are row
// major, [rows][width] with rows = micro-batch size · sequence.
//
// Weight versions (docs/semantics.md §3.1) count the updates of a step. Whoever calls F, I and W
// says before it which version they use; update_version() keeps the one that it replaces if it is
// still needed, and drop_version() lets it go.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/model.hpp"
#include "core/model/recompute.hpp"
#include "exec/base/buffer.hpp"
#include "exec/data/data.hpp"
#include "exec/devices/cpu/host_ops.hpp"
#include "exec/devices/cpu/weight_stash.hpp"
#include "exec/evaluation/evaluation.hpp"
#include "exec/layers/layer.hpp"
#include "exec/layers/optimizer.hpp"
#include "exec/training/gradient_sums.hpp"

namespace pipewright::exec::cpu {

/// A look at one parameter; valid while its Stage lives and nobody trains it.
struct ParameterView {
  std::string name;  // unique in the model, the same whatever the partition
  std::span<const float> value, gradient;
  bool is_copy = false;  // of another stage's parameter, of the same name
};

/// One array of a stage's state, or the part of it that is kept here: the elements from `first` on
/// of `total`. Valid while its Stage lives.
struct StateView {
  std::string parameter;
  std::string_view slot;  // kValueSlot, or the optimizer's name for it
  std::int64_t first = 0, total = 0;
  bool is_shared_out = false;  // replicas keep a part each, which may be all or nothing
  std::span<float> values;
  bool is_copy = false;  // of another stage's, which has the same
};

/// How a stage computes.
struct StageOptions {
  Numerics numerics = Numerics::Fast;
  /// Who makes the model's own layers (exec/layers/own_layer.hpp); must outlive the Stage's
  /// construction.
  const LayerFactory* layers = nullptr;
  std::vector<LayerRecompute> recompute;  // by layer of the model; empty: nothing
  /// Another device's, on which the caller runs the layers itself; must outlive the Stage. Null:
  /// the Stage runs them on the CPU.
  TensorOps* ops = nullptr;
};

class Stage final : public StageGradients {
 public:
  /// Parameters start from the seed and their name alone. first == end is allowed after the last
  /// layer: a stage of the loss only. Throws InputError if the layers do not fit each other.
  Stage(const Model& model, int first_layer, int end_layer, int micro_batch_size, int micro_batches,
        std::uint64_t seed, const OptimizerSpec& optimizer = {}, const StageOptions& options = {});
  Stage(Stage&&) noexcept = default;
  Stage& operator=(Stage&&) = delete;
  ~Stage() override;

  bool is_first() const { return is_first_; }
  bool is_last() const { return is_last_; }
  /// Floats of the message that comes in from the stage before, and goes out to the next one; 0
  /// on the first and on the last stage. Gradients have the same sizes the other way.
  std::size_t input_floats() const { return is_first_ ? 0 : extent_.words(width_in_); }
  std::size_t output_floats() const { return is_last_ ? 0 : extent_.words(width_out_); }

  /// Takes what this stage needs of the micro-batch: inputs on the first stage, targets on the last
  /// one. Throws InputError for ids outside the vocabulary and for arrays of the wrong size.
  void set_batch(int micro_batch, const MicroBatch& batch);

  /// F. `input` is empty on the first stage; the result is empty on the last, which notes the loss.
  std::vector<float> forward(int micro_batch, std::vector<float> input);
  /// From now on F keeps nothing for a backward, and there is none: gradients and the optimizer's
  /// state go. The last stage makes outcomes of what it computes (exec/evaluation/evaluation.hpp);
  /// in a prediction it needs no labels and targets. Before any micro-batch.
  void forward_only(RunMode mode);
  /// Last stage, forward only: what F has made of the micro-batch, once.
  ForwardOutcome take_outcome(int micro_batch);
  /// I. `gradient` is that of the output, empty on the last stage; the result is that of the input,
  /// empty on the first stage.
  std::vector<float> backward_input(int micro_batch, std::vector<float> gradient);
  /// W; then nothing of the micro-batch is left. B is backward_input() and then this.
  void backward_weight(int micro_batch);

  /// Whether F uses running statistics instead of the micro-batch's own; then no backward follows.
  void set_evaluating(bool evaluating);

  /// The optimizer's update; `step` counts from 0. The gradients stay readable until the next W,
  /// which begins them anew.
  void update(int step);
  /// update() does it; to be called before the gradients are read without an update.
  void settle_gradients() override;
  SquareSum squares() override;
  void scale_gradients(float factor) override;
  /// Begins the gradients anew without an update.
  void discard_gradients() { gradients_are_old_ = true; }
  /// After a step: which gradient, weight or number that the optimizer keeps is not finite, or was
  /// too large on the way, as a clause; empty if none is. Reads all of them. Forward only: empty.
  std::string not_finite() const;

  /// From now on a loss's gradient is that of its micro-batch alone, and update_version() divides
  /// by the micro-batches that went into it; otherwise a step's micro-batches share it equally.
  void average_each_update() { loss_divisor_ = 1; }
  /// A step begins: the weights are version 0. Bug if older ones are still kept.
  void begin_versions();
  /// F, I and W use this version until the next call. Bug if it is not there.
  void use_version(int version);
  /// The update inside a step: from version() to version() + 1. `keep`: the old weights stay there.
  /// Micro-batches may be under way. Without a gradient since the last update the weights stay.
  void update_version(bool keep);
  void drop_version(int version);
  /// The newest version, and how many there are.
  int version() const { return version_; }
  int live_versions() const { return 1 + stash_->kept(); }
  /// The most there were at once so far.
  int peak_versions() const { return peak_versions_; }

  GradientPart gradient_part() override;
  void set_gradients(std::span<const GradientPart* const> parts) override;
  bool shares_table() const override { return shared_table_.has_value(); }
  GradientPart table_part() override;
  void set_table(std::span<const GradientPart* const> parts) override;

  // A sharded stage (exec/devices/cpu/shard.hpp): this replica updates its part alone. Before the
  // first step; the optimizer begins anew, with state of that part only.
  void own_shard(std::size_t index, std::size_t count);
  bool is_sharded() const override { return !own_ranges_.empty(); }
  /// Its own part's weights, for the others; with its gradients where they are to be looked at.
  GradientPart own_part(bool with_gradients) const;
  /// The weights of all parts, in the order of the replicas.
  void take_parts(std::span<const GradientPart* const> parts);
  std::int64_t optimizer_bytes() const { return optimizer_->state_bytes(); }

  /// Last stage: the mean over the micro-batches of their latest losses. Bug if one has none.
  double loss() const;
  double loss(int micro_batch) const;
  /// Its part of that mean (exec/training/loss_share.hpp).
  double loss_share(int micro_batch) const;

  std::vector<ParameterView> parameters() const;
  /// The parameters themselves, in the same order, for code that trains copies of them elsewhere.
  const std::vector<Parameter*>& parameter_list() const { return parameters_; }
  const std::vector<std::unique_ptr<TrainableLayer>>& layers() const { return layers_; }
  /// By layer of the stage, its parameters' places in that list.
  const std::vector<std::vector<std::size_t>>& parameters_by_layer() const {
    return parameters_of_layer_;
  }
  /// All that training changes: each parameter's weights and what the optimizer keeps of it, in a
  /// fixed order. To be read, or filled from a checkpoint, between steps.
  std::vector<StateView> state();
  /// Updates inside steps so far; set_updates(): those before the checkpoint that is loaded.
  int updates() const { return updates_; }
  void set_updates(int updates) { updates_ = updates; }
  std::int64_t parameter_count() const;  // without running statistics and copies
  /// Bytes kept for micro-batches under way, now and at most so far.
  std::int64_t live_activation_bytes() const { return pool_->live_bytes(); }
  std::int64_t peak_activation_bytes() const { return pool_->peak_bytes(); }
  /// From now on the meter counts those too; nothing is kept yet. It must outlive the Stage.
  void report_to(MemoryMeter& meter) { pool_->report_to(meter); }
  /// Weights, gradients (and exact numerics' sums of them), what the optimizer keeps, and older
  /// versions of the weights as they are now.
  std::int64_t state_bytes() const;

 private:
  enum class Phase : std::uint8_t { Idle, Forwarded, InputDone };
  struct InFlight {
    Phase phase = Phase::Idle;
    bool has_batch = false, has_loss = false;
    MicroBatch batch;
    std::vector<Saved> saved;  // by layer
    Buffer loss_saved;         // softmax's probabilities, or the output for mse
    double loss = 0;
    ForwardOutcome outcome;  // forward only
  };

  void collect_parameters();
  InFlight& in_flight(int micro_batch, Phase expected, const char* what);
  Buffer first_input(InFlight& one, std::vector<float>& input);
  void forward_loss(InFlight& one, Buffer output);
  void forward_outcome(InFlight& one, Buffer output);
  Buffer loss_gradient(InFlight& one);
  void begin_gradients();
  void add_parts(std::size_t layer, int micro_batch);
  void note_not_finite(const std::string& clause);
  std::vector<float> message(const Buffer& buffer, std::size_t floats);
  Buffer received(std::vector<float> message, std::size_t floats);

  // The pool is first: whatever holds its buffers must go before it.
  std::unique_ptr<BufferPool> pool_;
  std::unique_ptr<HostOps> ops_;
  Extent extent_;
  LossKind loss_kind_;
  int width_in_ = 0, width_out_ = 0;
  bool is_first_ = false, is_last_ = false;
  RunMode mode_ = RunMode::Train;
  int vocabulary_ = 0;  // of the first layer, if that is an embedding
  std::vector<std::unique_ptr<TrainableLayer>> layers_;
  std::vector<Parameter*> parameters_;
  std::vector<std::vector<std::size_t>> parameters_of_layer_;  // a shared table is of two layers
  std::optional<std::size_t> shared_table_;                    // the parameter
  // Exact numerics: the gradients so far, by parameter. Parameter::gradient then holds a
  // micro-batch's part until settle_gradients().
  std::vector<FixedPointSums> sums_;
  bool sums_are_settled_ = true;
  std::unique_ptr<Optimizer> optimizer_;
  OptimizerSpec optimizer_spec_;
  std::vector<ElementRange> own_ranges_;            // by parameter, of a sharded stage
  std::vector<InFlight> in_flight_;                 // by micro-batch
  std::vector<std::vector<float>> spare_messages_;  // received ones, used again for sending
  bool gradients_are_old_ = false;
  int gradient_micro_batches_ = 0;  // that went into the gradients
  double loss_divisor_ = 1;         // micro-batches that share a gradient
  std::unique_ptr<WeightStash> stash_;
  int version_ = 0, version_in_use_ = 0, peak_versions_ = 1;
  int updates_ = 0;         // inside steps, since the beginning
  std::string not_finite_;  // the first clause that was noted on the way
};

}  // namespace pipewright::exec::cpu
