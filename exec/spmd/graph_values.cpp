#include "exec/spmd/graph_values.hpp"

#include <algorithm>
#include <fstream>

#include "core/base/error.hpp"
#include "core/base/suggest.hpp"
#include "core/onnx/model.hpp"
#include "exec/checkpoint/safetensors.hpp"

namespace pipewright::exec::graphs {
namespace {

using onnx::DataType;

DataType type_of(const SafeTensor& tensor, const std::string& file) {
  constexpr std::pair<std::string_view, DataType> kTypes[] = {
      {"F32", DataType::Float},     {"F64", DataType::Double}, {"F16", DataType::Float16},
      {"BF16", DataType::Bfloat16}, {"I64", DataType::Int64},  {"I32", DataType::Int32},
      {"I16", DataType::Int16},     {"I8", DataType::Int8},    {"U8", DataType::Uint8},
      {"BOOL", DataType::Bool},
  };
  for (const auto& [name, type] : kTypes) {
    if (name == tensor.type) return type;
  }
  throw InputError(file, "/" + tensor.name,
                   "is of type " + tensor.type + ", which is not read here");
}

std::string text_of(const spmd::Shape& shape) {
  std::string text = "[";
  for (const std::int64_t size : shape) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  }
  return text + "]";
}

/// Data, one micro-batch behind the other along the first dimension.
bool is_of_all_micro_batches(spmd::Shape shape, const spmd::GraphTensor& tensor,
                             const spmd::OperatorGraph& graph) {
  const bool is_data = tensor.role != spmd::TensorRole::Parameter && !shape.empty();
  if (!is_data || !graph.pipeline || shape.front() % graph.pipeline->accumulate_steps != 0) {
    return false;
  }
  shape.front() /= graph.pipeline->accumulate_steps;
  return shape == tensor.shape;
}

void require_wanted(const SafeTensor& tensor, const spmd::OperatorGraph& graph,
                    const std::string& file) {
  const auto& all = graph.tensors;
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const auto& one) { return one.name == tensor.name; });
  if (found == all.end()) {
    std::vector<std::string_view> names;
    for (const auto& one : all) names.push_back(one.name);
    throw InputError(file, "/" + tensor.name,
                     "the graph has no tensor of that name" + did_you_mean(tensor.name, names));
  }
  if (producers_of(graph)[static_cast<std::size_t>(found - all.begin())]) {
    throw InputError(file, "/" + tensor.name, "an operator of the graph makes it");
  }
  if (found->shape == tensor.shape || is_of_all_micro_batches(tensor.shape, *found, graph)) return;
  throw InputError(
      file, "/" + tensor.name,
      "has the shape " + text_of(tensor.shape) + ", and in the graph " + text_of(found->shape));
}

std::vector<float> as_floats(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

}  // namespace

GraphValues read_graph_values(const std::filesystem::path& file, const spmd::OperatorGraph& graph) {
  const SafetensorsHeader header = read_safetensors(file);
  std::ifstream stream(file, std::ios::binary);
  GraphValues values;
  for (const SafeTensor& tensor : header.tensors) {
    require_wanted(tensor, graph, file.string());
    onnx::TensorData data{.name = tensor.name, .dims = tensor.shape};
    data.type = type_of(tensor, file.string());
    std::string bytes(static_cast<std::size_t>(tensor.bytes), '\0');
    stream.seekg(tensor.first_byte);
    stream.read(bytes.data(), tensor.bytes);
    if (!stream) throw InputError(file.string(), "/" + tensor.name, "cannot be read");
    data.raw = bytes;
    values[tensor.name] = as_floats(onnx::values_of(data, {}, file.string()));
  }
  return values;
}

void write_given_values(const spmd::capture::Captured& captured, const std::string& model,
                        const std::filesystem::path& folder, const std::filesystem::path& file) {
  std::vector<SafetensorsWriter::Array> arrays;
  for (const auto& one : captured.given) {
    const spmd::GraphTensor& tensor = captured.graph.tensors[one.tensor];
    SafetensorsWriter::Array array{tensor.name, 1, tensor.shape};
    for (const std::int64_t size : tensor.shape) array.elements *= size;
    arrays.push_back(std::move(array));
  }
  SafetensorsWriter writer(file, arrays, {});
  for (const auto& one : captured.given) {
    writer.write(as_floats(one.initializer == nullptr
                               ? one.numbers
                               : onnx::values_of(*one.initializer, folder, model)));
  }
  writer.finish();
}

}  // namespace pipewright::exec::graphs
