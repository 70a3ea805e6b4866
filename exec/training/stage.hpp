// A stage that trains, on any device: the layers [first, end) of a model with their parameters, and
// what each micro-batch under way has left for its backward. Where arrays lie and what computes on
// them say a StageDevice and its StageWeights; each device has a Stage on top, which adds the form
// of messages and what else is its own (exec/devices/cpu/stage.hpp, exec/devices/cuda/stage.hpp).
//
// A TrainableStage owns its layers and its device, and borrows nothing: the Model may go after
// construction. It belongs to one thread at a time; stages share nothing, so ranks compute at once.
// Calls for a micro-batch go set_batch (first and last stage) -> forward -> backward_input ->
// backward_weight, micro-batches in any order among each other; another order is a Bug. Gradients
// add up over the micro-batches: in fast numerics in the order of backward_weight(), so two runs
// with the same order of W agree bit for bit; in exact numerics the order does not matter
// (exec/base/fixed_point.hpp), and not_finite() names a gradient that is no finite number or too
// large for that. Messages are row major, [rows][width] with rows = micro-batch size · sequence, or
// this rank's part of these.
//
// Weight versions (docs/semantics.md §3.1) count the updates of a step. Whoever calls F, I and W
// says before it which version they use; update_version() keeps the one that it replaces if it is
// still needed, and drop_version() lets it go.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "exec/base/buffer.hpp"
#include "exec/data/data.hpp"
#include "exec/evaluation/evaluation.hpp"
#include "exec/layers/divided/row_gradients.hpp"
#include "exec/layers/layer.hpp"
#include "exec/layers/optimizer.hpp"
#include "exec/layers/rank_groups.hpp"
#include "exec/training/gradient_sums.hpp"
#include "exec/training/parameter_views.hpp"
#include "exec/training/shard.hpp"
#include "exec/training/stage_device.hpp"
#include "exec/training/stage_parameters.hpp"
#include "exec/training/stage_shape.hpp"
#include "exec/training/weight_versions.hpp"

namespace pipewright::exec {

class TrainableStage : public StageGradients {
 public:
  /// Parameters start from the seed and their name alone. Throws InputError if the layers do not
  /// fit each other.
  TrainableStage(const StageSpec& spec, std::unique_ptr<StageDevice> device);
  TrainableStage(TrainableStage&&) noexcept = default;
  TrainableStage& operator=(TrainableStage&&) = delete;
  ~TrainableStage() override;

  bool is_first() const { return shape_.is_first; }
  bool is_last() const { return shape_.is_last; }
  /// Floats of the message that comes in from the stage before, and goes out to the next one; 0
  /// on the first and on the last stage. Gradients have the same sizes the other way.
  std::size_t input_floats() const { return shape_.input_floats(); }
  std::size_t output_floats() const { return shape_.output_floats(); }

  /// Takes what this stage needs of the micro-batch: inputs on the first stage, targets on the last
  /// one. Throws InputError for ids outside the vocabulary and for arrays of the wrong size.
  void set_batch(int micro_batch, const MicroBatch& batch);

  /// F. `input` is empty on the first stage; the result is empty on the last, which notes the loss.
  /// Where ranks divide the layers it pauses: groups() says what for.
  Task<Buffer> forward_task(int micro_batch, Buffer input);
  /// I. `gradient` is that of the output, empty on the last stage; the result is that of the input,
  /// empty on the first stage. Pauses as F does.
  Task<Buffer> backward_input_task(int micro_batch, Buffer gradient);
  /// The same where nothing is divided.
  Buffer forward(int micro_batch, Buffer input) {
    return run_now(forward_task(micro_batch, std::move(input)));
  }
  Buffer backward_input(int micro_batch, Buffer gradient) {
    return run_now(backward_input_task(micro_batch, std::move(gradient)));
  }
  /// What the stage is to the ranks that divide its layers with it.
  RankGroups& groups() const { return *groups_; }
  /// W; then nothing of the micro-batch is left. B is backward_input() and then this. Pauses where
  /// ranks divide rows.
  Task<void> backward_weight_task(int micro_batch);
  void backward_weight(int micro_batch) { run_now(backward_weight_task(micro_batch)); }

  /// From now on F keeps nothing for a backward, and there is none: gradients and the optimizer's
  /// state go. The last stage makes outcomes of what it computes (exec/evaluation/evaluation.hpp);
  /// in a prediction it needs no labels and targets. Before any micro-batch.
  void forward_only(RunMode mode);
  /// Last stage, forward only: what F has made of the micro-batch, once, when the host knows it.
  ForwardOutcome take_outcome(int micro_batch);
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
  /// After a step, where the device has told: which gradient, weight or number that the optimizer
  /// keeps is not finite, or was too large on the way, as a clause; empty if none is. May read all
  /// of them. Forward only: empty.
  std::string not_finite() const;

  /// From now on a loss's gradient is that of its micro-batch alone, and update_version() divides
  /// by the micro-batches that went into it; otherwise a step's micro-batches share it equally.
  void average_each_update() { share_loss_among(1); }
  /// A step begins: the weights are version 0. Bug if older ones are still kept.
  void begin_versions() { versions_.begin(); }
  /// F, I and W use this version until the next call. Bug if it is not there.
  void use_version(int version) { versions_.use(version); }
  /// The update inside a step: from version() to version() + 1. `keep`: the old weights stay there.
  /// Micro-batches may be under way. Without a gradient since the last update the weights stay.
  void update_version(bool keep);
  void drop_version(int version) { versions_.drop(version); }
  /// The newest version, and how many there are.
  int version() const { return versions_.newest(); }
  int live_versions() const { return versions_.live(); }
  /// The most there were at once so far.
  int peak_versions() const { return versions_.peak(); }
  /// Updates inside steps so far; set_updates(): those before the checkpoint that is loaded.
  int updates() const { return updates_; }
  void set_updates(int updates) { updates_ = updates; }

  GradientPart gradient_part() override;
  void set_gradients(std::span<const GradientPart* const> parts,
                     std::span<const GradientPart* const> of_same_experts) override;
  bool shares_table() const override { return parameters_.shared_table.has_value(); }
  GradientPart table_part() override;
  void set_table(std::span<const GradientPart* const> parts) override;

  // A sharded stage (exec/training/shard.hpp): this replica updates its part alone. Before the
  // first step; the optimizer begins anew, with state of that part only, and so do gradients and
  // weights, as far as replicas divide these too.
  void own_shard(StageShards shards, const Sharding& sharding);
  bool is_sharded() const override { return !own_ranges_.empty(); }
  bool counts_part() const override { return shards_.counts; }
  bool divides_gradients() const { return is_sharded() && sharding_.divides_gradients(); }
  bool divides_weights() const { return is_sharded() && sharding_.divides_weights(); }
  /// Of divided gradients: before a W, where those of micro-batches were handed over.
  void make_whole_gradients();
  /// Of divided weights: place for all parts, until drop_weights() or an update.
  void make_whole_weights();
  void drop_weights();
  /// Its own part's weights, for the others; with its gradients where they are to be looked at.
  GradientPart own_part(bool with_gradients) const;
  /// The weights of all parts, in the order of the replicas.
  void take_parts(std::span<const GradientPart* const> parts);

  /// Last stage: the mean over the micro-batches of their latest losses. Bug if one has none.
  double loss() const;
  double loss(int micro_batch) const;
  /// Its part of that mean (exec/training/loss_share.hpp).
  double loss_share(int micro_batch) const;

  /// Weights and gradients as the host knows them.
  std::vector<ParameterView> parameters() const;
  /// All that training changes: each parameter's weights and what the optimizer keeps of it, in a
  /// fixed order. Between steps: to be read behind fetch_state(); or to be filled behind
  /// make_room_for_state(), and the stage's by store_state(). These may wait.
  std::vector<StateView> state();
  void fetch_state() { weights_->fetch_state(); }
  void make_room_for_state() { weights_->make_room_for_state(); }
  void store_state() { weights_->store_state(); }
  std::int64_t parameter_count() const;  // without running statistics and copies
  /// Weights, gradients (and exact numerics' sums of them), what the optimizer keeps, and older
  /// versions of the weights as they are now.
  std::int64_t state_bytes() const { return weights_->bytes(); }

 protected:
  /// Of a stage that shares_table(): the table, and which of its elements this replica's gradient
  /// has; of a sharded stage others have the rest.
  const Parameter& shared_table() const { return *parameters_.all[*parameters_.shared_table]; }
  std::size_t shared_table_size() const { return parameters_.sizes[*parameters_.shared_table]; }
  ElementRange own_part_of_table() const { return range_of(*parameters_.shared_table); }
  /// They become 0, whatever went into them.
  void begin_gradients();
  bool has_gradients() const { return !gradients_are_old_ && gradient_micro_batches_ > 0; }
  const StageShape& shape() const { return shape_; }
  StageDevice& device() const { return *device_; }

 private:
  enum class Phase : std::uint8_t { Idle, Forwarded, InputDone };
  struct InFlight {
    Phase phase = Phase::Idle;
    bool has_batch = false;
    std::vector<Saved> saved;  // by layer
    Buffer loss_saved;         // softmax's probabilities, or the output for mse
    int counted_samples = 0;   // of its data
  };

  void keep_summands_apart();
  InFlight& in_flight(int micro_batch, Phase expected, const char* what);
  void share_loss_among(int micro_batches);
  void apply_gradients(int step);
  ElementRange range_of(std::size_t place) const;

  // The device is first: whatever holds its buffers must go before it.
  std::unique_ptr<StageDevice> device_;
  StageShape shape_;
  std::unique_ptr<RankGroups> groups_;
  RunMode mode_ = RunMode::Train;
  std::vector<std::unique_ptr<TrainableLayer>> layers_;
  std::unique_ptr<RowGradients> row_gradients_;
  StageParameters parameters_;
  StageWeights* weights_ = nullptr;  // the device's
  WeightVersions versions_;
  Sharding sharding_;                     // what else than the update a sharded stage divides
  std::vector<ElementRange> own_ranges_;  // by parameter, of a sharded stage
  StageShards shards_;
  std::vector<InFlight> in_flight_;  // by micro-batch
  bool gradients_are_old_ = true, gradients_are_settled_ = true;
  int gradient_micro_batches_ = 0;  // that went into the gradients; of divided, the whole ones
  double loss_divisor_ = 1;         // micro-batches that share a gradient
  int updates_ = 0;                 // inside steps, since the beginning
};

}  // namespace pipewright::exec
