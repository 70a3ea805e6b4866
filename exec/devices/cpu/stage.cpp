#include "exec/devices/cpu/stage.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "core/base/error.hpp"
#include "exec/devices/cpu/stage_device.hpp"

namespace pipewright::exec::cpu {
namespace {

StageSpec spec_of(const Model& model, int first_layer, int end_layer, int micro_batch_size,
                  int micro_batches, std::uint64_t seed, const OptimizerSpec& optimizer,
                  const StageOptions& options) {
  return {.model = &model,
          .first_layer = first_layer,
          .end_layer = end_layer,
          .micro_batch_size = micro_batch_size,
          .micro_batches = micro_batches,
          .seed = seed,
          .optimizer = optimizer,
          .recompute = options.recompute,
          .factory = options.layers,
          .place = options.place,
          .ranks = options.ranks,
          .numerics = options.numerics};
}

}  // namespace

Stage::Stage(const Model& model, int first_layer, int end_layer, int micro_batch_size,
             int micro_batches, std::uint64_t seed, const OptimizerSpec& optimizer,
             const StageOptions& options)
    : Stage(spec_of(model, first_layer, end_layer, micro_batch_size, micro_batches, seed, optimizer,
                    options)) {}

Stage::Stage(const StageSpec& spec)
    : TrainableStage(spec, std::make_unique<StageDevice>(shape_of(spec), spec.numerics)) {}

/// The constructor has made it.
StageDevice& Stage::on() const { return static_cast<StageDevice&>(device()); }

std::int64_t Stage::optimizer_bytes() const { return on().parameters().optimizer_bytes(); }
std::int64_t Stage::live_activation_bytes() const { return on().pool().live_bytes(); }
std::int64_t Stage::peak_activation_bytes() const { return on().pool().peak_bytes(); }
void Stage::report_to(MemoryMeter& meter) { on().pool().report_to(meter); }

Task<std::vector<float>> Stage::forward_task(int micro_batch, std::vector<float> input) {
  Buffer in = received(std::move(input), input_floats());
  const Buffer output = co_await TrainableStage::forward_task(micro_batch, std::move(in));
  co_return message(output, output_floats());
}

Task<std::vector<float>> Stage::backward_input_task(int micro_batch, std::vector<float> gradient) {
  Buffer in = received(std::move(gradient), output_floats());
  const Buffer result = co_await TrainableStage::backward_input_task(micro_batch, std::move(in));
  co_return message(result, input_floats());
}

/// Empty where there is none: before the first stage, and after the last one.
std::vector<float> Stage::message(const Buffer& buffer, std::size_t floats) {
  PIPEWRIGHT_ASSERT(buffer.words() == floats, "a stage's result has the wrong size");
  if (!buffer) return {};
  std::vector<float> sent;
  if (!spare_messages_.empty()) {
    sent = std::move(spare_messages_.back());
    spare_messages_.pop_back();
  }
  sent.assign(buffer.floats(), buffer.floats() + floats);
  return sent;
}

/// TrainableStage refuses one where none belongs.
Buffer Stage::received(std::vector<float> message, std::size_t floats) {
  PIPEWRIGHT_ASSERT(floats == 0 || message.size() == floats,
                    "a stage was given a message of " + std::to_string(message.size()) +
                        " floats where " + std::to_string(floats) + " belong");
  if (message.empty()) return {};
  Buffer buffer = on().pool().take(message.size());
  std::copy(message.begin(), message.end(), buffer.floats());
  // A stage in the middle sends as many as it receives, so this neither grows nor runs dry there;
  // the last stage, or an unusual schedule, must not pile them up.
  if (spare_messages_.size() < static_cast<std::size_t>(shape().micro_batches))
    spare_messages_.push_back(std::move(message));
  return buffer;
}

}  // namespace pipewright::exec::cpu
