#include "core/spmd/graph/graph.hpp"

#include <algorithm>
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/strong_components.hpp>
#include <boost/graph/topological_sort.hpp>

#include "core/base/error.hpp"
#include "core/order/element_type.hpp"
#include "core/spmd/operators.hpp"

namespace pipewright::spmd {
namespace {

/// Edges run from who makes a tensor to who takes it.
using Dependences = boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS>;

Dependences dependences_of(const OperatorGraph& graph) {
  const auto producers = producers_of(graph);
  Dependences dependences(graph.operators.size());
  for (std::size_t at = 0; at < graph.operators.size(); ++at) {
    for (const auto& tensor : tensors_of(graph.operators[at].inputs)) {
      if (tensor && producers[*tensor]) boost::add_edge(*producers[*tensor], at, dependences);
    }
  }
  return dependences;
}

/// A strong component of more than one operator, or one that takes what it makes itself.
std::string circle_in(const Dependences& dependences, const OperatorGraph& graph) {
  std::vector<std::size_t> component(graph.operators.size());
  boost::strong_components(
      dependences, boost::make_iterator_property_map(component.begin(),
                                                     boost::get(boost::vertex_index, dependences)));
  std::vector<std::size_t> members(graph.operators.size());
  for (const std::size_t of : component) ++members[of];
  std::string names;
  std::optional<std::size_t> chosen;
  for (std::size_t at = 0; at < graph.operators.size(); ++at) {
    const bool in_circle = members[component[at]] > 1 || boost::edge(at, at, dependences).second;
    if (!in_circle || (chosen && *chosen != component[at])) continue;
    chosen = component[at];
    names += (names.empty() ? "\"" : ", \"") + graph.operators[at].name + "\"";
  }
  return names;
}

TensorArgument argument_of(const OperatorGraph& graph, const GraphArgument& argument,
                           const std::vector<Layout>& layouts, std::size_t& at) {
  TensorArgument result{.tensors = {}, .is_list = argument.is_list};
  for (const auto& tensor : argument.tensors) {
    if (tensor) {
      result.tensors.push_back({graph.tensors[*tensor].shape, layouts[at]});
    } else {
      result.tensors.push_back({});
    }
    ++at;
  }
  return result;
}

}  // namespace

bool is_of_fractions(const GraphTensor& tensor) {
  return full_type_name(tensor.type).find("float") != std::string::npos;
}

std::vector<std::optional<std::size_t>> tensors_of(const std::vector<GraphArgument>& arguments) {
  std::vector<std::optional<std::size_t>> tensors;
  for (const GraphArgument& argument : arguments) {
    tensors.insert(tensors.end(), argument.tensors.begin(), argument.tensors.end());
  }
  return tensors;
}

std::vector<std::optional<std::size_t>> producers_of(const OperatorGraph& graph) {
  std::vector<std::optional<std::size_t>> producers(graph.tensors.size());
  for (std::size_t at = 0; at < graph.operators.size(); ++at) {
    for (const auto& tensor : tensors_of(graph.operators[at].outputs)) {
      if (tensor) producers[*tensor] = at;
    }
  }
  return producers;
}

std::vector<std::size_t> ordered_operators(const OperatorGraph& graph) {
  const Dependences dependences = dependences_of(graph);
  std::vector<std::size_t> backward;
  try {
    boost::topological_sort(dependences, std::back_inserter(backward));
  } catch (const boost::not_a_dag&) {
    throw InputError("operators take from one another in a circle: " +
                     circle_in(dependences, graph));
  }
  std::vector<std::size_t> distance(graph.operators.size());
  for (auto at = backward.rbegin(); at != backward.rend(); ++at) {
    for (auto [edge, end] = boost::out_edges(*at, dependences); edge != end; ++edge) {
      const std::size_t taker = boost::target(*edge, dependences);
      distance[taker] = std::max(distance[taker], distance[*at] + 1);
    }
  }
  std::sort(backward.begin(), backward.end(), [&](std::size_t one, std::size_t other) {
    if (distance[one] != distance[other]) return distance[one] < distance[other];
    return graph.operators[one].name < graph.operators[other].name;
  });
  return backward;
}

OperatorCall call_of(const OperatorGraph& graph, const GraphOperator& one, Direction direction,
                     const ProcessMesh& mesh, const std::vector<Layout>& inputs,
                     const std::vector<Layout>& outputs) {
  OperatorCall call{.name = one.rule,
                    .direction = direction,
                    .mesh = mesh,
                    .tensors = {},
                    .attributes = one.attributes};
  std::size_t at = 0;
  for (const GraphArgument& argument : one.inputs) {
    call.tensors.push_back(argument_of(graph, argument, inputs, at));
  }
  const Operator& row = operator_named(one.rule);
  if (direction == Direction::Forward && !row.outputs_are_given) return call;
  at = 0;
  for (const GraphArgument& argument : one.outputs) {
    call.tensors.push_back(argument_of(graph, argument, outputs, at));
  }
  // Those that nobody takes need not stand in the graph.
  for (std::size_t more = one.outputs.size(); more < row.outputs.size(); ++more) {
    call.tensors.push_back({.tensors = {{}}});
  }
  return call;
}

}  // namespace pipewright::spmd
