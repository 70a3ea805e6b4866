// A rank whose stages compute micro-batches in the order of a schedule. What belongs to a
// micro-batch has an array for each; parameters, and the sums of their gradients, have one.
#include <algorithm>

#include "exec/base/waiting.hpp"
#include "exec/spmd/graph_rank.hpp"

namespace pipewright::exec::graphs {
namespace {

using spmd::PipelineSteps;
using spmd::TrainingStep;

bool is_on(const spmd::ProcessMesh& mesh, int rank) {
  return std::ranges::count(mesh.ranks, rank) > 0;
}

spmd::ReshardPlan steps_of(const spmd::ReshardPlan& plan, std::size_t begin, std::size_t end) {
  const auto at = [&](std::size_t place) {
    return plan.steps.begin() + static_cast<std::ptrdiff_t>(place);
  };
  return {.steps = {at(begin), at(end)}};
}

/// An action ends when its first message leaves.
void end_once(ActionSpan& span) {
  if (span.end_ns == 0) span.end_ns = local::steady_ns();
}

}  // namespace

std::size_t RankOfGraph::slot(std::size_t array) const {
  if (is_parameter(array)) return array;
  return array + micro_batch_ * job_.steps.arrays.size();
}

bool RankOfGraph::is_parameter(std::size_t array) const {
  const std::size_t tensor = job_.steps.arrays[array].tensor;
  return graph_.tensors[tensor].role == spmd::TensorRole::Parameter;
}

/// Beyond the step: what tensors that no operator makes begin with.
bool RankOfGraph::stays(std::size_t array) const {
  const std::size_t tensor = job_.steps.arrays[array].tensor;
  return job_.steps.lying[tensor] == array && !job_.first_values[tensor].empty();
}

/// By array how many steps of this rank's stages use it for one micro-batch. Which of them comes
/// last depends on the schedule.
void RankOfGraph::count_uses() {
  uses_.assign(job_.steps.arrays.size(), 0);
  const auto& stages = job_.schedule->stages;
  loss_stage_ = stages.of_operators[*producers_of(graph_)[job_.steps.loss]];
  for (const auto& list : job_.schedule->lists) {
    splits_ = splits_ || std::ranges::count(list, ActionKind::W, &Action::kind) > 0;
  }
  const auto is_here = [&](std::size_t stage) {
    return is_on(graph_.meshes[stages.meshes[stages.rank_of(stage)]].mesh, rank_);
  };
  for (std::size_t stage = 0; stage < stages.count(); ++stage) {
    if (!is_here(stage)) continue;
    for (const auto* list : {&job_.pipeline->forward[stage], &job_.pipeline->backward[stage]}) {
      for (const std::size_t at : *list) {
        const TrainingStep& step = job_.steps.steps[at];
        const bool arrives = job_.pipeline->message_of_step[at] != PipelineSteps::kNoMessage;
        if (arrives) {
          ++uses_[*step.outputs[0]];
        } else {
          const bool is_twice = splits_ && step.kind == TrainingStep::Kind::Backward;
          for (const std::size_t array : arrays_of(step)) uses_[array] += is_twice ? 2 : 1;
        }
      }
    }
  }
  for (const spmd::StageMessage& one : job_.pipeline->messages) {
    if (is_here(one.from)) ++uses_[*job_.steps.steps[one.step].inputs[0]];
  }
}

void RankOfGraph::walk_schedule() {
  const std::size_t arrays = job_.steps.arrays.size(), count = job_.schedule->micro_batches;
  uses_left_.clear();
  for (std::size_t one = 0; one < count; ++one) {
    uses_left_.insert(uses_left_.end(), uses_.begin(), uses_.end());
  }
  micro_batch_losses_.assign(count, 0);
  next_added_.assign(job_.schedule->stages.count(), 0);
  for (const std::size_t at : job_.pipeline->before) walk(job_.steps.steps[at]);
  for (micro_batch_ = 0; micro_batch_ < count; ++micro_batch_) {
    for (const std::size_t at : job_.pipeline->data) walk(job_.steps.steps[at]);
  }
  const auto& stages = job_.schedule->stages;
  spans_.clear();
  parts_.spans.clear();
  for (std::size_t rank = 0; rank < stages.meshes.size(); ++rank) {
    if (!is_on(graph_.meshes[stages.meshes[rank]].mesh, rank_)) continue;
    for (const Action& action : job_.schedule->lists[rank]) act(action);
  }
  micro_batch_ = 0;
  spans_.push_back({.begin_ns = local::steady_ns()});
  for (const std::size_t at : job_.pipeline->after) walk(job_.steps.steps[at]);
  spans_.back().end_ns = local::steady_ns();
  if (part_of(job_.steps.lying[job_.steps.loss])) {
    double sum = 0;
    for (const double loss : micro_batch_losses_) sum += loss;
    losses_.push_back(sum / static_cast<double>(count));
  }
  for (micro_batch_ = 0; micro_batch_ < count; ++micro_batch_) {
    for (std::size_t array = 0; array < arrays; ++array) {
      if (!stays(array)) drop(array);
    }
  }
  micro_batch_ = 0;
}

void RankOfGraph::act(const Action& action) {
  micro_batch_ = static_cast<std::size_t>(action.micro_batch.value);
  const auto stage = static_cast<std::size_t>(action.stage.value);
  spans_.push_back({.begin_ns = local::steady_ns()});
  has_computed_ = false;
  parts_.is_open = true;
  if (action.kind == ActionKind::F) {
    go_forward(stage);
  } else {
    go_back(stage, action.kind);
  }
  parts_.is_open = false;
  end_once(spans_.back());
}

void RankOfGraph::go_forward(std::size_t stage) {
  for (const std::size_t at : job_.pipeline->forward[stage]) take_step(at, ActionKind::F);
  send(stage, false);
  if (stage != loss_stage_) return;
  micro_batch_losses_[micro_batch_] = static_cast<double>(lying(job_.steps.loss)->values.front());
}

void RankOfGraph::go_back(std::size_t stage, ActionKind kind) {
  if (stage == loss_stage_ && kind != ActionKind::W) {
    seed_gradient(1.0F / static_cast<float>(job_.schedule->micro_batches));
  }
  for (const std::size_t at : job_.pipeline->backward[stage]) take_step(at, kind);
  if (kind != ActionKind::W) send(stage, true);
  if (kind != ActionKind::I) end_backward(stage);
}

void RankOfGraph::add_later(const TrainingStep& step, Added added) {
  const std::size_t stage = job_.schedule->stages.of_operators[step.at];
  Added& all = added_[{stage, micro_batch_}];
  for (auto& one : added) {
    memory_.hold(one.first, std::ssize(one.second.values));
    all.push_back(std::move(one));
  }
}

void RankOfGraph::end_backward(std::size_t stage) {
  added_[{stage, micro_batch_}];  // there, though it may have no parameter
  for (auto found = added_.find({stage, next_added_[stage]}); found != added_.end();
       found = added_.find({stage, ++next_added_[stage]})) {
    for (auto& [array, values] : found->second) {
      copy_box(values, values.part, *there(array), true);
      memory_.drop(array, std::ssize(values.values));
    }
    added_.erase(found);
  }
}

void RankOfGraph::take_step(std::size_t at, ActionKind kind) {
  const TrainingStep& step = job_.steps.steps[at];
  const std::size_t message = job_.pipeline->message_of_step[at];
  if (step.kind == TrainingStep::Kind::Move) {
    if (kind == ActionKind::W) return;
    if (message != PipelineSteps::kNoMessage) {
      receive(job_.pipeline->messages[message]);
      release(*step.outputs[0]);
      return;
    }
    // What a parameter is brought to for use stays for the other micro-batches, and is no part.
    const bool is_once = is_parameter(*step.outputs[0]);
    parts_.is_open = !is_once;
    if (!is_once || !arrays_[*step.outputs[0]]) move(step);
    parts_.is_open = true;
  } else {
    has_computed_ = true;
    compute(step, kind);
  }
  const bool is_both =
      splits_ && step.kind == TrainingStep::Kind::Backward && kind == ActionKind::B;
  for (const std::size_t array : arrays_of(step)) {
    release(array);
    if (is_both) release(array);
  }
}

void RankOfGraph::release(std::size_t array) {
  if (is_parameter(array) || stays(array) || array == job_.steps.lying[job_.steps.loss]) return;
  if (--uses_left_[slot(array)] == 0) drop(array);
}

void RankOfGraph::send(std::size_t stage, bool is_gradient) {
  for (std::size_t number = 0; number < job_.pipeline->messages.size(); ++number) {
    const spmd::StageMessage& one = job_.pipeline->messages[number];
    if (one.from != stage || one.is_gradient != is_gradient) continue;
    const TrainingStep& step = job_.steps.steps[one.step];
    const std::size_t from = *step.inputs[0];
    static_cast<void>(there(from));
    const auto sent =
        moved(steps_of(step.plan, 0, one.first), graph_.tensors[step.at].shape,
              distribution(job_.steps.arrays[from]), rank_, groups_, arrays_[slot(from)]);
    end_once(spans_.back());
    for (const spmd::PartTransfer& part : step.plan.steps[one.first].transfers) {
      if (part.from != rank_) continue;
      std::vector<float> values(sized(spmd::elements_of(part.part)));
      pack_box(*sent, part.part, values.data());
      job_.mail->post(part.to, {number, micro_batch_, rank_}, std::move(values));
    }
    release(from);
  }
}

void RankOfGraph::receive(const spmd::StageMessage& message) {
  const TrainingStep& step = job_.steps.steps[message.step];
  const spmd::Shape& shape = graph_.tensors[step.at].shape;
  const spmd::ReshardStep& exchange = step.plan.steps[message.first];
  const auto& ranks = exchange.after.mesh.ranks;
  const auto place = static_cast<std::size_t>(std::ranges::find(ranks, rank_) - ranks.begin());
  const auto number = static_cast<std::size_t>(&message - job_.pipeline->messages.data());
  std::optional<LocalArray> made =
      zeros_of(local_part({shape, exchange.after.layout}, exchange.after.mesh, place));
  for (const spmd::PartTransfer& part : exchange.transfers) {
    if (part.to != rank_) continue;
    const auto values = job_.mail->take(rank_, {number, micro_batch_, part.from});
    unpack_box(values.data(), part.part, *made);
  }
  if (!has_computed_) spans_.back().begin_ns = local::steady_ns();
  made = moved(steps_of(step.plan, message.first + 1, step.plan.steps.size()), shape,
               exchange.after, rank_, groups_, std::move(made));
  take(*step.outputs[0], std::move(*made));
}

}  // namespace pipewright::exec::graphs
