#include "exec/devices/cuda/stage.hpp"

#include <memory>
#include <utility>

#include "exec/devices/cuda/payload.hpp"
#include "exec/devices/cuda/stage_device.hpp"
#include "exec/devices/cuda/trainable_layers.hpp"

namespace pipewright::exec::cuda {
namespace {

std::unique_ptr<StageDevice> device_for(Queue& queue, const StageSpec& spec,
                                        std::function<void()> between) {
  require_layers(*spec.model);
  return std::make_unique<StageDevice>(queue, shape_of(spec), std::move(between));
}

}  // namespace

Stage::Stage(Queue& queue, const StageSpec& spec, std::function<void()> between)
    : TrainableStage(spec, device_for(queue, spec, std::move(between))) {}

/// The constructor has made it.
StageDevice& Stage::on() const { return static_cast<StageDevice&>(device()); }

void Stage::begin_step(int step) {
  discard_gradients();
  on().parameters().begin_step(step);
}

void Stage::end_rehearsal() {
  discard_gradients();
  on().parameters().forget_health();
}

/// All gradients as one array, which the transport changes in place, after what is on the computing
/// stream; zeros where nothing went in.
PartPtr Stage::part_on_device() {
  if (!sums_on_gpu_) return nullptr;
  if (!has_gradients()) begin_gradients();
  Queue& queue = on().queue();
  return std::make_shared<DevicePart>(on().parameters().gradients(),
                                      queue.record(queue.computing()));
}

/// The sum lies where the gradients do.
bool Stage::takes_from_device(const std::vector<PartPtr>& parts) {
  const auto* sum = dynamic_cast<const DevicePart*>(parts.front().get());
  if (sum == nullptr) return false;
  on().queue().wait(on().queue().computing(), sum->ready);
  return true;
}

void Stage::end_step() {
  settle_gradients();
  on().parameters().ask_for_health();
}

void Stage::read_step() {
  on().parameters().read_health();
  on().read_losses();
}

void Stage::download() { on().parameters().download(); }

Parameters& Stage::weights() const { return on().parameters(); }

}  // namespace pipewright::exec::cuda
