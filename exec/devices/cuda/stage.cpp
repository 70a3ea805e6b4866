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
                                       spec.ranks.expert_replicas() > 1);
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

void Stage::add_copies() { copies_.emplace(on().queue()); }

/// Replicas that share out more than one array do it by way of the hosts.
bool Stage::sums_on_gpu() const {
  return sums_on_gpu_ && (!is_sharded() || on().parameters().are_equal_parts());
}

/// All gradients as one array, with those of experts that differ among replicas at its end, which
/// the transport changes in place, after what is on the computing stream; zeros where nothing went
/// in. Divided ones leave the stage, and go when whoever sums them has let go of them.
PartPtr Stage::part_on_device() {
  if (!sums_on_gpu() && !copies_) return nullptr;
  if (!divides_gradients() && !has_gradients()) begin_gradients();
  Parameters& parameters = on().parameters();
  const std::size_t common = parameters.common_floats() * sizeof(float),
                    weights = parameters.weight_numbers() * sizeof(float);
  if (!sums_on_gpu()) {
    // Experts that differ among replicas have sums of their own.
    const Buffer gradients = parameters.gradients();
    if (common < gradients.bytes()) return nullptr;
    return copies_->bring(gradients.floats(), gradients.words());
  }
  Buffer all = divides_gradients() ? let_go_of_gradients() : parameters.gradients();
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
  if (!sums_on_gpu()) return nullptr;
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

/// It lies where the part did, or is made there.
bool Stage::takes_from_device(const std::vector<PartPtr>& parts) {
  if (copies_ && !sums_on_gpu_) {
    const Buffer gradients = on().parameters().gradients();
    if (copies_->add_up(parts, gradients.floats(), gradients.words())) return true;
  }
  if (!takes_weights_from_device(parts)) return false;
  if (divides_gradients())
    on().parameters().add_own_part(dynamic_cast<const DevicePart&>(*parts.front()).front.array);
  return true;
}

TableGradient Stage::table_gradient() {
  static_cast<void>(on().parameters().gradients());
  return {shared_table().device_gradient, shared_table_size(), own_part_of_table()};
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
