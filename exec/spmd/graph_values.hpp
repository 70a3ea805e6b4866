// Values of a graph's tensors in safetensors files: what a training begins with, and what a
// captured model brings along.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/spmd/capture/capture.hpp"

namespace pipewright::exec::graphs {

/// By the names of tensors that no operator makes, whole, row major.
using GraphValues = std::map<std::string, std::vector<float>>;

/// Data may be of all micro-batches of a step, one behind the other along the first dimension.
/// Throws InputError with the file and the tensor: the graph has none of that name, or an operator
/// makes it, or it has another shape, or its type is not read here.
GraphValues read_graph_values(const std::filesystem::path& file, const spmd::OperatorGraph& graph);

/// What the model gives, as floats, each in its shape. Throws InputError where the model's own file
/// is wrong; MachineError.
void write_given_values(const spmd::capture::Captured& captured, const std::string& model,
                        const std::filesystem::path& folder, const std::filesystem::path& file);

}  // namespace pipewright::exec::graphs
