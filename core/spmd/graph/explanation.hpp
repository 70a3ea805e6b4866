// Why a tensor lies as it does: the chain of rules from each of its divisions back to an
// annotation.
#pragma once

#include "core/base/json.hpp"
#include "core/spmd/graph/completion.hpp"

namespace pipewright::spmd {

/// A division and why it is.
struct Reason {
  DividedDimension division;
  Cause cause;
};

struct ExplainedDimension {
  int axis = 0;
  /// For each mesh dimension that divides it, reasons from it back to an annotation.
  std::vector<std::vector<Reason>> divided_by = {};
  /// What rules asked for in vain: reasons as above, the first being what was asked for.
  std::vector<std::vector<Reason>> not_divided_by = {};
};

/// On the tensor's own mesh.
struct Explanation {
  std::size_t tensor = 0;
  std::vector<ExplainedDimension> dimensions = {};
  std::vector<GraphReshard> reshards = {};  // of the tensor
  std::string chunk = {};                   // one sentence, where a pipeline has chunks
};

/// Throws InputError, with the nearest names, where the graph has no such tensor.
Explanation explained(const Completion& completion, const std::string& tensor);

/// One sentence: "dimension 1 of "h": rule matmul of "up" forward, from dimension 1 of "w1"".
std::string text_of(const Reason& reason, const OperatorGraph& graph);
Json to_json(const Explanation& explanation, const OperatorGraph& graph);

/// The parts of a pipeline that has chunks, in their order.
Json parts_to_json(const Completion& completion);
/// The completed graph as a file, with "reshards".
Json to_json(const Completion& completion);
Json to_json(const GraphReshard& reshard, const OperatorGraph& graph);

}  // namespace pipewright::spmd
