#include "exec/spmd/graph_rank.hpp"

#include <algorithm>

#include "core/spmd/graph/stage_parts.hpp"
#include "core/spmd/graph/step_calls.hpp"
#include "core/spmd/reshard_steps.hpp"
#include "exec/base/waiting.hpp"

namespace pipewright::exec::graphs {
namespace {

using spmd::ArrayPlace;
using spmd::TrainingArray;
using spmd::TrainingStep;

}  // namespace

RankOfGraph::RankOfGraph(const GraphJob& job, int rank, GroupsByRanks groups)
    : job_(job),
      graph_(job.graph),
      rank_(rank),
      groups_(timed(std::move(groups), parts_)),
      memory_(job.graph, job.steps) {
  const std::size_t micro_batches = job.schedule == nullptr ? 1 : job.schedule->micro_batches;
  arrays_.resize(job.steps.arrays.size() * micro_batches);
  if (job.schedule != nullptr) count_uses();
}

void RankOfGraph::train() {
  begin();
  for (step_ = 0; step_ < job_.training_steps; ++step_) {
    const std::int64_t begin = local::steady_ns();
    if (job_.schedule != nullptr) {
      walk_schedule();
    } else {
      walk_all();
    }
    step_ns_.push_back(local::steady_ns() - begin);
  }
}

void RankOfGraph::walk_all() {
  seed_gradient(1);
  for (std::size_t at = 0; at < job_.steps.steps.size(); ++at) {
    walk(job_.steps.steps[at]);
    for (const std::size_t array : job_.last_uses[at]) drop(array);
  }
  if (const auto& loss = lying(job_.steps.loss)) {
    losses_.push_back(static_cast<double>(loss->values.front()));
  }
}

void RankOfGraph::seed_gradient(float value) {
  if (LocalArray* loss = there(job_.steps.gradients[job_.steps.loss])) {
    std::fill_n(loss->values.begin(), 1, value);
  }
}

const std::optional<LocalArray>& RankOfGraph::lying(std::size_t tensor) const {
  return arrays_[slot(job_.steps.lying[tensor])];
}

RankOutcome RankOfGraph::outcome() const {
  RankOutcome outcome{.losses = losses_,
                      .step_ns = step_ns_,
                      .spans = {spans_, parts_.spans},
                      .memory = memory_.most(),
                      .bytes_read = bytes_read_,
                      .parameters = {},
                      .first_gradients = first_gradients_};
  for (std::size_t at = 0; at < graph_.tensors.size(); ++at) {
    const bool is_parameter = graph_.tensors[at].role == spmd::TensorRole::Parameter;
    if (is_parameter && job_.steps.gradients[at] && lying(at)) outcome.parameters[at] = *lying(at);
  }
  return outcome;
}

std::map<std::string, const LocalArray*> RankOfGraph::to_be_saved() const {
  std::map<std::string, const LocalArray*> all;
  for (std::size_t tensor = 0; tensor < graph_.tensors.size(); ++tensor) {
    const spmd::GraphTensor& one = graph_.tensors[tensor];
    if (one.role != spmd::TensorRole::Parameter || !lying(tensor)) continue;
    all[saved_name(kSavedValue, one.name)] = &*lying(tensor);
  }
  for (const auto& [parameter, states] : states_) {
    for (std::size_t at = 0; at < states.size(); ++at) {
      all[saved_name(spmd::states_of(graph_.optimizer.kind)[at], graph_.tensors[parameter].name)] =
          &states[at];
    }
  }
  return all;
}

spmd::Distribution RankOfGraph::distribution(const TrainingArray& array) const {
  return {graph_.meshes[array.mesh].mesh, array.layout};
}

std::optional<spmd::LocalPart> RankOfGraph::part_of(std::size_t at) const {
  const TrainingArray& array = job_.steps.arrays[at];
  const spmd::ProcessMesh& mesh = graph_.meshes[array.mesh].mesh;
  const auto found = std::find(mesh.ranks.begin(), mesh.ranks.end(), rank_);
  if (found == mesh.ranks.end()) return std::nullopt;
  return local_part({graph_.tensors[array.tensor].shape, array.layout}, mesh,
                    static_cast<std::size_t>(found - mesh.ranks.begin()));
}

void RankOfGraph::hold(std::size_t at, LocalArray array) {
  drop(at);
  memory_.hold(at, static_cast<std::int64_t>(array.values.size()));
  arrays_[slot(at)] = std::move(array);
}

void RankOfGraph::drop(std::size_t at) {
  std::optional<LocalArray>& held = arrays_[slot(at)];
  if (!held) return;
  memory_.drop(at, static_cast<std::int64_t>(held->values.size()));
  held.reset();
}

LocalArray* RankOfGraph::there(const ArrayPlace& at) {
  if (!at) return nullptr;
  std::optional<LocalArray>& held = arrays_[slot(*at)];
  if (!held) {
    const auto part = part_of(*at);
    if (!part) return nullptr;
    hold(*at, zeros_of(*part));
  }
  return &*held;
}

void RankOfGraph::begin() {
  for (std::size_t tensor = 0; tensor < graph_.tensors.size(); ++tensor) {
    for (micro_batch_ = 0; micro_batch_ < job_.first_values[tensor].size(); ++micro_batch_) {
      begin_with(tensor);
    }
  }
  micro_batch_ = 0;
  for (const TrainingStep& step : job_.steps.steps) {
    if (step.kind == TrainingStep::Kind::Update) begin_states(step);
  }
}

void RankOfGraph::begin_states(const TrainingStep& update) {
  const auto part = part_of(*update.inputs[0]);
  if (!part) return;
  const auto kind = graph_.optimizer.kind;
  PartStates& states = states_[update.at] = first_states(kind, *part);
  for (std::size_t at = 0; at < states.size(); ++at) {
    memory_.keep_states(static_cast<std::int64_t>(states[at].values.size()));
    load(spmd::states_of(kind)[at], update.at, states[at]);
  }
}

void RankOfGraph::load(std::string_view kind, std::size_t parameter, LocalArray& array) {
  if (job_.from == nullptr) return;
  const spmd::GraphTensor& tensor = graph_.tensors[parameter];
  array = job_.from->read(saved_name(kind, tensor.name), tensor.shape, array.part, bytes_read_);
}

void RankOfGraph::begin_with(std::size_t tensor) {
  const std::size_t at = job_.steps.lying[tensor];
  LocalArray* array = there(at);
  if (array == nullptr) return;
  const spmd::LocalPart whole{.offset = spmd::Shape(array->part.shape.size()),
                              .shape = graph_.tensors[tensor].shape};
  copy_box({whole, job_.first_values[tensor][micro_batch_]}, array->part, *array);
  const bool is_parameter = graph_.tensors[tensor].role == spmd::TensorRole::Parameter;
  if (is_parameter) load(kSavedValue, tensor, *array);
}

void RankOfGraph::walk(const TrainingStep& step) {
  if (step.kind == TrainingStep::Kind::Move) {
    move(step);
  } else if (step.kind == TrainingStep::Kind::Update) {
    update(step);
  } else {
    compute(step);
  }
}

void RankOfGraph::move(const TrainingStep& step) {
  const std::size_t from = *step.inputs[0], to = *step.outputs[0];
  const TrainingArray& before = job_.steps.arrays[from];
  static_cast<void>(there(from));
  auto made = moved(step.plan, graph_.tensors[before.tensor].shape, distribution(before), rank_,
                    groups_, arrays_[slot(from)]);
  if (made && part_of(to)) take(to, std::move(*made));
}

/// What goes into a gradient is added to it.
void RankOfGraph::take(std::size_t to, LocalArray made) {
  if (job_.steps.arrays[to].is_gradient) {
    copy_box(made, made.part, *there(to), true);
  } else {
    hold(to, std::move(made));
  }
}

void RankOfGraph::update(const TrainingStep& step) {
  LocalArray* value = there(step.inputs[0]);
  if (value == nullptr) return;
  const LocalArray* gradient = there(step.gradients[0]);
  if (step_ == 0) first_gradients_[step.at] = *gradient;
  const int done = job_.from == nullptr ? 0 : job_.from->step();
  update_part(graph_.optimizer, done + step_, *gradient, *value, states_[step.at]);
}

/// It ends where the operator begins to sum among processes: such calls are parts of their own.
template <class Compute>
void RankOfGraph::as_part(Compute compute) {
  if (!parts_.is_open) return compute();
  const std::size_t own = parts_.spans.size();
  parts_.spans.push_back({.begin_ns = local::steady_ns()});
  compute();
  const bool calls = parts_.spans.size() > own + 1;
  parts_.spans[own].end_ns = calls ? parts_.spans[own + 1].begin_ns : local::steady_ns();
}

void RankOfGraph::compute(const TrainingStep& step, ActionKind kind) {
  const spmd::GraphOperator& one = graph_.operators[step.at];
  const std::vector<int>& ranks = graph_.meshes[*one.annotation.mesh].mesh.ranks;
  if (std::find(ranks.begin(), ranks.end(), rank_) == ranks.end()) return;
  const LocalFunction* own = function_of(one, job_.functions);
  LocalCall call{.one = one};
  for (const std::vector<int>& group : groups_of_classes(graph_, one)) {
    const bool is_in = std::find(group.begin(), group.end(), rank_) != group.end();
    if (is_in) call.classes = groups_.at(group).get();
  }
  for (const ArrayPlace& at : step.outputs) call.outputs.push_back(there(at));
  for (const ArrayPlace& at : step.inputs) call.inputs.push_back(there(at));
  if (step.kind == TrainingStep::Kind::Forward) {
    for (LocalArray* output : call.outputs) {
      if (output != nullptr) std::fill(output->values.begin(), output->values.end(), 0.0F);
    }
    as_part([&] { own != nullptr ? own->forward(call) : local_operator(one).forward(call); });
    return;
  }
  std::vector<LocalArray> shares;  // of means
  shares.reserve(step.of_outputs.size());
  for (std::size_t place = 0; place < step.of_outputs.size(); ++place) {
    const LocalArray* given = there(step.of_outputs[place]);
    if (given != nullptr && step.shares[place] != 1) {
      shares.push_back(*given);
      for (float& value : shares.back().values) value *= static_cast<float>(step.shares[place]);
      given = &shares.back();
    }
    call.of_outputs.push_back(given);
  }
  Added added;  // of parameters, where a schedule says when
  added.reserve(step.gradients.size());
  const std::vector<bool> wanted = gradients_in(kind, graph_, job_.steps, step);
  for (std::size_t place = 0; place < wanted.size(); ++place) {
    const ArrayPlace& at = step.gradients[place];
    if (wanted[place] && job_.schedule != nullptr && is_parameter(*at)) {
      added.emplace_back(*at, zeros_of(*part_of(*at)));
      call.gradients.push_back(&added.back().second);
    } else {
      call.gradients.push_back(wanted[place] ? there(at) : nullptr);
    }
  }
  if (std::ranges::count(call.gradients, nullptr) == std::ssize(call.gradients)) return;
  as_part([&] { own != nullptr ? own->backward(call) : local_operator(one).backward(call); });
  if (!added.empty()) add_later(step, std::move(added));
}

}  // namespace pipewright::exec::graphs
