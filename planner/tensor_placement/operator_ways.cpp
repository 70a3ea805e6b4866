#include "planner/tensor_placement/operator_ways.hpp"

#include <algorithm>
#include <functional>

#include "core/base/error.hpp"
#include "core/spmd/graph/rule_answers.hpp"

namespace pipewright::planner::tensor_placement {
namespace {

using Tensors = std::vector<std::optional<std::size_t>>;

/// Calls `act(choice)` with a number from 0 to `most` for each mesh dimension; 0, which divides
/// nothing, alone where the mesh has one process.
void for_each_choice(const spmd::ProcessMesh& mesh, std::size_t most,
                     const std::function<void(const std::vector<std::size_t>&)>& act) {
  std::vector<std::size_t> choice(mesh.shape.size());
  while (true) {
    act(choice);
    std::size_t dim = 0;
    while (dim < choice.size() && (mesh.shape[dim] == 1 || ++choice[dim] > most)) {
      choice[dim++] = 0;
    }
    if (dim == choice.size()) return;
  }
}

std::int64_t pieces(const std::vector<int>& dims, const spmd::ProcessMesh& mesh) {
  std::int64_t count = 1;
  for (const int dim : dims) count *= mesh.size(dim);
  return count;
}

bool has_elements_for_all(const spmd::Shape& shape, const spmd::Layout& layout,
                          const spmd::ProcessMesh& mesh) {
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    const std::int64_t parts = pieces(layout.dims[axis], mesh);
    const std::int64_t length = (shape[axis] + parts - 1) / parts;
    if (length * (parts - 1) >= shape[axis] && parts > 1) return false;
  }
  return true;
}

class Ways {
 public:
  Ways(const spmd::OperatorGraph& graph, std::size_t at, const std::vector<bool>& gradients,
       const MeshPrices& prices)
      : graph_(graph),
        at_(at),
        one_(graph.operators[at]),
        prices_(prices),
        inputs_(tensors_of(one_.inputs)),
        outputs_(tensors_of(one_.outputs)) {
    for (const auto& tensor : inputs_) asked_.push_back(tensor && gradients[*tensor]);
  }

  std::vector<OperatorWay> all(const spmd::GraphOperator& completed) && {
    const spmd::Equation equation = equation_of(
        call_of(graph_, one_, spmd::Direction::Forward, prices_.mesh(),
                whole_layouts(graph_, one_.inputs), whole_layouts(graph_, one_.outputs)));
    const std::string letters = divisible(equation);
    for_each_choice(prices_.mesh(), letters.size(), [&](const auto& choice) {
      std::vector<spmd::Layout> layouts = whole_layouts(graph_, one_.inputs);
      for (std::size_t dim = 0; dim < choice.size(); ++dim) {
        if (choice[dim] != 0) {
          divide(layouts, equation, letters[choice[dim] - 1], static_cast<int>(dim));
        }
      }
      offer(std::move(layouts));
    });
    add_completed(completed);
    return std::move(ways_);
  }

 private:
  std::string divisible(const spmd::Equation& equation) const {
    std::string letters;
    for (std::size_t place = 0; place < inputs_.size(); ++place) {
      if (!inputs_[place]) continue;
      for (const char letter : equation.inputs[place]) {
        const bool stays = letter == spmd::kUndivided || letter == spmd::kSizeOne ||
                           equation.whole.find(letter) != std::string::npos;
        if (!stays && letters.find(letter) == std::string::npos) letters += letter;
      }
    }
    return letters;
  }

  void divide(std::vector<spmd::Layout>& layouts, const spmd::Equation& equation, char letter,
              int dim) const {
    for (std::size_t place = 0; place < inputs_.size(); ++place) {
      if (!inputs_[place]) continue;
      const std::string& notation = equation.inputs[place];
      for (std::size_t axis = 0; axis < notation.size(); ++axis) {
        if (notation[axis] == letter) layouts[place].dims[axis].push_back(dim);
      }
    }
  }

  bool is_as_annotated(const std::vector<std::optional<spmd::Layout>>& annotated,
                       const std::vector<spmd::Layout>& layouts) const {
    for (std::size_t place = 0; place < annotated.size(); ++place) {
      if (annotated[place] && *annotated[place] != layouts[place]) return false;
    }
    return true;
  }

  bool fits(const Tensors& tensors, const std::vector<spmd::Layout>& layouts) const {
    for (std::size_t place = 0; place < tensors.size(); ++place) {
      if (tensors[place] && !has_elements_for_all(graph_.tensors[*tensors[place]].shape,
                                                  layouts[place], prices_.mesh())) {
        return false;
      }
    }
    return true;
  }

  void offer(std::vector<spmd::Layout> layouts) {
    if (!is_as_annotated(one_.annotation.inputs, layouts) || !fits(inputs_, layouts)) return;
    spmd::Inference inference;
    try {
      inference = infer(call_of(graph_, one_, spmd::Direction::Forward, prices_.mesh(), layouts,
                                whole_layouts(graph_, one_.outputs)));
    } catch (const InputError&) {  // the rule cannot compute so
      return;
    }
    for (std::size_t place = 0; place < layouts.size(); ++place) {
      if (inputs_[place] && inference.inputs[place].layout != layouts[place]) return;
    }
    std::vector<spmd::Layout> made;
    for (std::size_t place = 0; place < outputs_.size(); ++place) {
      made.push_back(inference.outputs[place].layout);
    }
    if (!is_as_annotated(one_.annotation.outputs, made) || !fits(outputs_, made)) return;
    add(std::move(layouts), std::move(made));
  }

  void add_completed(const spmd::GraphOperator& completed) {
    const auto all = [](const auto& annotated) {
      std::vector<spmd::Layout> layouts;
      for (const auto& layout : annotated) layouts.push_back(layout.value_or(spmd::Layout{}));
      return layouts;
    };
    std::vector<spmd::Layout> inputs = all(completed.annotation.inputs);
    std::vector<spmd::Layout> outputs = all(completed.annotation.outputs);
    const bool is_known = std::any_of(ways_.begin(), ways_.end(), [&](const OperatorWay& way) {
      return way.inputs == inputs && way.outputs == outputs;
    });
    if (!is_known) add(std::move(inputs), std::move(outputs));
  }

  void add(std::vector<spmd::Layout> inputs, std::vector<spmd::Layout> outputs) {
    OperatorWay way{.inputs = std::move(inputs), .outputs = std::move(outputs)};
    unsigned used = 0;
    for (const auto* layouts : {&way.inputs, &way.outputs}) {
      for (const spmd::Layout& layout : *layouts) used |= dividing(layout) | partial(layout);
    }
    for (const spmd::Layout& input : way.inputs) {
      way.partial_gradients.push_back(used & ~dividing(input));
    }
    way.ns = work_of(graph_, at_, way.inputs, way.outputs, asked_, prices_);
    ways_.push_back(std::move(way));
  }

  static unsigned dividing(const spmd::Layout& layout) {
    unsigned bits = 0;
    for (const std::vector<int>& dims : layout.dims) {
      for (const int dim : dims) bits |= 1U << dim;
    }
    return bits;
  }

  static unsigned partial(const spmd::Layout& layout) {
    unsigned bits = 0;
    for (const auto& [dim, reduction] : layout.partial) bits |= 1U << dim;
    return bits;
  }

  const spmd::OperatorGraph& graph_;
  std::size_t at_;
  const spmd::GraphOperator& one_;
  const MeshPrices& prices_;
  Tensors inputs_, outputs_;
  std::vector<bool> asked_;
  std::vector<OperatorWay> ways_;
};

}  // namespace

std::vector<bool> gradients_asked_for(const spmd::OperatorGraph& graph,
                                      const std::vector<std::size_t>& order) {
  std::vector<bool> asked;
  for (const spmd::GraphTensor& tensor : graph.tensors) {
    asked.push_back(tensor.role != spmd::TensorRole::Constant && is_of_fractions(tensor));
  }
  for (const std::size_t at : order) {
    const Tensors inputs = tensors_of(graph.operators[at].inputs);
    const bool any = std::any_of(inputs.begin(), inputs.end(),
                                 [&](const auto& tensor) { return tensor && asked[*tensor]; });
    for (const auto& tensor : tensors_of(graph.operators[at].outputs)) {
      if (tensor && !any) asked[*tensor] = false;
    }
  }
  return asked;
}

std::vector<OperatorWay> ways_of(const spmd::OperatorGraph& graph, std::size_t at,
                                 const spmd::GraphOperator& completed,
                                 const std::vector<bool>& gradients, const MeshPrices& prices) {
  return Ways(graph, at, gradients, prices).all(completed);
}

std::vector<spmd::Layout> whole_and_divided(const spmd::Shape& shape,
                                            const spmd::ProcessMesh& mesh) {
  std::vector<spmd::Layout> layouts;
  for_each_choice(mesh, shape.size(), [&](const auto& choice) {
    spmd::Layout layout = spmd::Layout::replicated(shape.size());
    for (std::size_t dim = 0; dim < choice.size(); ++dim) {
      if (choice[dim] != 0) layout.dims[choice[dim] - 1].push_back(static_cast<int>(dim));
    }
    if (has_elements_for_all(shape, layout, mesh)) layouts.push_back(std::move(layout));
  });
  return layouts;
}

}  // namespace pipewright::planner::tensor_placement
