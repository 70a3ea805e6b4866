// A node of an ONNX graph with the values that it takes, as far as they are known.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/onnx/model.hpp"
#include "core/spmd/layout.hpp"

namespace pipewright::spmd::capture {

using onnx::DataType;

/// Numbers that are known: row major, whole ones too.
struct Constant {
  Shape shape;
  DataType type = DataType::Float;
  std::vector<double> values;
};

/// What a name of the ONNX graph stands for: known numbers, a tensor that the file gives the first
/// values of, or one that is computed.
struct Value {
  std::string name = {};
  Shape shape = {};
  DataType type = DataType::Float;
  std::optional<Constant> constant = {};
  const onnx::TensorData* initializer = nullptr;
  bool is_trained = false;                 // of an initializer
  std::optional<std::size_t> tensor = {};  // of the graph, once an operator takes or makes it
};

/// The most elements that are folded into one constant.
inline constexpr std::int64_t kMostFolded = std::int64_t{1} << 24;

/// The file that a node is in.
struct ModelFile {
  std::string name;
  std::filesystem::path folder = {};  // of what else it is made of
  std::int64_t opset = 0;             // the version of ONNX's operators
};

class NodeReading {
 public:
  /// `inputs` are null where they are left out.
  NodeReading(const onnx::Node& node, std::size_t number, const ModelFile& file,
              std::vector<Value*> inputs)
      : node_(node), number_(number), file_(file), inputs_(std::move(inputs)) {}

  const onnx::Node& node() const { return node_; }
  std::int64_t opset() const { return file_.opset; }
  /// Throws InputError that names the file, the node and its place.
  [[noreturn]] void fail(const std::string& why) const;

  std::size_t inputs() const { return inputs_.size(); }
  bool has(std::size_t input) const { return input < inputs_.size() && inputs_[input] != nullptr; }
  Value& input(std::size_t input) const;
  std::size_t rank(std::size_t input = 0) const { return this->input(input).shape.size(); }
  /// Throws InputError: it is computed.
  const Constant& constant(std::size_t input) const;
  std::vector<std::int64_t> integers(std::size_t input) const;
  /// Of the one element that it has.
  double number(std::size_t input) const;
  std::int64_t integer(std::size_t input) const;
  std::vector<double> values_of(const onnx::TensorData& tensor) const;

  std::int64_t attribute(std::string_view name, std::int64_t otherwise) const;
  double number_attribute(std::string_view name, double otherwise) const;
  std::string text_attribute(std::string_view name, const std::string& otherwise) const;
  const onnx::Attribute* find(std::string_view name) const;
  /// From an attribute, as older operator sets have them, or an input; none where neither is there.
  std::optional<std::vector<std::int64_t>> integers_of(std::string_view name,
                                                       std::size_t input) const;

  /// A dimension out of `rank`, counted from the end where it is negative.
  std::size_t axis(std::int64_t given, std::size_t rank) const;
  std::set<std::size_t> axes(const std::vector<std::int64_t>& given, std::size_t rank) const;
  /// Throws InputError where there are more elements than any tensor has, or a size is not
  /// positive.
  Shape checked(Shape shape) const;

 private:
  const onnx::Node& node_;
  std::size_t number_;
  const ModelFile& file_;
  std::vector<Value*> inputs_;
};

/// The nearest whole number that there is.
std::int64_t whole(double value);

}  // namespace pipewright::spmd::capture
