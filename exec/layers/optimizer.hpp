// The update of the weights: plain SGD, or AdamW.
//
// An Optimizer owns its state (AdamW: two numbers a weight) and borrows the parameters, which must
// outlive it. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "exec/layers/layer.hpp"

namespace pipewright::exec {

enum class OptimizerKind : std::uint8_t { Sgd, AdamW };

struct OptimizerSpec {
  OptimizerKind kind = OptimizerKind::AdamW;
  double learning_rate = 1e-3;
  // AdamW only. A memory of some twenty steps for the squares suits short runs.
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
  /// Before the update the gradients of all layers are scaled so that their norm is at most this;
  /// 0: they are taken as they are.
  double clip_grad_norm = 0;
  double weight_decay = 0.01;  // of matrices; biases and norms are left alone
};

/// "sgd" or "adamw", case as written. Throws InputError with a suggestion, and for a learning rate
/// that is not a positive number.
OptimizerSpec optimizer_spec(std::string_view name, double learning_rate);

/// What an optimizer keeps of each weight, by name.
std::span<const std::string_view> slot_names(OptimizerKind kind);

/// The factors of one AdamW step, with the corrections for the moments' start at 0 worked in.
struct AdamFactors {
  float keep_mean, take_mean, keep_square, take_square, rate, square_correction, epsilon,
      keep_value;
};
/// `step` counts from 0; `decays` as the Parameter says.
AdamFactors adam_factors(const OptimizerSpec& spec, int step, bool decays);

/// Elements of one parameter.
struct ElementRange {
  std::size_t begin = 0, end = 0;
  std::size_t size() const { return end - begin; }
};

class Optimizer {
 public:
  /// `ranges`, by parameter, if given: it updates these elements only, and keeps state of no other.
  Optimizer(const OptimizerSpec& spec, std::vector<Parameter*> parameters,
            std::vector<ElementRange> ranges = {});

  /// One update from the gradients as they stand; `step` counts from 0.
  void update(int step);
  /// What it keeps beside the parameters.
  std::int64_t state_bytes() const;

  /// What is kept of the parameter at this place of the list, by name: nothing for SGD. To be read,
  /// or to be filled from a checkpoint.
  struct Slot {
    std::string_view name;
    std::int64_t first = 0;  // element of the parameter that the first of `values` belongs to
    std::span<float> values;
  };
  std::vector<Slot> slots_of(std::size_t parameter);

 private:
  struct Moments {
    AlignedFloats mean, square;
  };

  OptimizerSpec spec_;
  std::vector<Parameter*> parameters_;
  std::vector<ElementRange> ranges_;  // by parameter
  std::vector<Moments> moments_;      // by parameter; empty for SGD
};

}  // namespace pipewright::exec
