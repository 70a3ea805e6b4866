// The serial run of a model: all layers in one stage, micro-batches one after another in ascending
// order. It is what a pipelined run of the same model, data and seed must agree with.
#pragma once

#include <vector>

#include "exec/data/data.hpp"
#include "exec/devices/cpu/stage.hpp"

namespace pipewright::exec {

struct SerialSpec {
  int micro_batch_size = 1, micro_batches = 1;
  std::uint64_t seed = 1;
  OptimizerSpec optimizer;
  cpu::StageOptions options = {};
};

/// Owns its stage; borrows the data source for the time of a step. One thread at a time.
class SerialRun {
 public:
  SerialRun(const Model& model, const SerialSpec& spec);

  /// F and B of every micro-batch and the update; returns the step's loss. `step` counts from 0.
  double step(const DataSource& data, int step);
  /// The same without the update: the gradients are there to be looked at, the weights stay.
  double gradients(const DataSource& data, int step);

  const cpu::Stage& stage() const { return stage_; }
  cpu::Stage& stage() { return stage_; }

 private:
  void clip();

  int micro_batches_;
  double clip_grad_norm_;
  cpu::Stage stage_;
};

}  // namespace pipewright::exec
