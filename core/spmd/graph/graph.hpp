// Operators and the tensors between them, some of which say how they lie: what a user annotates,
// and the whole graph when it is completed.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "core/spmd/graph/graph_optimizer.hpp"
#include "core/spmd/graph/graph_pipeline.hpp"
#include "core/spmd/inference.hpp"
#include "core/spmd/operator_call.hpp"

namespace pipewright::spmd {

struct NamedMesh {
  std::string name;
  ProcessMesh mesh;
};

struct TensorAnnotation {
  std::optional<std::size_t> mesh = {};  // of the graph's
  std::optional<Layout> layout = {};
  std::optional<int> chunk_id = {};
};

/// Of a tensor that no operator makes.
enum class TensorRole {
  Activation,  // it comes from elsewhere, and its gradient goes back there
  Parameter,   // it is trained
  Constant,    // no gradient is asked for
};

struct GraphTensor {
  std::string name;
  Shape shape;
  std::string type;  // as core/order/element_type calls it
  TensorRole role = TensorRole::Activation;
  TensorAnnotation annotation;
};

/// Of floating-point numbers; whole ones have no gradient.
bool is_of_fractions(const GraphTensor& tensor);

/// A tensor of the graph, or a list of them; a tensor that is left out is no number.
struct GraphArgument {
  std::vector<std::optional<std::size_t>> tensors = {};
  bool is_list = false;
};

/// Layouts of inputs and outputs are one after the other, those of lists too, and as many as there
/// are, or none.
struct OperatorAnnotation {
  std::optional<std::size_t> mesh = {};
  std::vector<std::optional<Layout>> inputs = {}, outputs = {};
  std::optional<std::string> impl_type = {};
  std::optional<int> impl_idx = {};
  std::optional<int> chunk_id = {};
};

struct GraphOperator {
  std::string name;  // of its own
  std::string rule;  // "matmul"
  std::vector<GraphArgument> inputs, outputs;
  std::vector<Attribute> attributes = {};
  OperatorAnnotation annotation = {};
};

/// Each tensor is the output of at most one operator, and no operator is among its own ancestors.
struct OperatorGraph {
  std::vector<NamedMesh> meshes;
  std::vector<GraphTensor> tensors;
  std::vector<GraphOperator> operators;
  GraphOptimizer optimizer = {};
  std::optional<GraphPipeline> pipeline = {};
};

/// As sentences have names.
inline std::string in_quotes(const std::string& name) { return "\"" + name + "\""; }

/// The tensors of some arguments one after the other.
std::vector<std::optional<std::size_t>> tensors_of(const std::vector<GraphArgument>& arguments);

/// The operator that makes each tensor.
std::vector<std::optional<std::size_t>> producers_of(const OperatorGraph& graph);

/// Operators after all that they take from, and otherwise by their distance from the inputs and by
/// name: the same however they are listed. Throws InputError with the names of those in a circle.
std::vector<std::size_t> ordered_operators(const OperatorGraph& graph);

/// The call of an operator with these layouts; those of outputs are heard backward alone. Layouts
/// are one after the other, as the tensors are.
OperatorCall call_of(const OperatorGraph& graph, const GraphOperator& one, Direction direction,
                     const ProcessMesh& mesh, const std::vector<Layout>& inputs,
                     const std::vector<Layout>& outputs);

/// Throws InputError where an operator is given tensors that do not fit it or each other.
void require_shapes(const OperatorGraph& graph, const GraphOperator& one);

}  // namespace pipewright::spmd
