#include "core/spmd/operator_call.hpp"

#include "core/base/error.hpp"

namespace pipewright::spmd {
namespace {

std::string_view kind_of(const Attribute& attribute) {
  constexpr std::string_view kKinds[] = {"true or false", "a whole number", "a number",
                                         "a list of whole numbers", "a text"};
  return kKinds[attribute.index()];
}

/// `given` as the kind that `otherwise` has.
Attribute as_declared(const AttributeSlot& slot, const Attribute& given) {
  if (given.index() == slot.otherwise.index()) return given;
  if (const auto* number = std::get_if<std::int64_t>(&given)) {
    if (std::holds_alternative<double>(slot.otherwise)) return static_cast<double>(*number);
    if (std::holds_alternative<std::vector<std::int64_t>>(slot.otherwise)) {
      return std::vector<std::int64_t>{*number};
    }
  }
  throw InputError(std::string(slot.name) + ": expected " + std::string(kind_of(slot.otherwise)) +
                   ", found " + std::string(kind_of(given)));
}

std::size_t dimension(std::int64_t given, std::size_t rank, std::string_view attribute) {
  const auto dims = static_cast<std::int64_t>(rank);
  if (given < -dims || given >= dims) {
    throw InputError(std::string(attribute) + ": dimension " + std::to_string(given) +
                     " of a tensor that has " + std::to_string(dims));
  }
  return static_cast<std::size_t>(given < 0 ? given + dims : given);
}

}  // namespace

Operands::Operands(std::vector<TensorArgument> inputs, std::vector<TensorArgument> outputs,
                   const std::vector<AttributeSlot>& slots, const std::vector<Attribute>& given)
    : inputs_(std::move(inputs)), outputs_(std::move(outputs)) {
  if (given.size() > slots.size()) {
    throw InputError("has " + std::to_string(slots.size()) + " attributes, found " +
                     std::to_string(given.size()));
  }
  for (std::size_t at = 0; at < slots.size(); ++at) {
    attributes_.emplace_back(slots[at].name, at < given.size() ? as_declared(slots[at], given[at])
                                                               : slots[at].otherwise);
  }
}

const Shape& Operands::shape(std::size_t input) const {
  return inputs_[input].tensors.front().shape;
}

bool Operands::boolean(std::string_view attribute) const {
  return std::get<bool>(value_of(attribute));
}

std::int64_t Operands::integer(std::string_view attribute) const {
  return std::get<std::int64_t>(value_of(attribute));
}

double Operands::number(std::string_view attribute) const {
  return std::get<double>(value_of(attribute));
}

std::vector<std::int64_t> Operands::integers(std::string_view attribute) const {
  return std::get<std::vector<std::int64_t>>(value_of(attribute));
}

std::size_t Operands::axis(std::string_view attribute, std::size_t rank) const {
  return dimension(integer(attribute), rank, attribute);
}

std::vector<std::size_t> Operands::axes(std::string_view attribute, std::size_t rank) const {
  std::vector<std::size_t> dims;
  for (const std::int64_t given : integers(attribute)) {
    dims.push_back(dimension(given, rank, attribute));
  }
  return dims;
}

const Attribute& Operands::value_of(std::string_view attribute) const {
  for (const auto& [name, value] : attributes_) {
    if (name == attribute) return value;
  }
  throw_bug(__FILE__, __LINE__, "no attribute " + std::string(attribute));
}

}  // namespace pipewright::spmd
