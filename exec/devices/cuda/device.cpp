#include "exec/devices/cuda/device.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "core/base/error.hpp"
#include "core/order/devices.hpp"
#include "exec/devices/cpu/checkpointing.hpp"
#include "exec/devices/cpu/training_fit.hpp"
#include "exec/devices/cuda/trainable_layers.hpp"

namespace pipewright::exec::cuda {
namespace {

/// How long a poll sleeps between two rounds of asking.
constexpr std::int64_t kPollNs = 20'000;

/// Whether the norm is asked for, though nothing may be clipped by it.
bool has_norm(const Program& program) {
  return std::any_of(
      program.collectives.begin(), program.collectives.end(),
      [](const Collective& collective) { return collective.kind == ActionKind::ReduceNorm; });
}

[[noreturn]] void refuse(const std::string& what) {
  throw InputError("a GPU does not train " + what + " yet; use --device cpu");
}

}  // namespace

void require_trainable(const Program& program, const CudaTraining& training, bool over_nccl) {
  if (program.asynchronous) refuse("with the weight versions of an asynchronous schedule");
  if (training.training.clock == local::ClockKind::Virtual)
    throw InputError("a GPU runs in wall time; leave out --clock virtual, or use --device cpu");
  require_layers(*training.training.model);
  if (training.as_graph)
    require_captured(program, *training.training.model, training.precision, over_nccl);
}

Device::Device(const pipewright_cuda& cuda, const QueueSite& site, const Program& program,
               const CudaTraining& training, RankId rank, Transport& transport,
               TransferSpans* times, StepGraph* graph, cpu::GroupsOfRank groups)
    : cuda_(cuda),
      program_(program),
      training_(training),
      rank_(rank),
      transport_(transport),
      times_(times),
      graph_(graph),
      queue_(cuda, site),
      timeline_(queue_, transport),
      ranges_(cuda, program, rank),
      marks_(training.records_work ? &cuda : nullptr, program, rank),
      tied_tables_(queue_),
      sums_(program, rank, &transport, training.training.optimizer.clip_grad_norm,
            training.training.options.ranks.experts_differ_along_context()),
      stages_(program, rank),
      messages_{[this](Flow flow, int from, int of) { return fetch(flow, from, of); },
                [this](Flow flow, int from, int of, Buffer made) {
                  put(flow, from, of, std::move(made));
                }},
      strands_(program, std::move(groups)),
      member_sums_(queue_, between()),
      tensors_(program.stages, program.micro_batches) {
  const cpu::Training& of = training.training;
  if (of.optimizer.clip_grad_norm > 0 || has_norm(program))
    clipping_.emplace(queue_, program.ranks(), of.optimizer.clip_grad_norm);
  for (const StageId id : program.placement.stages_of(rank)) {
    const StagePlan& plan = of.stages[static_cast<std::size_t>(id.value)];
    auto shards = shards_of(program, id, rank, of.options.ranks.experts_differ_along_context());
    StageSpec spec{of.model,         plan.first_layer, plan.end_layer, of.micro_batch_size,
                   of.micro_batches, of.seed,          of.optimizer,   of.options.recompute};
    spec.place.tensor = coordinate_of(program.devices, kTensorAxis, rank);
    spec.place.context = coordinate_of(program.devices, kContextAxis, rank);
    spec.place.experts = coordinate_of(program.devices, kExpertAxis, rank);
    spec.ranks = cpu::division_of(program, of);
    spec.numerics = site.precision == Precision::Exact ? Numerics::Exact : Numerics::Fast;
    auto stage = std::make_unique<Stage>(
        queue_, spec, between(), of.mode,
        shards ? OwnShard{shards->replicas[shards->own], program.sharding} : OwnShard{});
    if (shards) stage->own_shard(*std::move(shards), program.sharding);
    if (of.start != nullptr) cpu::restore(*stage, *of.start);
    sums_.add(id, *stage);
    if (clipping_) clipping_->add(*stage, stage->weights());
    if (stage->shares_table()) tied_tables_.add(*stage);
    stages_.add(id, std::move(stage));
  }
  share_blocks();
  if (transport.peers() == nullptr) sum_among_threads();
}

/// Of arrays that are whole for a while. What weights started in is not needed any more.
void Device::share_blocks() {
  if (!program_.sharding.divides_gradients()) return;
  std::size_t most = 0;
  for (const Stage* stage : stages_.own()) most = std::max(most, stage->weights().whole_numbers());
  for (Stage* stage : stages_.own()) stage->weights().lend_blocks_for(most);
  queue_.memory().trim();
}

/// Else hosts sum: what goes to other processes is in their memory.
void Device::sum_among_threads() {
  if (clipping_) sums_.clip_on(*clipping_);
  for (const Instruction& in : program_.rank_code(rank_)) {
    const bool is_tied = in.kind == ActionKind::ReduceTied;
    if (!is_tied && (in.kind != ActionKind::ReduceGrad || !in.in_collective())) continue;
    if (is_tied && program_.sharding.divides_gradients()) continue;  // no table is whole
    if (!adds_copies(program_, in, rank_, queue_.site().precision)) continue;
    if (is_tied)
      sums_.tie_on(tied_tables_);
    else
      stages_.at(in.stage).add_copies();
  }
}

std::function<void()> Device::between() {
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
  if (told_way_) told_way_(way_);
  ranges_.begin_step(step_);
  marks_.begin_step();
  queue_.enter();
  if (way_ == StepWay::Captured) queue_.forget_guards();
  for (Stage* stage : stages_.own()) stage->begin_step(step_);
  stages_.set_batches(*training_.training.data, step_);
  timeline_.begin_step(way_ == StepWay::Replayed);
}

void Device::compute(InstructionId id) {
  if (way_ == StepWay::Replayed) return graph_->launch(step_of_run_);
  const auto lock = enter();
  const Action* const part_of = program_.action_of_part(id);
  const Cell cell = part_of != nullptr ? Cell{*part_of, std::nullopt} : program_.cell(id);
  await_input(cell.action);
  if (cell.partner) await_input(*cell.partner);
  Event start = timeline_.mark(queue_.computing());
  if (part_of != nullptr)
    compute_part(*part_of);
  else
    tensors_.for_each_action(cell, [this](const Action& action) { perform(action); });
  timeline_.note_computation(id, std::move(start), timeline_.mark(queue_.computing()));
}

/// Ahead of the mark where its time begins: a message that is late is not the action's own time.
void Device::await_input(const Action& action) {
  Waiting* const input = tensors_.find_input(action);
  if (input == nullptr || !input->is_arrival) return;
  queue_.wait(queue_.computing(), input->ready);
  input->is_arrival = false;
}

void Device::perform(const Action& action) {
  if (action.kind == ActionKind::Opt) return update();
  if (action.kind == ActionKind::ReduceTied) return sums_.tie_alone();
  if (action.kind == ActionKind::Reshard) return stages_.at(action.stage.value).drop_weights();
  if (!is_compute(action.kind)) return;  // a REDUCE_GRAD or UNSHARD alone: nobody to share with
  if (strands_.is_under_way(action)) return strands_.finish(action);
  stages_.compute(action, messages_);
}

void Device::compute_part(const Action& action) {
  if (strands_.is_under_way(action)) return strands_.go_on(action);
  strands_.begin(action, stages_.task_of(action, messages_),
                 stages_.at(action.stage.value).groups());
}

// --- Sums of ranks that divide layers ---

/// What the call sums is on the computing stream by now.
void Device::give_sum(InstructionId call) {
  const auto begun = strands_.begin_call(call);
  if (!begun || !transport_sums_) return;
  transport_.contribute(rank_, call, member_sums_.part_of(begun->wanted));
}

void Device::take_sum(InstructionId call) {
  const auto ended = strands_.end_call(call);
  if (!ended) return;  // a call beside the pipeline, which brings nothing
  const Wanted& wanted = ended->wanted;
  if (transport_sums_)
    member_sums_.take(transport_.gathered(rank_, call).front());
  else if (wanted.exchange != nullptr)
    member_sums_.bring_together(*wanted.exchange, *strands_.groups().experts);
  else
    member_sums_.bring_together(wanted, ended->stage.along(wanted.axis),
                                strands_.groups().along(wanted.axis));
}

// --- Before the first step ---

void Device::rehearse() {
  queue_.enter();
  const int first = training_.training.first_step();
  for (Stage* stage : stages_.own()) stage->begin_step(first);
  stages_.set_batches(*training_.training.data, first);
  const InstructionId begin = program_.rank_begin[static_cast<std::size_t>(rank_.value)];
  const InstructionId end = program_.rank_begin[static_cast<std::size_t>(rank_.value) + 1];
  for (InstructionId id = begin; id < end; ++id) {
    if (program_.code[id].has(Instruction::kAtStart)) rehearse(id);
  }
  for (InstructionId id = begin; id < end; ++id) {
    if (!program_.code[id].has(Instruction::kAtStart)) rehearse(id);
  }
  tensors_.clear();
  reduced_.clear();
  for (Stage* stage : stages_.own()) stage->end_rehearsal();
  queue_.finish(queue_.record(queue_.arriving()), between());
  queue_.finish(queue_.record(queue_.computing()), between());
}

/// A message is zeros. One that is sent before its data is there stays until the end.
void Device::rehearse(InstructionId id) {
  const Instruction& in = program_.code[id];
  if (is_send(in.kind)) {
    const auto micro_batch = static_cast<int>(in.micro_batch);
    if (tensors_.has(flow_of(in.kind), in.stage, micro_batch))
      static_cast<void>(tensors_.take(flow_of(in.kind), in.stage, micro_batch));
  } else if (is_recv(in.kind)) {
    const Flow flow = flow_of(in.kind);
    Buffer zeros = queue_.messages().take(message_bytes(id));
    queue_.clear(zeros.at(), zeros.bytes());
    tensors_.put(flow, in.stage + (flow == Flow::Activation ? -1 : 1),
                 static_cast<int>(in.micro_batch), {std::move(zeros), nullptr, false});
  } else if (in.in_collective() && has_stage(in.kind)) {
    rehearse_collective(in);
  } else if (in.kind == ActionKind::Reshard) {
    stages_.at(in.stage).drop_weights();
  } else if (is_compute(in.kind)) {
    rehearse_computation(id);
  }
}

void Device::rehearse_computation(InstructionId id) {
  tensors_.for_each_action(program_.cell(id), [this](const Action& action) {
    if (!is_compute(action.kind)) return;
    if (action.kind == ActionKind::W || action.kind == ActionKind::B) reduced_.clear();
    RankGroups& groups = stages_.at(action.stage.value).groups();
    run_counting(stages_.task_of(action, messages_), groups.point(), [&](const Wanted& wanted) {
      if (wanted.exchange == nullptr) member_sums_.rehearse(wanted, groups.along(wanted.axis));
    });
  });
}

/// Whole arrays come and go as in a step, where under `stream` gradients are on their way until the
/// next ones are made.
void Device::rehearse_collective(const Instruction& in) {
  Stage& stage = stages_.at(in.stage);
  if (in.kind == ActionKind::ReduceGrad && stage.divides_gradients()) {
    Buffer whole = stage.let_go_of_gradients();
    if (program_.policy.issue == Issue::Stream) reduced_.push_back(std::move(whole));
  }
  if (in.kind == ActionKind::Unshard && stage.divides_weights()) {
    stage.make_whole_weights();
    const Buffer whole = stage.weights().read_weights();
    queue_.clear(whole.at(), whole.bytes());
  }
}

// --- Updates ---

void Device::update() {
  sums_.take();
  sums_.clip();
  for (Stage* stage : stages_.own()) stage->update(step_);
}

void Device::leave_sums_to_transport() {
  if (queue_.site().precision == Precision::Exact) return;
  transport_sums_ = true;
  if (clipping_) {
    clipping_->leave_sums_to_transport();
    sums_.clip_on(*clipping_);
  }
  if (!program_.sharding.divides_gradients()) {  // else no table is whole
    tied_tables_.leave_sums_to_transport();
    sums_.tie_on(tied_tables_);
  }
  for (Stage* stage : stages_.own()) stage->leave_sums_to_transport();
}

std::int64_t Device::copy_bytes() const {
  std::int64_t bytes = tied_tables_.copy_bytes();
  for (const Stage* stage : stages_.own()) bytes += stage->copy_bytes();
  return bytes;
}

void Device::give_weights(InstructionId member) {
  Stage& own = stages_.at(program_.code[member].stage);
  if (own.divides_weights()) own.make_whole_weights();
  // Divided gradients are looked at where they are.
  const bool with_gradients =
      step_of_run_ < training_.training.verified_steps && !own.divides_gradients();
  PartPtr part = own.weights_on_device(with_gradients);
  if (part == nullptr) return sums_.hand_in(member, own.own_part(with_gradients));
  transport_.contribute(rank_, member, std::move(part));
}

void Device::take_weights(InstructionId member) {
  const std::vector<PartPtr> messages = transport_.gathered(rank_, member);
  Stage& own = stages_.at(program_.code[member].stage);
  if (own.takes_weights_from_device(messages)) return;
  std::vector<GradientPart> arrived;
  own.take_parts(parts_of(messages, arrived));
}

// --- Tensors ---

/// The event is recorded here, right after the work, and not when the message is sent: more work
/// may be put on the stream in between. Nobody waits for it if the reader is this rank.
void Device::put(Flow flow, int stage, int micro_batch, Buffer buffer) {
  tensors_.put(flow, stage, micro_batch,
               {std::move(buffer), queue_.record(queue_.computing()), false});
}

/// compute() has waited for it.
Buffer Device::fetch(Flow flow, int stage, int micro_batch) {
  return tensors_.take(flow, stage, micro_batch).buffer;
}

// --- Messages ---

PayloadPtr Device::give(InstructionId send) {
  const Instruction& in = program_.code[send];
  if (way_ == StepWay::Replayed) {
    if (!in.in_collective()) return std::make_unique<DevicePayload>(Buffer(), Event(), rank_);
    transport_.contribute(rank_, send, std::make_shared<DevicePart>());
    return nullptr;
  }
  const auto lock = enter();
  if (is_call(in.kind)) {
    give_sum(send);
    return nullptr;
  }
  if (in.in_collective()) {
    in.kind == ActionKind::Unshard ? give_weights(send) : sums_.hand_in(send);
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
  const Stage& stage = stages_.at(in.stage);
  return queue_.number_bytes() *
         (in.kind == ActionKind::RecvF ? stage.input_floats() : stage.output_floats());
}

/// The sender's buffer goes back to its pool in here: that may put an event on a stream.
void Device::accept(InstructionId recv, PayloadPtr payload) {
  const Instruction& in = program_.code[recv];
  if (way_ == StepWay::Replayed) {
    if (in.in_collective()) static_cast<void>(transport_.gathered(rank_, recv));
    return;
  }
  const auto lock = enter();
  if (is_call(in.kind)) return take_sum(recv);
  if (in.kind == ActionKind::Unshard && in.in_collective()) return take_weights(recv);
  if (in.in_collective()) return sums_.ended(recv);
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
  sums_.take();
  for (Stage* stage : stages_.own()) stage->end_step();
  if (way_ == StepWay::Captured) graph_->leave(queue_, step_of_run_);
}

void Device::wait_for_step() {
  const std::function<void()> others = between();
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
  marks_.end();
  ranges_.end();
  look_at_step();
}

/// All of it is done.
void Device::look_at_step() {
  timeline_.end_step();
  if (times_ != nullptr) timeline_.write(program_, *times_);
  if (training_.on_computation && step_ > training_.training.first_step())
    timeline_.tell(training_.on_computation);
  const bool is_saved = is_saved_ && is_saved_(step_of_run_);
  const bool is_verified = step_of_run_ < training_.training.verified_steps;
  for (Stage* stage : stages_.own()) {
    stage->read_step();
    if (is_verified) stage->download();
    if (is_saved) stage->fetch_state();
  }
  if (evaluation_ != nullptr) put_outcomes();
}

void Device::put_outcomes() {
  const int last = program_.stages - 1;
  Stage* const stage = stages_.find(last);
  for (int m = 0; stage != nullptr && m < program_.micro_batches; ++m) {
    if (!stages_.computes(last, m)) continue;
    const int of_data = number_of_data(program_.devices, m, program_.micro_batches);
    evaluation_->put(m, stage->take_outcome(of_data));
  }
}

std::optional<double> Device::loss() const {
  if (training_.training.mode != RunMode::Train) return std::nullopt;
  return stages_.loss();
}

std::string Device::not_finite() const {
  const std::string clause = stages_.not_finite();
  return clause.empty() ? sums_.not_finite() : clause;
}

}  // namespace pipewright::exec::cuda
