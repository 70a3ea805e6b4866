// The parameters of a stage in host memory: the Parameters of its layers, and beside them exact
// numerics' sums of their gradients, the optimizer's state and older versions of the weights. All
// is done when a call returns. Borrows the layers' Parameters; one thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "exec/base/fixed_point.hpp"
#include "exec/base/numerics.hpp"
#include "exec/devices/cpu/owned_arrays.hpp"
#include "exec/devices/cpu/weight_stash.hpp"
#include "exec/layers/optimizer.hpp"
#include "exec/training/stage_weights.hpp"

namespace pipewright::exec::cpu {

class Parameters final : public StageWeights, public SharedOutWeights {
 public:
  /// The parameters must outlive it.
  Parameters(std::vector<Parameter*> parameters, const OptimizerSpec& optimizer, Numerics numerics);

  void clear_gradients() override;
  void add_parts(std::span<const std::size_t> places, int micro_batch) override;
  void settle() override;
  void scale(float factor, bool with_statistics) override;
  SquareSum squares(std::span<const ElementRange> ranges) override;
  GradientPart part(std::span<const std::size_t> places) override;
  void set(std::size_t place, const Summands& summands) override;
  void update(int step) override { optimizer_->update(step); }

  /// Reads all of them.
  std::string not_finite() const override;
  std::int64_t bytes() const override;
  std::int64_t optimizer_bytes() const { return optimizer_->state_bytes(); }

  void forget_training() override;
  std::vector<StateView> state() override;
  KeptVersions* versions() override { return &stash_; }
  SharedOutWeights* shared_out() override { return this; }

  void own(const std::vector<ElementRange>& ranges, const Sharding& sharding) override;
  bool has_whole_gradients() const override { return divided_->has_whole_gradients(); }
  void make_whole_gradients() override { divided_->make_whole_gradients(); }
  GradientPart hand_over_whole_gradients() override { return divided_->take_whole_gradients(); }
  void add(std::size_t place, const Summands& summands) override;
  void make_whole_weights() override { divided_->make_whole_weights(); }
  void drop_whole_weights() override { divided_->drop_whole_weights(); }
  GradientPart owned_part(std::span<const ElementRange> ranges, bool with_gradients) const override;
  void take(std::span<const ElementRange> ranges, bool with_experts,
            const GradientPart& part) override;

 private:
  std::vector<Parameter*> weights() const;
  void note_not_finite(const std::string& clause);

  std::vector<Parameter*> all_;
  // Exact numerics: the gradients so far, by parameter. Parameter::gradient then holds a
  // micro-batch's part until settle().
  std::vector<FixedPointSums> sums_;
  OptimizerSpec optimizer_spec_;
  std::unique_ptr<Optimizer> optimizer_;
  bool is_shared_out_ = false, divides_weights_ = false;
  std::optional<OwnedArrays> divided_;  // where replicas divide gradients
  WeightStash stash_;
  std::string not_finite_;  // the first clause that was noted on the way
};

}  // namespace pipewright::exec::cpu
