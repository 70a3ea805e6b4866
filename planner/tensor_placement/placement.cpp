#include "planner/tensor_placement/placement.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/suggest.hpp"

namespace pipewright::planner::tensor_placement {
namespace {

/// The one mesh of all operators and tensors.
const spmd::ProcessMesh& mesh_of(const spmd::OperatorGraph& graph) {
  const spmd::OperatorGraph whole = spmd::completed(graph).graph;
  const std::size_t mesh = *whole.operators.front().annotation.mesh;
  const auto refuse = [&](const std::string& what, std::size_t other) {
    throw InputError(what + " is on mesh \"" + whole.meshes[other].name + "\", and operator \"" +
                     whole.operators.front().name + "\" on \"" + whole.meshes[mesh].name +
                     "\"; placements are found on one mesh");
  };
  for (const spmd::GraphOperator& one : whole.operators) {
    if (one.annotation.mesh != mesh) refuse("operator \"" + one.name + "\"", *one.annotation.mesh);
  }
  for (const spmd::GraphTensor& one : whole.tensors) {
    if (one.annotation.mesh != mesh) refuse("tensor \"" + one.name + "\"", *one.annotation.mesh);
  }
  return graph.meshes[mesh].mesh;
}

/// Everything as the assignment has it.
spmd::OperatorGraph annotated(const spmd::OperatorGraph& graph, const PlacementProblem& problem,
                              const Assignment& assignment) {
  spmd::OperatorGraph result = graph;
  const auto all = [](const std::vector<std::optional<std::size_t>>& tensors,
                      const std::vector<spmd::Layout>& layouts) {
    std::vector<std::optional<spmd::Layout>> given;
    for (std::size_t place = 0; place < tensors.size(); ++place) {
      given.push_back(tensors[place] ? std::optional(layouts[place]) : std::nullopt);
    }
    return given;
  };
  for (std::size_t at = 0; at < graph.operators.size(); ++at) {
    spmd::GraphOperator& one = result.operators[at];
    const OperatorWay& way = problem.way(at, assignment);
    one.annotation.inputs = all(tensors_of(one.inputs), way.inputs);
    one.annotation.outputs = all(tensors_of(one.outputs), way.outputs);
  }
  for (std::size_t at = 0; at < graph.tensors.size(); ++at) {
    result.tensors[at].annotation.layout = problem.home(at, assignment);
  }
  return result;
}

class Report {
 public:
  Report(const spmd::OperatorGraph& graph, const PlacementProblem& problem,
         GraphPlacement& placement)
      : graph_(graph),
        problem_(problem),
        assignment_(*placement.found.assignment),
        placement_(placement) {}

  void fill() {
    for (std::size_t at = 0; at < graph_.operators.size(); ++at) {
      placement_.operators.push_back({.ns = problem_.way(at, assignment_).ns});
    }
    for (spmd::GraphReshard& reshard : placement_.completion.reshards) {
      const LayoutMoves& moves = problem_.moves(reshard.tensor);
      reshard.plan = moves.plan(reshard.from, reshard.to);
      const double ns = moves.ns(moves.number(reshard.from), moves.number(reshard.to));
      placement_.reshard_ns.push_back(ns);
      count(reshard.operators.front(), ns, reshard.plan.bytes);
    }
    const auto producers = producers_of(graph_);
    for (std::size_t at = 0; at < graph_.tensors.size(); ++at) add_tensor(at, producers[at]);
  }

 private:
  void count(std::size_t at, double ns, std::int64_t bytes) {
    placement_.operators[at].communication_ns += ns;
    placement_.operators[at].communication_bytes += bytes;
  }

  void add_tensor(std::size_t at, std::optional<std::size_t> producer) {
    const spmd::Layout& home = problem_.home(at, assignment_);
    const auto forms = problem_.forms(at, assignment_);
    const std::int64_t bytes = problem_.home_bytes(at, home);
    if (producer) {
      placement_.operators[*producer].bytes += bytes;
      const auto outputs = tensors_of(graph_.operators[*producer].outputs);
      const auto place = std::find(outputs.begin(), outputs.end(), at) - outputs.begin();
      const spmd::Layout& as_made =
          problem_.way(*producer, assignment_).outputs[static_cast<std::size_t>(place)];
      add_gradient({at, true, {*producer}, without_partial(home), without_partial(as_made)});
    } else if (!forms.empty()) {
      placement_.operators[forms.front().operators.front()].bytes += bytes;
    }
    for (const TakenForm& form : forms) {
      placement_.operators[form.operators.front()].bytes += form.bytes;
      add_gradient({at, false, form.operators, form.gradient, without_partial(home)});
    }
  }

  void add_gradient(GradientReshard gradient) {
    if (!problem_.has_gradient(gradient.tensor) || gradient.from == gradient.to) return;
    const LayoutMoves& moves = problem_.moves(gradient.tensor);
    gradient.plan = moves.plan(gradient.from, gradient.to);
    gradient.ns = moves.ns(moves.number(gradient.from), moves.number(gradient.to));
    count(gradient.operators.front(), gradient.ns, gradient.plan.bytes);
    placement_.gradients.push_back(std::move(gradient));
  }

  const spmd::OperatorGraph& graph_;
  const PlacementProblem& problem_;
  const Assignment& assignment_;
  GraphPlacement& placement_;
};

}  // namespace

double GraphPlacement::gap() const {
  if (!is_found() || is_reached(found.totals.ns, found.bound_ns)) return 0;
  return (found.totals.ns - found.bound_ns) / found.totals.ns;
}

GraphPlacement placed(const spmd::OperatorGraph& graph, const Cluster& cluster,
                      std::int64_t limit_bytes) {
  if (graph.operators.empty()) throw InputError("the graph has no operators");
  const MeshPrices prices(cluster, mesh_of(graph));
  const PlacementProblem problem(graph, prices);
  GraphPlacement placement;
  placement.limit_bytes = limit_bytes;
  placement.found = found_placement(problem, static_cast<double>(limit_bytes));
  placement.completion.graph = graph;
  if (!placement.is_found()) return placement;
  placement.completion = spmd::completed(annotated(graph, problem, *placement.found.assignment));
  Report(graph, problem, placement).fill();
  return placement;
}

spmd::OperatorGraph on_mesh(spmd::OperatorGraph graph, const std::vector<int>& shape) {
  if (graph.meshes.size() != 1) {
    throw InputError("the graph has " + std::to_string(graph.meshes.size()) +
                     " meshes; another shape can be given to one alone");
  }
  spmd::ProcessMesh mesh = spmd::ProcessMesh::of_shape(shape);
  if (mesh.dims() == graph.meshes.front().mesh.dims()) {
    mesh.dim_names = graph.meshes.front().mesh.dim_names;
  }
  require_mesh(mesh);
  for (const spmd::GraphTensor& tensor : graph.tensors) {
    if (tensor.annotation.layout) {
      require_layout({tensor.shape, *tensor.annotation.layout}, mesh,
                     "the annotation of \"" + tensor.name + "\"");
    }
  }
  graph.meshes.front().mesh = std::move(mesh);
  return graph;
}

std::vector<OtherHome> homes_of(const spmd::OperatorGraph& graph, const Cluster& cluster,
                                const GraphPlacement& placement, const std::string& tensor) {
  std::vector<std::string_view> names;
  for (const spmd::GraphTensor& one : graph.tensors) names.push_back(one.name);
  const auto found = std::find(names.begin(), names.end(), tensor);
  if (found == names.end()) {
    throw InputError("the graph has no tensor \"" + tensor + "\"" + did_you_mean(tensor, names));
  }
  const auto at = static_cast<std::size_t>(found - names.begin());
  const MeshPrices prices(cluster, mesh_of(graph));
  const PlacementProblem problem(graph, prices);
  const auto bounds = bounds_of_homes(problem, at, static_cast<double>(placement.limit_bytes),
                                      placement.found.ns_of_a_byte);
  std::vector<OtherHome> homes;
  for (std::size_t home = 0; home < bounds.size(); ++home) {
    homes.push_back({problem.homes(at)[home], bounds[home]});
  }
  std::stable_sort(homes.begin(), homes.end(), [](const OtherHome& one, const OtherHome& other) {
    return one.least_ns < other.least_ns;
  });
  return homes;
}

}  // namespace pipewright::planner::tensor_placement
