#include "tests/property/spmd/random_graph.hpp"

#include <algorithm>

#include "core/base/error.hpp"

namespace pipewright::spmd::test {

ProcessMesh mesh_at(std::vector<int> shape, int first) {
  ProcessMesh mesh = ProcessMesh::of_shape(std::move(shape));
  for (int& rank : mesh.ranks) rank += first;
  return mesh;
}

namespace {

using pipewright::test::Draw;
using Integers = std::vector<std::int64_t>;

std::vector<NamedMesh> random_meshes(Draw& draw) {
  switch (draw.below(7)) {
    case 0:
      return {{"m", mesh_at({2}, 0)}};
    case 1:
      return {{"m", mesh_at({4}, 0)}};
    case 2:
      return {{"m", mesh_at({2, 2}, 0)}};
    case 3:
      return {{"m", mesh_at({2, 3}, 0)}};
    case 4:
      return {{"m", mesh_at({2, 2}, 0)}, {"n", mesh_at({2, 2}, 4)}};
    case 5:
      return {{"m", mesh_at({4}, 0)}, {"n", mesh_at({2, 2}, 2)}};
    default:
      return {{"m", mesh_at({3}, 0)}, {"n", mesh_at({2}, 3)}};
  }
}

Layout random_layout(Draw& draw, const ProcessMesh& mesh, std::size_t tensor_dims) {
  Layout layout = Layout::replicated(tensor_dims);
  for (int dim = 0; dim < mesh.dims(); ++dim) {
    const int axis = draw.below(static_cast<int>(tensor_dims) + 1);
    if (axis < static_cast<int>(tensor_dims)) {
      layout.dims[static_cast<std::size_t>(axis)].push_back(dim);
    }
  }
  return layout;
}

/// What an operator of operator_cases() computes, which is more than these shapes.
std::function<std::vector<Array>(const Computation&)> compute_of(const std::string& rule,
                                                                 bool transposed = false) {
  static const std::vector<OperatorCase> cases = operator_cases();
  for (const OperatorCase& one : cases) {
    const bool has_attributes = !one.attributes.empty();
    if (one.name == rule && (rule != "matmul" || has_attributes == transposed)) return one.compute;
  }
  throw std::logic_error("no operator " + rule);
}

class GraphDraw {
 public:
  explicit GraphDraw(Draw& draw) : draw_(draw) { result_.graph.meshes = random_meshes(draw); }

  RandomGraph graph() && {
    for (int left = 1 + draw_.below(3); left > 0; --left) new_tensor({size(), size()});
    while (result_.graph.operators.empty()) {
      for (int left = 1 + draw_.below(8); left > 0; --left) add_operator();
    }
    annotate_tensors();
    annotate_operators();
    return std::move(result_);
  }

 private:
  std::int64_t size() { return draw_.one_of(2, 4, 6, 5, 4); }

  std::size_t new_tensor(Shape shape) {
    const std::size_t at = result_.graph.tensors.size();
    result_.graph.tensors.push_back({.name = "t" + std::to_string(at),
                                     .shape = std::move(shape),
                                     .type = "float32",
                                     .annotation = {}});
    return at;
  }

  const Shape& shape_of(std::size_t at) const { return result_.graph.tensors[at].shape; }

  /// One of the tensors so far that has as many dimensions, and in the last of them this size
  /// (0: any); a new one if there is none, or sometimes.
  std::size_t some_tensor(std::size_t dims, std::int64_t last = 0, std::int64_t first = 0) {
    std::vector<std::size_t> fit;
    for (std::size_t at = 0; at < result_.graph.tensors.size(); ++at) {
      const Shape& shape = shape_of(at);
      if (shape.size() == dims && (last == 0 || shape.back() == last) &&
          (first == 0 || shape.front() == first)) {
        fit.push_back(at);
      }
    }
    if (!fit.empty() && draw_.below(4) > 0) {
      return fit[static_cast<std::size_t>(draw_.below(static_cast<int>(fit.size())))];
    }
    Shape shape;
    for (std::size_t dim = 0; dim < dims; ++dim) shape.push_back(size());
    if (last != 0) shape.back() = last;
    if (first != 0) shape.front() = first;
    return new_tensor(std::move(shape));
  }

  void add(const std::string& rule, const std::vector<std::size_t>& inputs,
           const std::vector<Shape>& outputs, std::vector<Attribute> attributes = {},
           bool inputs_are_a_list = false, bool outputs_are_a_list = false) {
    const auto arguments = [](const std::vector<std::size_t>& tensors, bool as_list) {
      std::vector<GraphArgument> list;
      if (as_list) list.push_back({.tensors = {}, .is_list = true});
      for (const std::size_t tensor : tensors) {
        if (!as_list) list.emplace_back();
        list.back().tensors.emplace_back(tensor);
      }
      return list;
    };
    std::vector<std::size_t> made;
    for (const Shape& shape : outputs) made.push_back(new_tensor(shape));
    const bool transposed = rule == "matmul" && !attributes.empty();
    result_.compute.push_back(compute_of(rule, transposed));
    result_.graph.operators.push_back({.name = "o" + std::to_string(draw_.below(1000)) + "." +
                                               std::to_string(result_.graph.operators.size()),
                                       .rule = rule,
                                       .inputs = arguments(inputs, inputs_are_a_list),
                                       .outputs = arguments(made, outputs_are_a_list),
                                       .attributes = std::move(attributes)});
  }

  void add_operator() {
    const std::size_t x = some_tensor(2);
    const std::int64_t rows = shape_of(x)[0], columns = shape_of(x)[1];
    const Attribute along_one = std::int64_t{1};
    switch (draw_.below(14)) {
      case 0:
        return add("relu", {x}, {{rows, columns}});
      case 1:
        return add("add", {x, some_tensor(2, columns, rows)}, {{rows, columns}});
      case 2:
        return add("add", {x, some_tensor(1, columns)}, {{rows, columns}});
      case 3:
      case 4: {
        const std::size_t y = some_tensor(2, 0, columns);
        return add("matmul", {x, y}, {{rows, shape_of(y)[1]}});
      }
      case 5: {
        const std::size_t y = some_tensor(2, columns);
        return add("matmul", {x, y}, {{rows, shape_of(y)[0]}}, {false, true});
      }
      case 6:
        return add("softmax", {x}, {{rows, columns}}, {along_one});
      case 7:
        return add("sum", {x}, {{rows}}, {Integers{1}, false});
      case 8:
        return add("max", {x}, {{rows}}, {Integers{1}, false});
      case 9: {
        const std::size_t scale = some_tensor(1, columns), bias = some_tensor(1, columns);
        return add("layer_norm", {x, scale, bias}, {{rows, columns}, {rows}, {rows}},
                   {1e-5, along_one});
      }
      case 10: {
        const std::size_t y = some_tensor(2, columns);
        return add("concat", {x, y}, {{rows + shape_of(y)[0], columns}}, {std::int64_t{0}}, true);
      }
      case 11:
        if (columns < 2) return;
        return add("split", {x}, {{rows, 1}, {rows, columns - 1}},
                   {Integers{1, columns - 1}, along_one}, false, true);
      case 12: {
        add("stack", {x, some_tensor(2, columns, rows)}, {{rows, 2, columns}}, {along_one}, true);
        return add("transpose", {result_.graph.tensors.size() - 1}, {{2, columns, rows}},
                   {Integers{1, 2, 0}});
      }
      default:
        return add("flatten", {x}, {{rows * columns}}, {std::int64_t{0}, std::int64_t{1}});
    }
  }

  void annotate_tensors() {
    const OperatorGraph& graph = result_.graph;
    for (GraphTensor& tensor : result_.graph.tensors) {
      if (draw_.below(3) > 0) continue;
      const auto at = static_cast<std::size_t>(draw_.below(static_cast<int>(graph.meshes.size())));
      tensor.annotation.mesh = at;
      if (draw_.below(6) == 0) continue;
      tensor.annotation.layout = random_layout(draw_, graph.meshes[at].mesh, tensor.shape.size());
      if (draw_.below(8) > 0) continue;
      Layout& layout = *tensor.annotation.layout;
      for (std::vector<int>& dims : layout.dims) {
        dims.erase(std::remove(dims.begin(), dims.end(), 0), dims.end());
      }
      layout.partial[0] = Reduction::Sum;
    }
    // One that is taken, so that a mesh reaches something.
    result_.graph.operators.front().annotation.mesh = 0;
  }

  /// Now and then, as the rule has it for random layouts of the inputs.
  void annotate_operators() {
    const OperatorGraph& graph = result_.graph;
    for (GraphOperator& one : result_.graph.operators) {
      if (draw_.below(6) > 0) continue;
      const auto at = static_cast<std::size_t>(draw_.below(static_cast<int>(graph.meshes.size())));
      one.annotation.mesh = at;
      one.annotation.chunk_id = draw_.below(2);
      std::vector<Layout> inputs, outputs;
      for (const auto& tensor : tensors_of(one.inputs)) {
        inputs.push_back(random_layout(draw_, graph.meshes[at].mesh, shape_of(*tensor).size()));
      }
      for (const auto& tensor : tensors_of(one.outputs)) {
        outputs.push_back(Layout::replicated(shape_of(*tensor).size()));
      }
      try {
        for (int round = 0; round < 4; ++round) {
          const Inference inference = infer(
              call_of(graph, one, Direction::Forward, graph.meshes[at].mesh, inputs, outputs));
          for (std::size_t place = 0; place < inputs.size(); ++place) {
            inputs[place] = inference.inputs[place].layout;
          }
        }
      } catch (const InputError&) {  // layouts that contradict each other
        continue;
      }
      for (const Layout& layout : inputs) {
        one.annotation.inputs.push_back(draw_.below(3) == 0 ? std::nullopt : std::optional(layout));
      }
    }
  }

  Draw& draw_;
  RandomGraph result_;
};

}  // namespace

RandomGraph random_graph(Draw& draw) { return GraphDraw(draw).graph(); }

}  // namespace pipewright::spmd::test
