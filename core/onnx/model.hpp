// ONNX files (https://github.com/onnx/onnx/blob/main/onnx/onnx.proto): the messages of which a
// graph of operators is made, and the values of its tensors. Other fields are passed over.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pipewright::onnx {

/// TensorProto.DataType
enum class DataType : int {
  Undefined = 0,
  Float = 1,
  Uint8 = 2,
  Int8 = 3,
  Int16 = 5,
  Int32 = 6,
  Int64 = 7,
  Bool = 9,
  Float16 = 10,
  Double = 11,
  Bfloat16 = 16,
};

bool is_float(DataType type);

/// Where a tensor's bytes lie in another file, beside the model.
struct ExternalData {
  std::string location;
  std::int64_t offset = 0;
  std::optional<std::int64_t> length = {};
};

/// Views of the file's bytes, which have to outlive it.
struct TensorData {
  std::string name;
  std::vector<std::int64_t> dims;
  DataType type = DataType::Undefined;
  std::string_view raw = {};
  std::vector<float> floats = {};
  std::vector<double> doubles = {};
  std::vector<std::int64_t> integers = {};  // of all other types
  std::optional<ExternalData> external = {};

  std::int64_t elements() const;
};

struct Attribute {
  std::string name;
  int type = 0;  // AttributeProto.AttributeType
  float number = 0;
  std::int64_t integer = 0;
  std::string text = {};
  std::optional<TensorData> tensor = {};
  std::vector<float> numbers = {};
  std::vector<std::int64_t> integers = {};
};

struct Node {
  std::string name, type, domain;
  std::vector<std::string> inputs, outputs;  // "" where one is left out
  std::vector<Attribute> attributes = {};
};

/// A dimension is known, or a word such as "batch" stands for it, or neither.
struct Dimension {
  std::optional<std::int64_t> size = {};
  std::string word = {};
};

struct ValueInfo {
  std::string name;
  DataType type = DataType::Undefined;
  std::optional<std::vector<Dimension>> shape = {};
  std::map<std::string, std::string> metadata = {};
};

struct Graph {
  std::vector<Node> nodes;
  std::vector<TensorData> initializers;
  std::vector<ValueInfo> inputs, outputs, values;
};

struct Model {
  std::map<std::string, std::int64_t> opsets;  // by domain, "" for ONNX's own
  Graph graph;
};

/// Throws InputError with the file and the byte, counted from 0.
Model parse_model(std::string_view bytes, const std::string& file);

/// The most elements that values_of() makes numbers of.
inline constexpr std::int64_t kMostTensorElements = std::int64_t{1} << 31;

/// All elements, row major. Bytes of another file are read from `folder`. Throws InputError, naming
/// the tensor.
std::vector<double> values_of(const TensorData& tensor, const std::filesystem::path& folder,
                              const std::string& file);

}  // namespace pipewright::onnx
