#include "exec/cpu/device.hpp"

#include <algorithm>
#include <string>

#include "core/error.hpp"
#include "exec/local/transport.hpp"
#include "exec/serial.hpp"
#include "exec/verify.hpp"

namespace pipewright::exec::cpu {

Device::Device(const Program& program, const Training& training, RankId rank)
    : program_(program), training_(training) {
  stages_.resize(static_cast<std::size_t>(program.stages));
  const std::size_t tensors =
      static_cast<std::size_t>(program.stages) * static_cast<std::size_t>(program.micro_batches);
  activations_.resize(tensors);
  gradients_.resize(tensors);
  for (const StageId stage : program.placement.stages_of(rank)) {
    const std::size_t s = static_cast<std::size_t>(stage.value);
    const StagePlan& plan = training.stages[s];
    stages_[s] = std::make_unique<Stage>(*training.model, plan.first_layer, plan.end_layer,
                                         training.micro_batch_size, training.micro_batches,
                                         training.seed, training.optimizer);
  }
}

void Device::begin_step(int step) {
  step_ = step;
  for (const auto& stage : stages_) {
    if (stage == nullptr) continue;
    stage->discard_gradients();
    if (!stage->is_first() && !stage->is_last()) continue;
    for (int m = 0; m < training_.micro_batches; ++m) {
      stage->set_batch(m, training_.data->micro_batch(step, m));
    }
  }
}

void Device::compute(InstructionId id) {
  const Cell cell = program_.cell(id);
  if (!cell.partner) return perform(cell.action);
  // The two of a pair may feed each other; then the one that feeds goes first.
  const bool in_order = is_input_there(cell.action) || !is_input_there(*cell.partner);
  perform(in_order ? cell.action : *cell.partner);
  perform(in_order ? *cell.partner : cell.action);
}

void Device::perform(const Action& action) {
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
      for (const auto& own : stages_) {
        if (own != nullptr) own->update(step_);
      }
      return;
    default:
      return;  // one replica, nothing sharded: nothing to reduce, gather or drop
  }
}

void Device::forward(int stage, int micro_batch) {
  std::vector<float> input;
  if (stage > 0) input = fetch(activations_, stage - 1, micro_batch, "activation");
  std::vector<float> output = stage_at(stage).forward(micro_batch, std::move(input));
  if (stage + 1 < program_.stages) put(activations_, stage, micro_batch, std::move(output));
}

void Device::backward_input(int stage, int micro_batch) {
  std::vector<float> gradient;
  if (stage + 1 < program_.stages) gradient = fetch(gradients_, stage + 1, micro_batch, "gradient");
  std::vector<float> result = stage_at(stage).backward_input(micro_batch, std::move(gradient));
  if (stage > 0) put(gradients_, stage, micro_batch, std::move(result));
}

bool Device::is_input_there(const Action& action) const {
  const int stage = action.stage.value, micro_batch = action.micro_batch.value;
  if (action.kind == ActionKind::F) {
    return stage == 0 || activations_[place(stage - 1, micro_batch)].is_there;
  }
  return stage + 1 == program_.stages || gradients_[place(stage + 1, micro_batch)].is_there;
}

PayloadPtr Device::give(InstructionId send) {
  const Instruction& in = program_.code[send];
  const bool activation = in.kind == ActionKind::SendF;
  return std::make_unique<HostPayload>(fetch(activation ? activations_ : gradients_, in.stage,
                                             static_cast<int>(in.micro_batch),
                                             activation ? "activation" : "gradient"));
}

void Device::accept(InstructionId recv, PayloadPtr payload) {
  const Instruction& in = program_.code[recv];
  auto* message = dynamic_cast<HostPayload*>(payload.get());
  if (message == nullptr) throw RunError("received a message that does not lie in host memory");
  const bool activation = in.kind == ActionKind::RecvF;
  put(activation ? activations_ : gradients_, in.stage + (activation ? -1 : 1),
      static_cast<int>(in.micro_batch), std::move(message->values));
}

std::optional<double> Device::loss() const {
  if (stages_.empty() || stages_.back() == nullptr) return std::nullopt;
  return stages_.back()->loss();
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

std::size_t Device::place(int stage, int micro_batch) const {
  return static_cast<std::size_t>(stage) * static_cast<std::size_t>(program_.micro_batches) +
         static_cast<std::size_t>(micro_batch);
}

void Device::put(std::vector<Waiting>& where, int stage, int micro_batch,
                 std::vector<float> values) {
  Waiting& waiting = where[place(stage, micro_batch)];
  waiting.values = std::move(values);
  waiting.is_there = true;
}

std::vector<float> Device::fetch(std::vector<Waiting>& from, int stage, int micro_batch,
                                 const char* what) {
  Waiting& waiting = from[place(stage, micro_batch)];
  if (!waiting.is_there) {
    throw RunError(std::string("the ") + what + " of stage " + std::to_string(stage) + " for m" +
                   std::to_string(micro_batch) + " is not there");
  }
  waiting.is_there = false;
  return std::move(waiting.values);
}

// --- A run ---

namespace {

void check(const Program& program, const Training& training) {
  const auto refuse = [](const std::string& why) { throw InputError("cannot train: " + why); };
  if (program.fragment) refuse("the order is a fragment; give a whole one");
  if (program.placement.looks_at_micro_batch()) {
    refuse("the schedule keeps replicas of its stages, which the cpu device does not train");
  }
  if (static_cast<std::size_t>(program.stages) != training.stages.size()) {
    refuse("the schedule has " + std::to_string(program.stages) + " stages, the plan " +
           std::to_string(training.stages.size()));
  }
  if (program.micro_batches != training.micro_batches) {
    refuse("the schedule has " + std::to_string(program.micro_batches) +
           " micro-batches, the plan " + std::to_string(training.micro_batches));
  }
  int next = 0;
  for (const StagePlan& stage : training.stages) {
    if (stage.first_layer != next || stage.end_layer < next) {
      refuse("the stages do not cover the model's layers one after another");
    }
    next = stage.end_layer;
  }
  if (next != static_cast<int>(training.model->layers.size())) {
    refuse("the stages end at layer " + std::to_string(next) + " of " +
           std::to_string(training.model->layers.size()));
  }
}

/// A serial run beside the real one, step by step.
class Verifier {
 public:
  explicit Verifier(const Training& training)
      : training_(training),
        serial_(*training.model, {.micro_batch_size = training.micro_batch_size,
                                  .micro_batches = training.micro_batches,
                                  .seed = training.seed,
                                  .optimizer = training.optimizer}) {}

  VerifyReport compare(int step, bool updates, const std::vector<const Device*>& devices) {
    updates ? serial_.step(*training_.data, step) : serial_.gradients(*training_.data, step);
    std::vector<const Stage*> stages;
    for (const Device* device : devices) {
      for (const Stage* stage : device->stages()) stages.push_back(stage);
    }
    const auto views = parameters_of(stages);
    return verify(views, serial_.stage().parameters());
  }

 private:
  const Training& training_;
  SerialRun serial_;
};

}  // namespace

RunResult run_on_cpu(const Program& program, const CostTable& costs, const Training& training,
                     const RunOptions& options) {
  check(program, training);
  std::vector<const Device*> devices(static_cast<std::size_t>(program.ranks()));
  const DeviceFactory make = [&](RankId rank, Clock&) {
    auto device = std::make_unique<Device>(program, training, rank);
    devices[static_cast<std::size_t>(rank.value)] = device.get();
    return device;
  };
  const bool updates = std::any_of(program.code.begin(), program.code.end(),
                                   [](const auto& in) { return in.kind == ActionKind::Opt; });
  std::optional<Verifier> verifier;
  if (training.verified_steps > 0) verifier.emplace(training);
  std::optional<VerifyReport> report;
  RunOptions verifying = options;
  verifying.on_step = [&](int step, const StepResult& result) {
    if (step < training.verified_steps) {
      const VerifyReport found = verifier->compare(step, updates, devices);
      if (!report || found.gradients.norm_rel > report->gradients.norm_rel) report = found;
    }
    if (options.on_step) options.on_step(step, result);
  };
  local::LocalTransport transport(program, local::real_messages(program, costs));
  RunResult result = run(program, costs, transport, make, verifying);
  result.verify = report;
  return result;
}

}  // namespace pipewright::exec::cpu
