// The stages of one rank, of any device, and what their actions ask of them. A Stage has
// is_first(), is_last(), set_batch(), forward_task(), backward_input_task(), backward_weight_task()
// and loss_share(), as exec/devices/cpu/stage.hpp says. Owns the stages; one thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/order/devices.hpp"
#include "core/program/program.hpp"
#include "exec/base/task.hpp"
#include "exec/data/data.hpp"
#include "exec/runtime/waiting_tensors.hpp"

namespace pipewright::exec {

template <class Stage, class Message>
class RankStages {
 public:
  /// What a device keeps between actions: fetch(flow, stage, micro-batch) gives what an action
  /// reads of the stage beside it, and put(flow, stage, micro-batch, message) takes what it makes
  /// for one.
  struct Messages {
    std::function<Message(Flow, int, int)> fetch;
    std::function<void(Flow, int, int, Message)> put;
  };

  /// The Program must outlive it.
  RankStages(const Program& program, RankId rank)
      : program_(program), rank_(rank), stages_(static_cast<std::size_t>(program.stages)) {}

  /// In ascending order.
  void add(StageId id, std::unique_ptr<Stage> stage) {
    own_.push_back(stage.get());
    stages_.at(static_cast<std::size_t>(id.value)) = std::move(stage);
  }
  const std::vector<Stage*>& own() const { return own_; }
  /// What the first of them that has something to say says (Stage::not_finite()).
  std::string not_finite() const {
    for (const Stage* stage : own_) {
      std::string clause = stage->not_finite();
      if (!clause.empty()) return clause;
    }
    return "";
  }
  /// Null where another rank has it.
  Stage* find(int stage) const { return stages_[static_cast<std::size_t>(stage)].get(); }
  Stage& at(int stage) const {
    Stage* const own = find(stage);
    if (own == nullptr) throw RunError("this rank does not hold stage " + std::to_string(stage));
    return *own;
  }

  /// Replicas of a stage share the micro-batches.
  bool computes(int stage, int micro_batch) const {
    return program_.placement.rank_of(StageId(stage), MicroBatchId(micro_batch)) == rank_;
  }
  /// The first and the last stage get what they need of a step's micro-batches.
  void set_batches(const DataSource& data, int step) const {
    for (int s = 0; s < program_.stages; ++s) {
      Stage* const stage = find(s);
      if (stage == nullptr || (!stage->is_first() && !stage->is_last())) continue;
      for (int m = 0; m < program_.micro_batches; ++m) {
        if (computes(s, m)) stage->set_batch(own(m), data.micro_batch(step, own(m)));
      }
    }
  }

  /// F, I, W or B. Pauses where ranks divide the stage. `messages` must outlive it.
  Task<void> task_of(Action action, const Messages& messages) const {
    Stage& stage = at(action.stage.value);
    const int s = action.stage.value, m = action.micro_batch.value;
    if (action.kind == ActionKind::F) {
      Message input{};
      if (s > 0) input = messages.fetch(Flow::Activation, s - 1, m);
      Message output = co_await stage.forward_task(own(m), std::move(input));
      if (s + 1 < program_.stages) messages.put(Flow::Activation, s, m, std::move(output));
    }
    if (action.kind == ActionKind::I || action.kind == ActionKind::B) {
      Message gradient{};
      if (s + 1 < program_.stages) gradient = messages.fetch(Flow::Gradient, s + 1, m);
      Message result = co_await stage.backward_input_task(own(m), std::move(gradient));
      if (s > 0) messages.put(Flow::Gradient, s, m, std::move(result));
    }
    if (action.kind == ActionKind::W || action.kind == ActionKind::B)
      co_await stage.backward_weight_task(own(m));
  }
  /// The same of stages that are not divided.
  void compute(const Action& action, const Messages& messages) const {
    run_now(task_of(action, messages));
  }

  /// This rank's part of the step's loss; nullopt where it has none. Of ranks that compute the same
  /// data, or parts of the same sequences, the first says it.
  std::optional<double> loss() const {
    const int last = program_.stages - 1;
    if (find(last) == nullptr) return std::nullopt;
    for (const std::string_view axis : {kTensorAxis, kContextAxis})
      if (coordinate_of(program_.devices, axis, rank_) > 0) return std::nullopt;
    std::optional<double> sum;
    for (int m = 0; m < program_.micro_batches; ++m) {
      if (computes(last, m)) sum = sum.value_or(0) + at(last).loss_share(own(m));
    }
    return sum;
  }

 private:
  /// The stage's number of the Program's micro-batch: ranks that divide a stage may compute the
  /// same data under numbers of their own.
  int own(int micro_batch) const {
    return number_of_data(program_.devices, micro_batch, program_.micro_batches);
  }

  const Program& program_;
  const RankId rank_;
  std::vector<std::unique_ptr<Stage>> stages_;  // by stage
  std::vector<Stage*> own_;
};

}  // namespace pipewright::exec
