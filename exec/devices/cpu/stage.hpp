// A stage on this machine's CPU (exec/training/stage.hpp), whose messages are plain vectors.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "exec/base/buffer.hpp"
#include "exec/base/numerics.hpp"
#include "exec/training/stage.hpp"

namespace pipewright::exec::cpu {

class StageDevice;  // exec/devices/cpu/stage_device.hpp

/// How a stage computes.
struct StageOptions {
  Numerics numerics = Numerics::Fast;
  /// Who makes the model's own layers (exec/layers/own_layer.hpp); must outlive the Stage's
  /// construction.
  const LayerFactory* layers = nullptr;
  std::vector<LayerRecompute> recompute;  // by layer of the model; empty: nothing
  /// Of the ranks that divide the layers, this one's place among them and their number. Whether
  /// those along tp divide rows, too, is said of a whole training; the rest the device finds out.
  StageDivision place = kFirstPlace, ranks = {};
};

class Stage final : public TrainableStage {
 public:
  /// Parameters start from the seed and their name alone. first == end is allowed after the last
  /// layer: a stage of the loss only. Throws InputError if the layers do not fit each other.
  Stage(const Model& model, int first_layer, int end_layer, int micro_batch_size, int micro_batches,
        std::uint64_t seed, const OptimizerSpec& optimizer = {}, const StageOptions& options = {});

  /// As TrainableStage says, with messages as vectors.
  Task<std::vector<float>> forward_task(int micro_batch, std::vector<float> input);
  Task<std::vector<float>> backward_input_task(int micro_batch, std::vector<float> gradient);
  std::vector<float> forward(int micro_batch, std::vector<float> input) {
    return run_now(forward_task(micro_batch, std::move(input)));
  }
  std::vector<float> backward_input(int micro_batch, std::vector<float> gradient) {
    return run_now(backward_input_task(micro_batch, std::move(gradient)));
  }

  /// Of state_bytes() what the optimizer keeps.
  std::int64_t optimizer_bytes() const;
  /// Bytes kept for micro-batches under way, now and at most so far.
  std::int64_t live_activation_bytes() const;
  std::int64_t peak_activation_bytes() const;
  /// From now on the meter counts those too; nothing is kept yet. It must outlive the Stage.
  void report_to(MemoryMeter& meter);

 private:
  explicit Stage(const StageSpec& spec);
  StageDevice& on() const;
  std::vector<float> message(const Buffer& buffer, std::size_t floats);
  Buffer received(std::vector<float> message, std::size_t floats);

  std::vector<std::vector<float>> spare_messages_;  // received ones, used again for sending
};

}  // namespace pipewright::exec::cpu
