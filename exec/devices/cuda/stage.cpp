#include "exec/devices/cuda/stage.hpp"

#include <memory>
#include <utility>

#include "exec/devices/cuda/payload.hpp"
#include "exec/devices/cuda/stage_device.hpp"
#include "exec/devices/cuda/trainable_layers.hpp"

namespace pipewright::exec::cuda {
namespace {

std::unique_ptr<StageDevice> device_for(Queue& queue, const StageSpec& spec,
                                        std::function<void()> between, RunMode mode,
                                        const OwnShard& shard) {
  require_layers(*spec.model);
  return std::make_unique<StageDevice>(queue, shape_of(spec), std::move(between), mode, shard,
                                       spec.ranks.experts > 1);
}

}  // namespace

Stage::Stage(Queue& queue, const StageSpec& spec, std::function<void()> between, RunMode mode,
             const OwnShard& shard)
    : TrainableStage(spec, device_for(queue, spec, std::move(between), mode, shard)) {
  if (mode != RunMode::Train) forward_only(mode);
}

/// The constructor has made it.
StageDevice& Stage::on() const { return static_cast<StageDevice&>(device()); }

void Stage::begin_step(int step) {
  discard_gradients();
  on().parameters().drop_state();
  on().parameters().begin_step(step);
}

void Stage::end_rehearsal() {
  discard_gradients();
  drop_weights();
  on().parameters().forget_health();
}

/// All gradients, but those of experts that differ among replicas, as one array, which the
/// transport changes in place, after what is on the computing stream; zeros where nothing went in.
/// Divided ones leave the stage, and go when whoever sums them has let go of them.
PartPtr Stage::part_on_device() {
  if (!sums_on_gpu_) return nullptr;
  if (!divides_gradients() && !has_gradients()) begin_gradients();
  Parameters& parameters = on().parameters();
  Buffer all = divides_gradients() ? let_go_of_gradients() : parameters.gradients();
  const std::size_t common = parameters.common_floats() * sizeof(float),
                    weights = parameters.weight_numbers() * sizeof(float);
  const std::size_t front = is_sharded() ? weights : common;
  return std::make_shared<DevicePart>(FrontOfArray{std::move(all), front}, common - front, made());
}

/// After what is on the computing stream.
Event Stage::made() const { return on().queue().record(on().queue().computing()); }

Buffer Stage::let_go_of_gradients() {
  make_whole_gradients();
  return on().parameters().take_whole_gradients();
}

PartPtr Stage::weights_on_device(bool with_gradients) {
  if (!sums_on_gpu_) return nullptr;
  Parameters& parameters = on().parameters();
  const std::size_t numbers = parameters.weight_numbers();
  FrontOfArray gradients;
  if (with_gradients) gradients = {parameters.gradients(), numbers * sizeof(float)};
  return std::make_shared<DevicePart>(
      FrontOfArray{parameters.read_weights(), numbers * on().queue().number_bytes()},
      std::move(gradients), made());
}

/// It lies where the part did.
bool Stage::takes_weights_from_device(const std::vector<PartPtr>& parts) {
  const auto* whole = dynamic_cast<const DevicePart*>(parts.front().get());
  if (whole == nullptr) return false;
  on().queue().wait(on().queue().computing(), whole->ready);
  return true;
}

bool Stage::takes_from_device(const std::vector<PartPtr>& parts) {
  if (!takes_weights_from_device(parts)) return false;
  if (divides_gradients())
    on().parameters().add_own_part(dynamic_cast<const DevicePart&>(*parts.front()).front.array);
  return true;
}

void Stage::end_step() {
  settle_gradients();
  drop_weights();
  on().parameters().ask_for_health();
}

void Stage::read_step() {
  on().parameters().read_health();
  on().read_losses();
}

void Stage::download() { on().parameters().download(); }

Parameters& Stage::weights() const { return on().parameters(); }

}  // namespace pipewright::exec::cuda
