// ONNX models written for tests, message by message.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pipewright::test {

inline std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(0x80 | (value & 0x7f));
  return bytes + static_cast<char>(value);
}
inline std::string field(int number, std::uint64_t value) {
  return varint(static_cast<std::uint64_t>(number) << 3) + varint(value);
}
inline std::string field(int number, const std::string& bytes) {
  return varint(static_cast<std::uint64_t>(number) << 3 | 2) + varint(bytes.size()) + bytes;
}
inline std::string field(int number, const char* text) { return field(number, std::string(text)); }

struct OnnxNode {
  std::string type;
  std::vector<std::string> inputs, outputs;
  std::string attributes = {};  // AttributeProtos as fields
  std::string domain = {};
  std::string name = {};
};

inline std::string integers_attribute(const char* name, const std::vector<std::int64_t>& values) {
  std::string attribute = field(1, name) + field(20, 7);
  for (const std::int64_t value : values) attribute += field(8, static_cast<std::uint64_t>(value));
  return field(5, attribute);
}
inline std::string integer_attribute(const char* name, std::int64_t value) {
  return field(5, field(1, name) + field(20, 2) + field(3, static_cast<std::uint64_t>(value)));
}

/// TensorProto of 64-bit integers.
inline std::string integer_tensor(const std::string& name, const std::vector<std::int64_t>& dims,
                                  const std::vector<std::int64_t>& values) {
  std::string tensor = field(2, 7) + field(8, name);
  for (const std::int64_t dim : dims) tensor += field(1, static_cast<std::uint64_t>(dim));
  for (const std::int64_t value : values) tensor += field(7, static_cast<std::uint64_t>(value));
  return tensor;
}

/// TensorProto of floats, all zeros, as raw bytes.
inline std::string zeros_tensor(const std::string& name, const std::vector<std::int64_t>& dims) {
  std::string tensor = field(2, 1) + field(8, name);
  std::size_t bytes = 4;
  for (const std::int64_t dim : dims) {
    tensor += field(1, static_cast<std::uint64_t>(dim));
    bytes *= static_cast<std::size_t>(dim);
  }
  return tensor + field(9, std::string(bytes, '\0'));
}

/// ValueInfoProto of floats; a dimension is a number or a word.
inline std::string float_value(const std::string& name, const std::vector<std::string>& dims) {
  std::string shape;
  for (const std::string& dim : dims) {
    const bool is_size = dim.find_first_not_of("0123456789") == std::string::npos;
    shape += field(1, is_size ? field(1, std::stoull(dim)) : field(2, dim));
  }
  return field(1, name) + field(2, field(1, field(1, 1) + field(2, shape)));
}

struct OnnxGraph {
  std::vector<OnnxNode> nodes;
  std::vector<std::string> inputs, initializers = {};
};

inline std::string onnx_model(const OnnxGraph& graph, int opset = 20) {
  std::string bytes;
  for (const OnnxNode& node : graph.nodes) {
    std::string own = field(3, node.name) + field(4, node.type) + field(7, node.domain);
    for (const std::string& input : node.inputs) own += field(1, input);
    for (const std::string& output : node.outputs) own += field(2, output);
    bytes += field(1, own + node.attributes);
  }
  for (const std::string& tensor : graph.initializers) bytes += field(5, tensor);
  for (const std::string& value : graph.inputs) bytes += field(11, value);
  return field(1, 9) + field(7, bytes) +
         field(8, field(1, "") + field(2, static_cast<std::uint64_t>(opset)));
}

}  // namespace pipewright::test
