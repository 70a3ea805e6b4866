#include "core/spmd/graph/training_steps.hpp"

#include <algorithm>
#include <iterator>
#include <set>

#include "core/base/error.hpp"
#include "core/order/element_type.hpp"

namespace pipewright::spmd {
namespace {

using Kind = TrainingStep::Kind;

std::int64_t elements(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

void add_dims(const std::vector<std::optional<Layout>>& layouts, std::set<int>& dims) {
  for (const auto& layout : layouts) {
    if (!layout) continue;
    for (const auto& axis : layout->dims) dims.insert(axis.begin(), axis.end());
    for (const auto& [dim, reduction] : layout->partial) dims.insert(dim);
  }
}

/// Dimensions of the mesh along which processes compute different things.
std::set<int> dividing_dims(const GraphOperator& one) {
  std::set<int> dims;
  add_dims(one.annotation.inputs, dims);
  add_dims(one.annotation.outputs, dims);
  return dims;
}

class Lowering {
 public:
  Lowering(const OperatorGraph& completed, std::size_t loss, std::vector<std::size_t> order)
      : graph_(completed), order_(std::move(order)) {
    steps_.loss = loss;
    forms_.resize(graph_.tensors.size());
    contributions_.resize(graph_.tensors.size());
    steps_.gradients.resize(graph_.tensors.size());
  }

  TrainingSteps lowered() && {
    require_sharding(graph_.optimizer, graph_.meshes);
    count_uses();
    for (std::size_t at = 0; at < graph_.tensors.size(); ++at) add_lying(at);
    for (const std::size_t at : order_) forward(at);
    mark_wanted();
    for (std::size_t at = 0; at < forms_.size(); ++at) {
      if (is_gathered(at)) forms_[at] = {steps_.lying[at]};
    }
    contributions_[steps_.loss] = {
        new_array(steps_.loss, mesh_of(steps_.loss), layout_of(steps_.loss), true)};
    for (auto at = order_.rbegin(); at != order_.rend(); ++at) backward(*at);
    turn_.reset();
    for (std::size_t at = 0; at < graph_.tensors.size(); ++at) {
      if (graph_.tensors[at].role == TensorRole::Parameter) update(at);
    }
    return std::move(steps_);
  }

 private:
  std::size_t mesh_of(std::size_t tensor) const { return *graph_.tensors[tensor].annotation.mesh; }
  const Layout& layout_of(std::size_t tensor) const {
    return *graph_.tensors[tensor].annotation.layout;
  }
  const ProcessMesh& mesh(std::size_t at) const { return graph_.meshes[at].mesh; }

  /// How the states of a parameter are divided, where they are.
  std::optional<Layout> sharded(std::size_t tensor) const {
    const bool is_asked = graph_.optimizer.sharding_stage > 0;
    if (!is_asked || graph_.tensors[tensor].role != TensorRole::Parameter) return std::nullopt;
    return sharded_layout({graph_.tensors[tensor].shape, layout_of(tensor)}, mesh(mesh_of(tensor)),
                          graph_.optimizer.dim());
  }
  /// It lies divided, and is brought together before each use.
  bool is_gathered(std::size_t tensor) const {
    return graph_.optimizer.sharding_stage == 3 && sharded(tensor);
  }
  Layout gradient_layout(std::size_t tensor) const {
    const auto divided = graph_.optimizer.sharding_stage > 1 ? sharded(tensor) : std::nullopt;
    return divided.value_or(layout_of(tensor));
  }

  /// Operators that take each parameter.
  void count_uses() {
    uses_.resize(graph_.tensors.size());
    for (const GraphOperator& one : graph_.operators) {
      for (const std::size_t tensor : parameters_of(one)) ++uses_[tensor];
    }
  }
  std::set<std::size_t> parameters_of(const GraphOperator& one) const {
    std::set<std::size_t> parameters;
    for (const auto& tensor : tensors_of(one.inputs)) {
      if (tensor && graph_.tensors[*tensor].role == TensorRole::Parameter) {
        parameters.insert(*tensor);
      }
    }
    return parameters;
  }

  std::size_t new_array(std::size_t tensor, std::size_t mesh, Layout layout, bool is_gradient) {
    steps_.arrays.push_back({tensor, mesh, std::move(layout), is_gradient});
    return steps_.arrays.size() - 1;
  }

  ArrayPlace found(const std::vector<std::size_t>& arrays, std::size_t mesh,
                   const Layout& layout) const {
    for (const std::size_t at : arrays) {
      if (steps_.arrays[at].mesh == mesh && steps_.arrays[at].layout == layout) return at;
    }
    return std::nullopt;
  }

  void move(std::size_t from, std::size_t to) {
    const TrainingArray &before = steps_.arrays[from], &after = steps_.arrays[to];
    const GraphTensor& tensor = graph_.tensors[before.tensor];
    const ReshardPrices prices{.element_bytes = element_type(tensor.type)->bytes};
    TrainingStep step{
        .kind = Kind::Move, .at = before.tensor, .turn = turn_, .inputs = {from}, .outputs = {to}};
    step.plan = cheapest_reshard(tensor.shape, {mesh(before.mesh), before.layout},
                                 {mesh(after.mesh), after.layout}, prices);
    steps_.steps.push_back(std::move(step));
  }

  void add_lying(std::size_t tensor) {
    if (!layout_of(tensor).partial.empty()) {
      throw InputError("\"" + graph_.tensors[tensor].name +
                       "\" lies as partial values; a graph that is run has them summed: annotate "
                       "it without");
    }
    Layout lies = is_gathered(tensor) ? *sharded(tensor) : layout_of(tensor);
    steps_.lying.push_back(new_array(tensor, mesh_of(tensor), std::move(lies), false));
    forms_[tensor] = {steps_.lying.back()};
  }

  std::size_t taken(std::size_t tensor, std::size_t mesh, const Layout& layout) {
    if (const ArrayPlace at = found(forms_[tensor], mesh, layout)) return *at;
    const std::size_t form = new_array(tensor, mesh, layout, false);
    move(steps_.lying[tensor], form);
    forms_[tensor].push_back(form);
    return form;
  }

  void forward(std::size_t at) {
    const GraphOperator& one = graph_.operators[at];
    const auto inputs = tensors_of(one.inputs), outputs = tensors_of(one.outputs);
    turn_ = at;
    TrainingStep step{.kind = Kind::Forward, .at = at, .turn = at};
    for (std::size_t place = 0; place < inputs.size(); ++place) {
      step.inputs.emplace_back();
      if (!inputs[place]) continue;
      step.inputs.back() =
          taken(*inputs[place], *one.annotation.mesh, *one.annotation.inputs[place]);
    }
    std::vector<std::pair<std::size_t, std::size_t>> moves;
    for (std::size_t place = 0; place < outputs.size(); ++place) {
      step.outputs.emplace_back();
      if (!outputs[place]) continue;
      const std::size_t lies = steps_.lying[*outputs[place]];
      const Layout& made = *one.annotation.outputs[place];
      step.outputs.back() = lies;
      if (found({lies}, *one.annotation.mesh, made)) continue;
      step.outputs.back() = new_array(*outputs[place], *one.annotation.mesh, made, false);
      moves.emplace_back(*step.outputs.back(), lies);
    }
    steps_.steps.push_back(std::move(step));
    for (const auto& [made, lies] : moves) move(made, lies);
  }

  /// Tensors that depend on a parameter, but for whole numbers.
  void mark_wanted() {
    wanted_.resize(graph_.tensors.size());
    for (std::size_t at = 0; at < wanted_.size(); ++at) {
      wanted_[at] = graph_.tensors[at].role == TensorRole::Parameter;
    }
    for (const std::size_t at : order_) {
      const auto inputs = tensors_of(graph_.operators[at].inputs);
      const bool any = std::any_of(inputs.begin(), inputs.end(),
                                   [&](const auto& tensor) { return tensor && wanted_[*tensor]; });
      for (const auto& tensor : tensors_of(graph_.operators[at].outputs)) {
        if (tensor) wanted_[*tensor] = any && is_of_fractions(graph_.tensors[*tensor]);
      }
    }
    if (!wanted_[steps_.loss]) {
      throw InputError("\"" + graph_.tensors[steps_.loss].name +
                       "\" depends on no tensor with \"role\": \"parameter\": nothing is trained");
    }
  }

  /// All contributions brought to how the tensor lies; none where there are none.
  ArrayPlace settled(std::size_t tensor) {
    const std::vector<std::size_t>& all = contributions_[tensor];
    if (all.empty()) return std::nullopt;
    const Layout layout = gradient_layout(tensor);
    ArrayPlace target = found(all, mesh_of(tensor), layout);
    if (!target) target = new_array(tensor, mesh_of(tensor), layout, true);
    for (const std::size_t one : all) {
      if (one != *target) move(one, *target);
    }
    steps_.gradients[tensor] = target;
    return target;
  }

  /// The gradient of a sum of parts is each part's; of their mean, its share.
  double share_of(const GraphOperator& one, std::size_t tensor, const Layout& made) const {
    double share = 1;
    for (const auto& [dim, reduction] : made.partial) {
      if (reduction == Reduction::Average) {
        share /= mesh(*one.annotation.mesh).size(dim);
      } else if (reduction != Reduction::Sum) {
        throw InputError("operator \"" + one.name + "\" (" + one.rule + "): it makes \"" +
                         graph_.tensors[tensor].name + "\" as P(" +
                         std::string(name_of(reduction)) +
                         "), whose gradient is not known here; annotate its input without a "
                         "division there");
      }
    }
    return share;
  }

  ArrayPlace gradient_as_made(const GraphOperator& one, std::size_t tensor, const Layout& made) {
    const ArrayPlace lies = settled(tensor);
    if (!lies) return std::nullopt;
    const Layout needed{.dims = made.dims, .partial = {}};
    if (found({*lies}, *one.annotation.mesh, needed)) return lies;
    const std::size_t at = new_array(tensor, *one.annotation.mesh, needed, true);
    move(*lies, at);
    return at;
  }

  /// What later operators have added up on other meshes, so that it is first, as on one mesh.
  void bring_home(std::size_t tensor) {
    auto& all = contributions_[tensor];
    const auto is_elsewhere = [&](std::size_t at) {
      return !(mesh(steps_.arrays[at].mesh) == mesh(mesh_of(tensor)));
    };
    std::vector<std::size_t> elsewhere;
    std::ranges::copy_if(all, std::back_inserter(elsewhere), is_elsewhere);
    if (elsewhere.empty()) return;
    std::erase_if(all, is_elsewhere);
    ArrayPlace target = found(all, mesh_of(tensor), layout_of(tensor));
    if (!target) {
      target = new_array(tensor, mesh_of(tensor), layout_of(tensor), true);
      all.push_back(*target);
    }
    for (const std::size_t one : elsewhere) move(one, *target);
  }

  std::size_t contribution(const GraphOperator& one, std::size_t tensor, const Layout& as_taken) {
    Layout layout{.dims = as_taken.dims, .partial = {}};
    std::set<int> own;
    add_dims({as_taken}, own);
    for (const int dim : dividing_dims(one)) {
      if (own.count(dim) == 0) layout.partial[dim] = Reduction::Sum;
    }
    auto& all = contributions_[tensor];
    const bool is_at_home = mesh(*one.annotation.mesh) == mesh(mesh_of(tensor));
    if (is_at_home && graph_.tensors[tensor].role != TensorRole::Parameter) bring_home(tensor);
    if (const ArrayPlace at = found(all, *one.annotation.mesh, layout)) return *at;
    all.push_back(new_array(tensor, *one.annotation.mesh, std::move(layout), true));
    return all.back();
  }

  void backward(std::size_t at) {
    turn_ = at;
    differentiate(at);
    // What a parameter gets moves once its last contribution is there.
    for (const std::size_t parameter : parameters_of(graph_.operators[at])) {
      if (--uses_[parameter] == 0) settled(parameter);
    }
  }

  void differentiate(std::size_t at) {
    const GraphOperator& one = graph_.operators[at];
    const auto inputs = tensors_of(one.inputs), outputs = tensors_of(one.outputs);
    const auto forward = std::find_if(steps_.steps.begin(), steps_.steps.end(), [&](auto& step) {
      return step.kind == Kind::Forward && step.at == at;
    });
    TrainingStep step{.kind = Kind::Backward,
                      .at = at,
                      .turn = at,
                      .inputs = forward->inputs,
                      .outputs = forward->outputs};
    bool any = false;
    for (std::size_t place = 0; place < outputs.size(); ++place) {
      step.of_outputs.emplace_back();
      step.shares.push_back(1);
      if (!outputs[place] || !wanted_[*outputs[place]]) continue;
      const Layout& made = *one.annotation.outputs[place];
      step.of_outputs.back() = gradient_as_made(one, *outputs[place], made);
      if (!step.of_outputs.back()) continue;
      step.shares.back() = share_of(one, *outputs[place], made);
      any = true;
    }
    if (!any) return;
    for (std::size_t place = 0; place < inputs.size(); ++place) {
      step.gradients.emplace_back();
      if (!inputs[place] || !wanted_[*inputs[place]]) continue;
      if (is_gathered(*inputs[place])) {
        step.inputs[place] =
            taken(*inputs[place], *one.annotation.mesh, *one.annotation.inputs[place]);
      }
      step.gradients.back() = contribution(one, *inputs[place], *one.annotation.inputs[place]);
    }
    steps_.steps.push_back(std::move(step));
  }

  /// Of a parameter that lies whole while its states are divided each process updates its part.
  void update(std::size_t parameter) {
    if (!steps_.gradients[parameter]) return;
    std::size_t value = steps_.lying[parameter], gradient = *steps_.gradients[parameter];
    const auto divided = sharded(parameter);
    const bool is_part = divided && !is_gathered(parameter);
    if (is_part) {
      value = part_of(value, *divided);
      if (steps_.arrays[gradient].layout != *divided) gradient = part_of(gradient, *divided);
    }
    steps_.steps.push_back(
        {.kind = Kind::Update, .at = parameter, .inputs = {value}, .gradients = {gradient}});
    if (is_part) move(value, steps_.lying[parameter]);
  }

  std::size_t part_of(std::size_t array, const Layout& layout) {
    const TrainingArray whole = steps_.arrays[array];
    const std::size_t part = new_array(whole.tensor, whole.mesh, layout, whole.is_gradient);
    move(array, part);
    return part;
  }

  const OperatorGraph& graph_;
  std::vector<std::size_t> order_;
  std::optional<std::size_t> turn_;  // whose it is
  std::vector<int> uses_;            // by tensor, as the next three: still to be differentiated
  std::vector<bool> wanted_;
  std::vector<std::vector<std::size_t>> forms_;          // as it lies and as it is taken
  std::vector<std::vector<std::size_t>> contributions_;  // to its gradient, one for each layout
  TrainingSteps steps_;
};

}  // namespace

std::size_t loss_of(const OperatorGraph& graph, const std::optional<std::string>& name) {
  std::vector<bool> is_taken(graph.tensors.size());
  for (const GraphOperator& one : graph.operators) {
    for (const auto& tensor : tensors_of(one.inputs)) {
      if (tensor) is_taken[*tensor] = true;
    }
  }
  std::vector<std::size_t> found;
  std::string candidates;
  for (std::size_t at = 0; at < graph.tensors.size(); ++at) {
    const GraphTensor& tensor = graph.tensors[at];
    const bool is_it = name ? tensor.name == *name : !is_taken[at] && elements(tensor.shape) == 1;
    if (!is_it) continue;
    found.push_back(at);
    candidates += (candidates.empty() ? "\"" : ", \"") + tensor.name + "\"";
  }
  if (name && found.empty()) throw InputError("no tensor is called \"" + *name + "\"");
  if (found.empty()) {
    throw InputError(
        "no tensor has one element and is taken by no operator: name the loss with --loss");
  }
  if (found.size() > 1) {
    throw InputError("each of " + candidates + " may be the loss: name it with --loss");
  }
  if (elements(graph.tensors[found.front()].shape) != 1) {
    throw InputError("the loss \"" + graph.tensors[found.front()].name + "\" has " +
                     std::to_string(elements(graph.tensors[found.front()].shape)) +
                     " elements, expected one: take its mean first");
  }
  return found.front();
}

TrainingSteps training_steps(const OperatorGraph& completed, std::size_t loss) {
  return training_steps(completed, loss, ordered_operators(completed));
}

TrainingSteps training_steps(const OperatorGraph& completed, std::size_t loss,
                             std::vector<std::size_t> order) {
  return Lowering(completed, loss, std::move(order)).lowered();
}

std::vector<std::size_t> arrays_of(const TrainingStep& step) {
  std::vector<std::size_t> arrays;
  for (const auto* places : {&step.inputs, &step.outputs, &step.of_outputs, &step.gradients}) {
    for (const ArrayPlace& place : *places) {
      if (place) arrays.push_back(*place);
    }
  }
  return arrays;
}

std::int64_t bytes_of(const TrainingSteps& steps) {
  std::int64_t bytes = 0;
  for (const TrainingStep& step : steps.steps) bytes += step.plan.bytes;
  return bytes;
}

}  // namespace pipewright::spmd
