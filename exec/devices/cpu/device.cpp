#include "exec/devices/cpu/device.hpp"

#include <algorithm>
#include <iterator>
#include <string>

#include "core/base/error.hpp"
#include "exec/devices/cpu/checkpointing.hpp"

namespace pipewright::exec::cpu {

Device::Device(const Program& program, const Training& training, RankId rank, Transport* transport)
    : program_(program),
      training_(training),
      rank_(rank),
      versions_(program, rank),
      tensors_(program.stages, program.micro_batches),
      transport_(transport) {
  PIPEWRIGHT_ASSERT(transport != nullptr || !program.has_collectives(),
                    "replicas without a transport for their gradients");
  stages_.resize(static_cast<std::size_t>(program.stages));
  counted_.resize(stages_.size(), 0);
  for (const StageId stage : program.placement.stages_of(rank)) {
    const std::size_t s = static_cast<std::size_t>(stage.value);
    const StagePlan& plan = training.stages[s];
    stages_[s] = std::make_unique<Stage>(*training.model, plan.first_layer, plan.end_layer,
                                         training.micro_batch_size, training.micro_batches,
                                         training.seed, training.optimizer, training.options);
    if (program.asynchronous) stages_[s]->average_each_update();
    if (training.mode != RunMode::Train) stages_[s]->forward_only(training.mode);
    stages_[s]->report_to(meter_);
  }
  own_shards();
  find_tables();
  for (const StageId stage : program.placement.stages_of(rank)) recount(stage.value);
  if (training.start == nullptr) return;
  for (const auto& stage : stages_) {
    if (stage != nullptr) restore(*stage, *training.start);
  }
}

void Device::begin_step(int step) {
  step_ = training_.first_step() + step;
  for (const auto& stage : stages_) {
    if (stage == nullptr) continue;
    stage->discard_gradients();
    stage->begin_versions();
  }
  for (int s = 0; s < program_.stages; ++s) {
    Stage* const stage = stages_[static_cast<std::size_t>(s)].get();
    if (stage == nullptr || (!stage->is_first() && !stage->is_last())) continue;
    for (int m = 0; m < training_.micro_batches; ++m) {
      if (computes(s, m)) stage->set_batch(m, training_.data->micro_batch(step_, m));
    }
  }
}

void Device::compute(InstructionId id) {
  const Cell cell = program_.cell(id);
  if (cell.partner) {
    const bool in_order = tensors_.goes_first(cell.action, *cell.partner);
    perform(id, in_order ? cell.action : *cell.partner);
    perform(id, in_order ? *cell.partner : cell.action);
  } else {
    perform(id, cell.action);
  }
  if (program_.asynchronous) {
    drop_versions(id, cell.action);
    if (cell.partner) drop_versions(id, *cell.partner);
  }
}

void Device::perform(InstructionId id, const Action& action) {
  const int stage = action.stage.value, micro_batch = action.micro_batch.value;
  if (program_.asynchronous && is_compute(action.kind))
    stage_at(stage).use_version(versions_.version_of(stage, micro_batch));
  switch (action.kind) {
    case ActionKind::F:
      return forward(stage, micro_batch);
    case ActionKind::I:
      return backward_input(stage, micro_batch);
    case ActionKind::W:
      return stage_at(stage).backward_weight(micro_batch);
    case ActionKind::B:
      backward_input(stage, micro_batch);
      return stage_at(stage).backward_weight(micro_batch);
    case ActionKind::Opt:
      return update(id);
    case ActionKind::ReduceTied:
      return tie_alone();
    default:
      return;  // a REDUCE_GRAD or UNSHARD alone: nobody to share with
  }
}

void Device::update(InstructionId id) {
  take_sums();
  clip();
  for (int s = 0; s < program_.stages; ++s) {
    Stage* const own = stages_[static_cast<std::size_t>(s)].get();
    if (own == nullptr) continue;
    if (program_.asynchronous) {
      own->update_version(versions_.is_used_behind(s, own->version(), id));
      recount(s);
    } else {
      own->update(step_);
    }
  }
}

void Device::drop_versions(InstructionId id, const Action& action) {
  if (!is_compute(action.kind)) return;
  const int stage = action.stage.value;
  const int version = versions_.version_of(stage, action.micro_batch.value);
  if (versions_.is_used_behind(stage, version, id)) return;
  stage_at(stage).drop_version(version);
  recount(stage);
}

// --- Replicas ---

void Device::hand_in(InstructionId member) {
  const Instruction& in = program_.code[member];
  if (in.kind == ActionKind::ReduceNorm) {
    take_sums();
    transport_->contribute(rank_, member, std::make_shared<NormMessage>(own_squares()));
    return;
  }
  if (in.kind == ActionKind::ReduceTied) {
    take_sums();
    GradientPart tables = own_tables();
    hold_part(tables);
    transport_->contribute(rank_, member, std::make_shared<GradientMessage>(std::move(tables)));
    return;
  }
  Stage& stage = stage_at(in.stage);
  GradientPart part =
      in.kind == ActionKind::Unshard
          ? stage.own_part(step_ - training_.first_step() < training_.verified_steps)
          : stage.gradient_part();
  hold_part(part);
  transport_->contribute(rank_, member, std::make_shared<GradientMessage>(std::move(part)));
}

void Device::hold_part(const GradientPart& part) {
  std::size_t bytes = 0;
  for (const AlignedFloats& one : part.gradients) bytes += one.size() * sizeof(float);
  for (const FixedPointSums& one : part.sums) bytes += 2 * one.high().size() * sizeof(std::int64_t);
  handed_in_ += static_cast<std::int64_t>(bytes);
  meter_.add(static_cast<std::int64_t>(bytes));
}

/// What a stage always holds; of an asynchronous one it changes with its versions.
void Device::recount(int stage) {
  std::int64_t& counted = counted_[static_cast<std::size_t>(stage)];
  const std::int64_t now = stage_at(stage).state_bytes();
  meter_.add(now - std::exchange(counted, now));
}

std::int64_t Device::peak_bytes() const { return meter_.peak_bytes; }

/// Replicas have the same gradients by now, and the one with the first micro-batch counts them; of
/// a sharded stage each counts its own part.
SquareSum Device::own_squares() {
  SquareSum sum;
  for (int s = 0; s < program_.stages; ++s) {
    Stage* const own = stages_[static_cast<std::size_t>(s)].get();
    if (own == nullptr || (!own->is_sharded() && !computes(s, 0))) continue;
    if (sum.add(own->squares())) continue;
    norm_is_finite_ = false;
    return {};
  }
  return sum;
}

void Device::clip() {
  const double most = training_.optimizer.clip_grad_norm;
  if (most <= 0) return;
  std::optional<SquareSum> squares;
  if (norm_ != kNoInstruction) {
    squares = total_of(transport_->gathered(rank_, norm_));
  } else {
    squares = own_squares();  // there is no other rank
  }
  if (!squares) norm_is_finite_ = false;
  const float factor = squares ? clip_factor(squares->norm(), most) : 0;
  for (const auto& stage : stages_) {
    if (stage == nullptr) continue;
    stage->settle_gradients();
    stage->scale_gradients(factor);
  }
}

/// Sums belong to the update that needs them: there they count as its time.
void Device::take_sums() {
  for (const InstructionId member : reductions_) {
    const std::vector<PartPtr> messages = transport_->gathered(rank_, member);
    std::vector<GradientPart> arrived;
    stage_at(program_.code[member].stage).set_gradients(parts_of(messages, arrived));
  }
  reductions_.clear();
  if (tied_ == kNoInstruction) return;
  const std::vector<PartPtr> messages = transport_->gathered(rank_, tied_);
  std::vector<GradientPart> arrived;
  const std::vector<const GradientPart*> parts = parts_of(messages, arrived);
  for (const StageId stage : tables_) stage_at(stage.value).set_table(parts);
  tied_ = kNoInstruction;
}

void Device::find_tables() {
  for (const StageId stage : program_.placement.stages_of(rank_)) {
    if (stage_at(stage.value).shares_table()) tables_.push_back(stage);
  }
}

/// What this rank's stages bring to the sum of a tied table's gradients. Replicas have the same by
/// now, and the one with the first micro-batch brings it; of a sharded stage each its own part.
GradientPart Device::own_tables() {
  GradientPart all;
  for (const StageId id : tables_) {
    const Stage& stage = stage_at(id.value);
    if (!stage.is_sharded() && !computes(id.value, 0)) continue;
    GradientPart one = stage.table_part();
    std::move(one.gradients.begin(), one.gradients.end(), std::back_inserter(all.gradients));
    std::move(one.sums.begin(), one.sums.end(), std::back_inserter(all.sums));
  }
  return all;
}

/// All stages with the table are this rank's.
void Device::tie_alone() {
  take_sums();
  const GradientPart own = own_tables();
  const GradientPart* const parts[] = {&own};
  for (const StageId stage : tables_) stage_at(stage.value).set_table(parts);
}

void Device::take_weights(InstructionId member) {
  const std::vector<PartPtr> messages = transport_->gathered(rank_, member);
  std::vector<GradientPart> arrived;
  stage_at(program_.code[member].stage).take_parts(parts_of(messages, arrived));
}

/// The parts are numbered by rank, as in every collective of the stage.
void Device::own_shards() {
  for (const Collective& collective : program_.collectives) {
    if (collective.kind != ActionKind::Unshard) continue;
    const auto& members = collective.members;
    const auto own = std::find_if(members.begin(), members.end(),
                                  [&](const auto& member) { return member.rank == rank_; });
    if (own == members.end()) continue;
    stage_at(collective.stage.value)
        .own_shard(static_cast<std::size_t>(own - members.begin()), members.size());
  }
}

bool Device::computes(int stage, int micro_batch) const {
  return program_.placement.rank_of(StageId(stage), MicroBatchId(micro_batch)) == rank_;
}

void Device::end_step() {
  take_sums();
  for (const auto& stage : stages_) {
    if (stage == nullptr) continue;
    if (program_.asynchronous) stage->use_version(stage->version());
    stage->settle_gradients();  // where no OPT has
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

void Device::forward(int stage, int micro_batch) {
  std::vector<float> input;
  if (stage > 0) input = fetch(Flow::Activation, stage - 1, micro_batch);
  std::vector<float> output = stage_at(stage).forward(micro_batch, std::move(input));
  if (stage + 1 < program_.stages) put(Flow::Activation, stage, micro_batch, std::move(output));
  if (stage + 1 == program_.stages && evaluation_ != nullptr)
    evaluation_->put(micro_batch, stage_at(stage).take_outcome(micro_batch));
}

void Device::backward_input(int stage, int micro_batch) {
  std::vector<float> gradient;
  if (stage + 1 < program_.stages) gradient = fetch(Flow::Gradient, stage + 1, micro_batch);
  std::vector<float> result = stage_at(stage).backward_input(micro_batch, std::move(gradient));
  if (stage > 0) put(Flow::Gradient, stage, micro_batch, std::move(result));
}

PayloadPtr Device::give(InstructionId send) {
  const Instruction& in = program_.code[send];
  if (in.in_collective()) {
    hand_in(send);
    return nullptr;
  }
  return std::make_unique<HostPayload>(
      fetch(flow_of(in.kind), in.stage, static_cast<int>(in.micro_batch)));
}

void Device::accept(InstructionId recv, PayloadPtr payload) {
  const Instruction& in = program_.code[recv];
  if (in.kind == ActionKind::ReduceNorm) {
    norm_ = recv;
    return;
  }
  if (in.kind == ActionKind::ReduceTied) {
    tied_ = recv;
    return;
  }
  if (in.in_collective()) {
    if (in.kind == ActionKind::Unshard) return take_weights(recv);
    return reductions_.push_back(recv);
  }
  auto* message = dynamic_cast<HostPayload*>(payload.get());
  if (message == nullptr) throw RunError("received a message that does not lie in host memory");
  const Flow flow = flow_of(in.kind);
  put(flow, in.stage + (flow == Flow::Activation ? -1 : 1), static_cast<int>(in.micro_batch),
      std::move(message->values));
}

std::optional<double> Device::loss() const {
  if (training_.mode != RunMode::Train) return std::nullopt;
  if (stages_.empty() || stages_.back() == nullptr) return std::nullopt;
  double sum = 0;
  for (int m = 0; m < program_.micro_batches; ++m) {
    if (computes(program_.stages - 1, m)) sum += stages_.back()->loss_share(m);
  }
  return sum;
}

std::string Device::not_finite() const {
  for (const auto& stage : stages_) {
    std::string clause = stage != nullptr ? stage->not_finite() : "";
    if (!clause.empty()) return clause;
  }
  return norm_is_finite_ ? "" : "the norm of the gradients is beyond 2e12";
}

int Device::peak_versions() const {
  int peak = 0;
  for (const Stage* stage : stages()) peak = std::max(peak, stage->peak_versions());
  return peak;
}

std::vector<const Stage*> Device::stages() const {
  std::vector<const Stage*> own;
  for (const auto& stage : stages_) {
    if (stage != nullptr) own.push_back(stage.get());
  }
  return own;
}

Stage& Device::stage_at(int stage) {
  Stage* const own = stages_[static_cast<std::size_t>(stage)].get();
  if (own == nullptr) throw RunError("this rank does not hold stage " + std::to_string(stage));
  return *own;
}

}  // namespace pipewright::exec::cpu
