#include "exec/devices/cpu/device.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "core/base/error.hpp"
#include "core/order/devices.hpp"
#include "core/program/lower.hpp"
#include "exec/devices/cpu/checkpointing.hpp"
#include "exec/devices/cpu/training_fit.hpp"

namespace pipewright::exec::cpu {

Device::Device(const Program& program, const Training& training, RankId rank, Transport* transport,
               GroupsOfRank groups)
    : program_(program),
      training_(training),
      rank_(rank),
      versions_(program.asynchronous ? cells_of(program, rank) : std::vector<Cell>()),
      sums_(program, rank, transport, training.optimizer.clip_grad_norm,
            training.options.ranks.experts_differ_along_context()),
      stages_(program, rank),
      messages_{[this](Flow flow, int from, int of) { return fetch(flow, from, of); },
                [this](Flow flow, int from, int of, std::vector<float> made) {
                  put(flow, from, of, std::move(made));
                }},
      strands_(program, std::move(groups)),
      tensors_(program.stages, program.micro_batches),
      transport_(transport) {
  counted_.resize(static_cast<std::size_t>(program.stages), 0);
  StageOptions options = training.options;
  options.place = {.tensor = coordinate_of(program.devices, kTensorAxis, rank),
                   .experts = coordinate_of(program.devices, kExpertAxis, rank),
                   .context = coordinate_of(program.devices, kContextAxis, rank)};
  options.ranks = division_of(program, training);
  for (const StageId id : program.placement.stages_of(rank)) {
    const StagePlan& plan = training.stages[static_cast<std::size_t>(id.value)];
    auto stage = std::make_unique<Stage>(*training.model, plan.first_layer, plan.end_layer,
                                         training.micro_batch_size, training.micro_batches,
                                         training.seed, training.optimizer, options);
    if (program.asynchronous) stage->average_each_update();
    if (training.mode != RunMode::Train) stage->forward_only(training.mode);
    stage->report_to(meter_);
    stages_.add(id, std::move(stage));
  }
  own_shards();
  sums_.tell_copies_to([this](const GradientPart& part) { hold_part(part); });
  for (const StageId stage : program.placement.stages_of(rank)) {
    sums_.add(stage, stages_.at(stage.value));
    recount(stage.value);
  }
  if (training.start == nullptr) return;
  for (Stage* stage : stages_.own()) restore(*stage, *training.start);
}

void Device::begin_step(int step) {
  step_ = training_.first_step() + step;
  for (Stage* stage : stages_.own()) {
    stage->discard_gradients();
    stage->begin_versions();
  }
  stages_.set_batches(*training_.data, step_);
}

void Device::compute(InstructionId id) {
  if (const Action* const action = program_.action_of_part(id)) return compute_part(*action);
  const Cell cell = program_.cell(id);
  tensors_.for_each_action(cell, [&](const Action& action) { perform(id, action); });
  if (!program_.asynchronous) return;
  drop_versions(id, cell.action);
  if (cell.partner) drop_versions(id, *cell.partner);
}

void Device::perform(InstructionId id, const Action& action) {
  if (action.kind == ActionKind::Opt) return update(id);
  if (action.kind == ActionKind::ReduceTied) return sums_.tie_alone();
  if (action.kind == ActionKind::Reshard) return drop_weights(action.stage.value);
  if (!is_compute(action.kind)) return;  // a REDUCE_GRAD or UNSHARD alone: nobody to share with
  Stage& stage = stages_.at(action.stage.value);
  const int m = action.micro_batch.value;
  if (strands_.is_under_way(action)) {
    strands_.finish(action);
  } else {
    if (program_.asynchronous) stage.use_version(versions_.version_of(action.stage.value, m));
    prepare(action);
    stages_.compute(action, messages_);
  }
  if (evaluation_ == nullptr || action.stage.value + 1 < program_.stages) return;
  const int of_data = number_of_data(program_.devices, m, program_.micro_batches);
  evaluation_->put(m, stage.take_outcome(of_data));
}

void Device::compute_part(const Action& action) {
  if (strands_.is_under_way(action)) return strands_.go_on(action);
  prepare(action);
  strands_.begin(action, stages_.task_of(action, messages_),
                 stages_.at(action.stage.value).groups());
}

/// Place for what the action makes.
void Device::prepare(const Action& action) {
  if (action.kind != ActionKind::W && action.kind != ActionKind::B) return;
  Stage& stage = stages_.at(action.stage.value);
  if (!stage.divides_gradients()) return;
  stage.make_whole_gradients();
  recount(action.stage.value);
}

void Device::update(InstructionId id) {
  sums_.take();
  sums_.clip();
  for (int s = 0; s < program_.stages; ++s) {
    Stage* const own = stages_.find(s);
    if (own == nullptr) continue;
    if (program_.asynchronous) {
      own->update_version(versions_.is_used_after(s, own->version(), place_of(id)));
      recount(s);
    } else {
      own->update(step_);
      if (own->divides_weights()) recount(s);
    }
  }
}

std::size_t Device::place_of(InstructionId id) const {
  return id - program_.rank_begin[static_cast<std::size_t>(rank_.value)];
}

void Device::drop_versions(InstructionId id, const Action& action) {
  if (!is_compute(action.kind)) return;
  const int stage = action.stage.value;
  const int version = versions_.version_of(stage, action.micro_batch.value);
  if (versions_.is_used_after(stage, version, place_of(id))) return;
  stages_.at(stage).drop_version(version);
  recount(stage);
}

// --- Replicas ---

void Device::hold_part(const GradientPart& part) {
  if (program_.sharding.divides_gradients()) {  // it may have left its stage
    for (const StageId stage : program_.placement.stages_of(rank_)) recount(stage.value);
  }
  std::size_t bytes = 0;
  for (const AlignedFloats& one : part.gradients) bytes += one.size() * sizeof(float);
  for (const FixedPointSums& one : part.sums) bytes += 2 * one.high().size() * sizeof(std::int64_t);
  handed_in_ += static_cast<std::int64_t>(bytes);
  meter_.add(static_cast<std::int64_t>(bytes));
}

/// What a stage always holds; of an asynchronous one it changes with its versions.
void Device::recount(int stage) {
  std::int64_t& counted = counted_[static_cast<std::size_t>(stage)];
  const std::int64_t now = stages_.at(stage).state_bytes();
  meter_.add(now - std::exchange(counted, now));
}

std::int64_t Device::peak_bytes() const { return meter_.peak_bytes; }

/// Whole gradients, and parts of weights that are gathered inside a step, go as soon as they may.
void Device::let_go_of_part(InstructionId member) {
  const auto held = until_ended_.find(member);
  if (held == until_ended_.end()) return;
  handed_in_ -= held->second;
  meter_.add(-held->second);
  until_ended_.erase(held);
}

void Device::give_weights(InstructionId member) {
  const int stage = program_.code[member].stage;
  Stage& own = stages_.at(stage);
  if (own.divides_weights()) own.make_whole_weights();
  const bool is_verified = step_ - training_.first_step() < training_.verified_steps;
  sums_.hand_in(member, own.own_part(is_verified && !own.divides_gradients()));
}

void Device::drop_weights(int stage) {
  stages_.at(stage).drop_weights();
  recount(stage);
}

void Device::take_weights(InstructionId member) {
  const std::vector<PartPtr> messages = transport_->gathered(rank_, member);
  std::vector<GradientPart> arrived;
  stages_.at(program_.code[member].stage).take_parts(parts_of(messages, arrived));
}

/// Here and not in OPT: what members add up belongs to their collective.
void Device::take_sum(InstructionId member) {
  sums_.ended(member);
  sums_.take();
}

void Device::own_shards() {
  const bool differ = training_.options.ranks.experts_differ_along_context();
  for (const StageId id : program_.placement.stages_of(rank_)) {
    if (auto shards = shards_of(program_, id, rank_, differ))
      stages_.at(id.value).own_shard(*std::move(shards), program_.sharding);
  }
}

void Device::end_step() {
  sums_.take();
  for (Stage* stage : stages_.own()) {
    if (program_.asynchronous) stage->use_version(stage->version());
    stage->settle_gradients();  // where no OPT has
    stage->drop_weights();
  }
  if (program_.sharding.divides_weights()) {
    for (const StageId stage : program_.placement.stages_of(rank_)) recount(stage.value);
  }
  meter_.add(-std::exchange(handed_in_, 0));
}

// --- Tensors ---

void Device::put(Flow flow, int stage, int micro_batch, std::vector<float> tensor) {
  meter_.add(static_cast<std::int64_t>(tensor.size() * sizeof(float)));
  tensors_.put(flow, stage, micro_batch, std::move(tensor));
}

std::vector<float> Device::fetch(Flow flow, int stage, int micro_batch) {
  std::vector<float> tensor = tensors_.take(flow, stage, micro_batch);
  meter_.add(-static_cast<std::int64_t>(tensor.size() * sizeof(float)));
  return tensor;
}

PayloadPtr Device::give(InstructionId send) {
  const Instruction& in = program_.code[send];
  if (is_call(in.kind)) {
    strands_.issue(send);
    return nullptr;
  }
  if (in.in_collective()) {
    const std::int64_t before = handed_in_;
    in.kind == ActionKind::Unshard ? give_weights(send) : sums_.hand_in(send);
    if (has_stage(in.kind) && stages_.at(in.stage).divides_gradients())
      until_ended_[send] = handed_in_ - before;
    return nullptr;
  }
  return std::make_unique<HostPayload>(
      fetch(flow_of(in.kind), in.stage, static_cast<int>(in.micro_batch)));
}

void Device::accept(InstructionId recv, PayloadPtr payload) {
  const Instruction& in = program_.code[recv];
  if (is_call(in.kind)) return strands_.bring_together(recv);
  if (in.in_collective()) {
    in.kind == ActionKind::Unshard ? take_weights(recv) : take_sum(recv);
    return let_go_of_part(recv);
  }
  auto* message = dynamic_cast<HostPayload*>(payload.get());
  if (message == nullptr) throw RunError("received a message that does not lie in host memory");
  const Flow flow = flow_of(in.kind);
  put(flow, in.stage + (flow == Flow::Activation ? -1 : 1), static_cast<int>(in.micro_batch),
      std::move(message->values));
}

std::optional<double> Device::loss() const {
  if (training_.mode != RunMode::Train) return std::nullopt;
  return stages_.loss();
}

std::string Device::not_finite() const {
  const std::string clause = stages_.not_finite();
  return clause.empty() ? sums_.not_finite() : clause;
}

int Device::peak_versions() const {
  int peak = 0;
  for (const Stage* stage : stages_.own()) peak = std::max(peak, stage->peak_versions());
  return peak;
}

std::vector<const Stage*> Device::stages() const {
  return {stages_.own().begin(), stages_.own().end()};
}

}  // namespace pipewright::exec::cpu
