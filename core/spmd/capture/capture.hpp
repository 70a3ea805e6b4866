// An operator graph from an ONNX model: each node as an operator that has a rule, what is known
// before the model runs computed right away, sizes from the model's inputs.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/spmd/capture/graph_building.hpp"

namespace pipewright::spmd::capture {

struct CaptureOptions {
  std::map<std::string, std::int64_t> dimensions = {};  // of words such as "batch"
  std::set<std::string> constants = {};                 // initializers that are not trained
  std::vector<int> mesh = {1};
  std::filesystem::path folder = {};  // of the model
};

struct Captured {
  OperatorGraph graph;
  std::vector<GivenValues> given;
};

/// The model outlives it. Throws InputError with the file and the node: an operator or a use of it
/// that has no rule here, a dimension that nobody gave a size.
Captured captured(const onnx::Model& model, const std::string& file, const CaptureOptions& options);

/// In alphabetical order.
std::vector<std::string_view> captured_nodes();

}  // namespace pipewright::spmd::capture
