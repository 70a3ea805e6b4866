// What a stage on this machine's CPU lies on: memory of its own, operators that are done when the
// call returns, the parameters in host memory, and the data as it came.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "exec/base/buffer.hpp"
#include "exec/devices/cpu/host_ops.hpp"
#include "exec/devices/cpu/parameters.hpp"
#include "exec/training/stage_device.hpp"
#include "exec/training/stage_shape.hpp"

namespace pipewright::exec::cpu {

class StageDevice final : public exec::StageDevice {
 public:
  StageDevice(const StageShape& shape, Numerics numerics);

  BufferPool& pool() { return pool_; }
  const Parameters& parameters() const { return *parameters_; }

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
  double loss_sum(int micro_batch) const override;
  void put_row_losses(int micro_batch, float* at) override;
  void take_row_losses(int micro_batch, int samples, const float* all) override;
  void note_outputs(int micro_batch, const LogitsPart& part, const float* outputs,
                    RunMode mode) override;
  ForwardOutcome take_outcome(int micro_batch) override {
    return std::exchange(at(micro_batch).outcome, {});
  }

 private:
  struct OfMicroBatch {
    MicroBatch batch;
    std::optional<double> loss_sum;
    std::vector<double> row_losses;  // where ranks have a part of every sequence each
    ForwardOutcome outcome;          // forward only
  };
  double* rows_of(OfMicroBatch& one);
  OfMicroBatch& at(int micro_batch) { return kept_.at(static_cast<std::size_t>(micro_batch)); }

  const StageShape shape_;
  const Numerics numerics_;
  BufferPool pool_;
  HostOps ops_;
  std::optional<Parameters> parameters_;
  std::vector<OfMicroBatch> kept_;
};

}  // namespace pipewright::exec::cpu
