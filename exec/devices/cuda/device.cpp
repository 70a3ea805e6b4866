#include "exec/devices/cuda/device.hpp"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "core/base/error.hpp"
#include "core/order/forward_order.hpp"
#include "exec/devices/cpu/gradient_exchange.hpp"
#include "exec/devices/cpu/gradient_norm.hpp"
#include "exec/devices/cuda/trainable_layers.hpp"

namespace pipewright::exec::cuda {
namespace {

/// How long a poll sleeps between two rounds of asking.
constexpr std::int64_t kPollNs = 20'000;

[[noreturn]] void refuse(const std::string& what) {
  throw InputError("a GPU does not train " + what + " yet; use --device cpu");
}

}  // namespace

void require_trainable(const Program& program, const CudaTraining& training) {
  if (program.asynchronous) refuse("with the weight versions of an asynchronous schedule");
  if (is_forward_only(program) || training.training.mode != RunMode::Train)
    throw InputError("a GPU does not evaluate or predict yet; use --device cpu");
  const auto shards = [](const Instruction& in) { return in.kind == ActionKind::Unshard; };
  if (std::any_of(program.code.begin(), program.code.end(), shards))
    refuse("with a sharded optimizer state (ZeRO)");
  if (training.training.start != nullptr || training.training.save)
    refuse("to and from checkpoints");
  if (training.training.clock == local::ClockKind::Virtual)
    throw InputError("a GPU's time is the wall's; leave out --clock virtual, or use --device cpu");
  require_layers(*training.training.model);
  if (training.as_graph) require_captured(program, training.training.optimizer);
}

Device::Device(const pipewright_cuda& cuda, const QueueSite& site, const Program& program,
               const CudaTraining& training, RankId rank, Transport& transport,
               TransferSpans* times, StepGraph* graph)
    : cuda_(cuda),
      program_(program),
      training_(training),
      rank_(rank),
      transport_(transport),
      times_(times),
      graph_(graph),
      queue_(cuda, site),
      timeline_(queue_, transport),
      tensors_(program.stages, program.micro_batches) {
  stages_.resize(static_cast<std::size_t>(program.stages));
  const cpu::Training& of = training.training;
  for (const StageId stage : program.placement.stages_of(rank)) {
    const std::size_t s = static_cast<std::size_t>(stage.value);
    stages_[s] = std::make_unique<Stage>(
        queue_,
        StageSpec{of.model, of.stages[s].first_layer, of.stages[s].end_layer, of.micro_batch_size,
                  of.micro_batches, of.seed, of.optimizer, of.options.recompute});
    if (stages_[s]->shares_table()) tables_.push_back(stage);
  }
}

Stage::Between Device::between() {
  return [this] { transport_.sleep_until(rank_, transport_.now() + kPollNs); };
}

std::unique_lock<std::mutex> Device::enter() {
  std::unique_lock<std::mutex> lock;
  if (way_ == StepWay::Captured) lock = graph_->capture(queue_, !std::exchange(has_joined_, true));
  queue_.enter();
  return lock;
}

void Device::begin_step(int step) {
  step_ = training_.training.first_step() + step;
  step_of_run_ = step;
  if (graph_ != nullptr) way_ = way_of_captured_run(step);
  queue_.enter();
  if (way_ == StepWay::Captured) queue_.forget_guards();
  for (int s = 0; s < program_.stages; ++s) {
    Stage* const stage = stages_[static_cast<std::size_t>(s)].get();
    if (stage == nullptr) continue;
    stage->begin_step(step_);
    if (!stage->is_first() && !stage->is_last()) continue;
    for (int m = 0; m < training_.training.micro_batches; ++m) {
      if (computes(s, m)) stage->set_batch(m, training_.training.data->micro_batch(step_, m));
    }
  }
  timeline_.begin_step(way_ == StepWay::Replayed);
}

void Device::compute(InstructionId id) {
  if (way_ == StepWay::Replayed) return graph_->launch(step_of_run_);
  const auto lock = enter();
  Event start = timeline_.mark(queue_.computing());
  const Cell cell = program_.cell(id);
  if (cell.partner) {
    const bool in_order = tensors_.goes_first(cell.action, *cell.partner);
    perform(id, in_order ? cell.action : *cell.partner);
    perform(id, in_order ? *cell.partner : cell.action);
  } else {
    perform(id, cell.action);
  }
  timeline_.note_computation(id, std::move(start), timeline_.mark(queue_.computing()));
}

void Device::perform(InstructionId, const Action& action) {
  const int stage = action.stage.value, micro_batch = action.micro_batch.value;
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
      return update();
    case ActionKind::ReduceTied:
      return tie_alone();
    default:
      return;  // a REDUCE_GRAD alone: nobody to share with
  }
}

// --- Updates ---

void Device::update() {
  take_sums();
  clip();
  for (const auto& stage : stages_) {
    if (stage != nullptr) stage->update();
  }
}

void Device::hand_in(InstructionId member) {
  const Instruction& in = program_.code[member];
  if (in.kind == ActionKind::ReduceNorm) {
    take_sums();
    transport_.contribute(rank_, member, std::make_shared<cpu::NormMessage>(own_squares()));
    return;
  }
  if (in.kind == ActionKind::ReduceGrad && sums_on_gpu_) {
    Buffer gradients = stage_at(in.stage).gradients_to_sum();
    transport_.contribute(
        rank_, member,
        std::make_shared<DevicePart>(std::move(gradients), queue_.record(queue_.computing())));
    return;
  }
  if (in.kind == ActionKind::ReduceTied) take_sums();
  cpu::GradientPart part = in.kind == ActionKind::ReduceTied
                               ? own_tables()
                               : stage_at(in.stage).gradient_part(between());
  transport_.contribute(rank_, member, std::make_shared<cpu::GradientMessage>(std::move(part)));
}

/// Replicas have the same gradients by now, and the one with the first micro-batch counts them.
cpu::SquareSum Device::own_squares() {
  cpu::SquareSum sum;
  for (int s = 0; s < program_.stages; ++s) {
    Stage* const own = stages_[static_cast<std::size_t>(s)].get();
    if (own == nullptr || !computes(s, 0)) continue;
    if (sum.add(own->squares(between()))) continue;
    norm_is_finite_ = false;
    return {};
  }
  return sum;
}

void Device::clip() {
  const double most = training_.training.optimizer.clip_grad_norm;
  if (most <= 0) return;
  const std::optional<cpu::SquareSum> squares =
      norm_ != kNoInstruction ? cpu::total_of(transport_.gathered(rank_, norm_)) : own_squares();
  if (!squares) norm_is_finite_ = false;
  const float factor = squares ? cpu::clip_factor(squares->norm(), most) : 0;
  for (const auto& stage : stages_) {
    if (stage == nullptr) continue;
    stage->settle_gradients();
    stage->scale_gradients(factor);
  }
}

void Device::take_sums() {
  for (const InstructionId member : reductions_) {
    const std::vector<PartPtr> messages = transport_.gathered(rank_, member);
    if (const auto* sum = dynamic_cast<const DevicePart*>(messages.front().get())) {
      queue_.wait(queue_.computing(), sum->ready);  // it lies where the gradients do
      continue;
    }
    std::vector<cpu::GradientPart> arrived_parts;
    stage_at(program_.code[member].stage)
        .set_gradients(cpu::parts_of(messages, arrived_parts), between());
  }
  reductions_.clear();
  if (tied_ == kNoInstruction) return;
  const std::vector<PartPtr> messages = transport_.gathered(rank_, tied_);
  std::vector<cpu::GradientPart> arrived_parts;
  const auto parts = cpu::parts_of(messages, arrived_parts);
  for (const StageId stage : tables_) stage_at(stage.value).set_table(parts, between());
  tied_ = kNoInstruction;
}

/// What this rank's stages bring to the sum of a tied table's gradients; of replicas the one with
/// the first micro-batch.
cpu::GradientPart Device::own_tables() {
  cpu::GradientPart all;
  for (const StageId id : tables_) {
    if (!computes(id.value, 0)) continue;
    cpu::GradientPart one = stage_at(id.value).table_part(between());
    std::move(one.gradients.begin(), one.gradients.end(), std::back_inserter(all.gradients));
    std::move(one.sums.begin(), one.sums.end(), std::back_inserter(all.sums));
  }
  return all;
}

/// All stages with the table are this rank's.
void Device::tie_alone() {
  take_sums();
  const cpu::GradientPart own = own_tables();
  const cpu::GradientPart* const parts[] = {&own};
  for (const StageId stage : tables_) stage_at(stage.value).set_table(parts, between());
}

// --- Tensors ---

void Device::forward(int stage, int micro_batch) {
  Buffer input;
  if (stage > 0) input = fetch(Flow::Activation, stage - 1, micro_batch);
  Buffer output = stage_at(stage).forward(micro_batch, std::move(input));
  if (stage + 1 < program_.stages) put(Flow::Activation, stage, micro_batch, std::move(output));
}

void Device::backward_input(int stage, int micro_batch) {
  Buffer gradient;
  if (stage + 1 < program_.stages) gradient = fetch(Flow::Gradient, stage + 1, micro_batch);
  Buffer result = stage_at(stage).backward_input(micro_batch, std::move(gradient));
  if (stage > 0) put(Flow::Gradient, stage, micro_batch, std::move(result));
}

bool Device::computes(int stage, int micro_batch) const {
  return program_.placement.rank_of(StageId(stage), MicroBatchId(micro_batch)) == rank_;
}

Stage& Device::stage_at(int stage) {
  Stage* const own = stages_[static_cast<std::size_t>(stage)].get();
  if (own == nullptr) throw RunError("this rank does not hold stage " + std::to_string(stage));
  return *own;
}

/// The event is recorded here, right after the work, and not when the message is sent: more work
/// may be put on the stream in between. Nobody waits for it if the reader is this rank.
void Device::put(Flow flow, int stage, int micro_batch, Buffer buffer) {
  tensors_.put(flow, stage, micro_batch,
               {std::move(buffer), queue_.record(queue_.computing()), false});
}

Buffer Device::fetch(Flow flow, int stage, int micro_batch) {
  Waiting waiting = tensors_.take(flow, stage, micro_batch);
  if (waiting.is_arrival) queue_.wait(queue_.computing(), waiting.ready);
  return std::move(waiting.buffer);
}

// --- Messages ---

PayloadPtr Device::give(InstructionId send) {
  if (way_ == StepWay::Replayed) return std::make_unique<DevicePayload>(Buffer(), Event(), rank_);
  const auto lock = enter();
  const Instruction& in = program_.code[send];
  if (in.in_collective()) {
    hand_in(send);
    return nullptr;
  }
  Waiting waiting = tensors_.take(flow_of(in.kind), in.stage, static_cast<int>(in.micro_batch));
  return std::make_unique<DevicePayload>(std::move(waiting.buffer), std::move(waiting.ready),
                                         rank_);
}

/// Into this rank's memory, on its arriving stream. The sender's memory is not used again before
/// the copy is done.
Device::Waiting Device::arrived(InstructionId recv, DevicePayload& payload) {
  if (payload.owner == rank_) return {std::move(payload.buffer), std::move(payload.ready), true};
  void* const stream = queue_.arriving();
  Buffer own = queue_.messages().take(payload.buffer.bytes());
  queue_.wait(stream, payload.ready);
  Event start = timeline_.mark(stream);
  const std::uint32_t route = program_.code[recv].route;
  if (!training_.hold_ns.empty())
    require(cuda_, cuda_.kernels.delay(stream, training_.hold_ns.at(route)));
  require(cuda_, cuda_.copy(stream, own.at(), payload.buffer.at(), own.bytes()));
  timeline_.note_transfer(recv, std::move(start), timeline_.mark(stream), true);
  Event ready = queue_.record(stream);
  Pool::guard(payload.buffer, ready);
  return {std::move(own), std::move(ready), true};
}

std::size_t Device::message_bytes(InstructionId recv) {
  const Instruction& in = program_.code[recv];
  const Stage& stage = stage_at(in.stage);
  return in.kind == ActionKind::RecvF ? stage.input_bytes() : stage.output_bytes();
}

/// The sender's buffer goes back to its pool in here: that may put an event on a stream.
void Device::accept(InstructionId recv, PayloadPtr payload) {
  if (way_ == StepWay::Replayed) return;
  const auto lock = enter();
  const Instruction& in = program_.code[recv];
  if (in.kind == ActionKind::ReduceNorm) {
    norm_ = recv;
    return;
  }
  if (in.kind == ActionKind::ReduceTied) {
    tied_ = recv;
    return;
  }
  if (in.in_collective()) return reductions_.push_back(recv);
  auto* message = dynamic_cast<DevicePayload*>(payload.get());
  if (message == nullptr) throw RunError("received a message that does not lie on a GPU");
  const Flow flow = flow_of(in.kind);
  const int from = in.stage + (flow == Flow::Activation ? -1 : 1);
  const std::size_t wanted = message_bytes(recv);
  if (message->size() != wanted) {
    throw RunError("received " + std::to_string(message->size()) + " bytes where " +
                   std::to_string(wanted) + " belong");
  }
  tensors_.put(flow, from, static_cast<int>(in.micro_batch), arrived(recv, *message));
  payload.reset();
}

// --- The end of a step ---

void Device::enqueue_end() {
  if (way_ == StepWay::Replayed) return graph_->launch(step_of_run_);
  const auto lock = enter();
  take_sums();
  for (const auto& stage : stages_) {
    if (stage != nullptr) stage->end_step();
  }
  if (way_ == StepWay::Captured) graph_->leave(queue_, step_of_run_);
}

void Device::wait_for_step() {
  const Stage::Between others = between();
  if (way_ == StepWay::Enqueued) {
    queue_.finish(queue_.record(queue_.arriving()), others);
    queue_.finish(queue_.record(queue_.computing()), others);
    return timeline_.finish_transfers(others);
  }
  while (!graph_->is_launched(step_of_run_)) others();
  queue_.finish(graph_->done(), others);
}

void Device::end_step() {
  enqueue_end();
  enqueued_ns_ = transport_.now();
  queue_.enter();
  wait_for_step();
  timeline_.end_step();
  if (times_ != nullptr) timeline_.write(program_, *times_);
  if (training_.on_computation && step_ > training_.training.first_step())
    timeline_.tell(training_.on_computation);
  for (const auto& stage : stages_) {
    if (stage != nullptr) stage->read_step();
  }
}

std::optional<double> Device::loss() const {
  const int last = program_.stages - 1;
  const Stage* const stage = stages_[static_cast<std::size_t>(last)].get();
  if (stage == nullptr) return std::nullopt;
  std::optional<double> sum;
  for (int m = 0; m < program_.micro_batches; ++m) {
    if (computes(last, m)) sum = sum.value_or(0) + stage->loss_share(m);
  }
  return sum;
}

std::string Device::not_finite() const {
  for (const auto& stage : stages_) {
    if (stage != nullptr && !stage->not_finite().empty()) return stage->not_finite();
  }
  return norm_is_finite_ ? "" : "the norm of the gradients is beyond 2e12";
}

std::vector<const cpu::Stage*> Device::download() {
  queue_.enter();
  std::vector<const cpu::Stage*> own;
  for (const auto& stage : stages_) {
    if (stage == nullptr) continue;
    stage->download({});
    own.push_back(&stage->mirror());
  }
  return own;
}

}  // namespace pipewright::exec::cuda
