#include "core/spmd/capture/node_reading.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/error.hpp"

namespace pipewright::spmd::capture {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 50;
constexpr std::size_t kMostDims = 8;

}  // namespace

std::int64_t whole(double value) {
  constexpr double kMost = 9.2e18;
  if (std::isnan(value)) return 0;
  return static_cast<std::int64_t>(std::clamp(value, -kMost, kMost));
}

void NodeReading::fail(const std::string& why) const {
  std::string place = "node " + std::to_string(number_);
  if (!node_.name.empty()) place += ", \"" + node_.name + "\"";
  throw InputError(file_.name, place + " (" + node_.type + ")", why);
}

Value& NodeReading::input(std::size_t input) const {
  if (!has(input)) fail("has no input " + std::to_string(input));
  return *inputs_[input];
}

const Constant& NodeReading::constant(std::size_t input) const {
  const Value& value = this->input(input);
  if (!value.constant) {
    fail("its input \"" + value.name + "\" is computed while the model runs, and has to be known");
  }
  return *value.constant;
}

std::vector<std::int64_t> NodeReading::integers(std::size_t input) const {
  std::vector<std::int64_t> numbers;
  for (const double value : constant(input).values) numbers.push_back(whole(value));
  return numbers;
}

double NodeReading::number(std::size_t input) const {
  const std::vector<double>& numbers = constant(input).values;
  if (numbers.size() != 1) fail("expected one number as input " + std::to_string(input));
  return numbers.front();
}

std::int64_t NodeReading::integer(std::size_t input) const { return whole(number(input)); }

std::vector<double> NodeReading::values_of(const onnx::TensorData& tensor) const {
  if (tensor.elements() > kMostFolded) fail("has a constant of more than 2^24 elements");
  return onnx::values_of(tensor, file_.folder, file_.name);
}

const onnx::Attribute* NodeReading::find(std::string_view name) const {
  const auto found = std::find_if(node_.attributes.begin(), node_.attributes.end(),
                                  [&](const auto& one) { return one.name == name; });
  return found == node_.attributes.end() ? nullptr : &*found;
}

std::int64_t NodeReading::attribute(std::string_view name, std::int64_t otherwise) const {
  const onnx::Attribute* found = find(name);
  return found == nullptr ? otherwise : found->integer;
}

double NodeReading::number_attribute(std::string_view name, double otherwise) const {
  const onnx::Attribute* found = find(name);
  return found == nullptr ? otherwise : static_cast<double>(found->number);
}

std::string NodeReading::text_attribute(std::string_view name, const std::string& otherwise) const {
  const onnx::Attribute* found = find(name);
  return found == nullptr ? otherwise : found->text;
}

std::optional<std::vector<std::int64_t>> NodeReading::integers_of(std::string_view name,
                                                                  std::size_t input) const {
  if (const onnx::Attribute* found = find(name)) return found->integers;
  if (!has(input)) return std::nullopt;
  return integers(input);
}

std::size_t NodeReading::axis(std::int64_t given, std::size_t rank) const {
  const auto dims = static_cast<std::int64_t>(rank);
  if (given < -dims || given >= dims) {
    fail("names dimension " + std::to_string(given) + " of a tensor that has " +
         std::to_string(dims));
  }
  return static_cast<std::size_t>(given < 0 ? given + dims : given);
}

std::set<std::size_t> NodeReading::axes(const std::vector<std::int64_t>& given,
                                        std::size_t rank) const {
  std::set<std::size_t> all;
  for (const std::int64_t one : given) {
    if (!all.insert(axis(one, rank)).second) fail("names a dimension twice");
  }
  return all;
}

Shape NodeReading::checked(Shape shape) const {
  if (shape.size() > kMostDims) fail("has a tensor of more than 8 dimensions");
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) {
    if (size < 1) fail("has a tensor without elements");
    if (elements > kMostElements / size) fail("has a tensor of more than 2^50 elements");
    elements *= size;
  }
  return shape;
}

}  // namespace pipewright::spmd::capture
