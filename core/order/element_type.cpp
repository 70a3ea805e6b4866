#include "core/order/element_type.hpp"

#include <algorithm>
#include <array>

namespace pipewright {
namespace {

constexpr std::array<ElementType, 13> kTypes = {{{"float64", "fp64", 8},
                                                 {"float32", "fp32", 4},
                                                 {"float16", "fp16", 2},
                                                 {"bfloat16", "bf16", 2},
                                                 {"float8_e4m3", "fp8_e4m3", 1},
                                                 {"float8_e5m2", "fp8_e5m2", 1},
                                                 {"int64", "i64", 8},
                                                 {"int32", "i32", 4},
                                                 {"int16", "i16", 2},
                                                 {"int8", "i8", 1},
                                                 {"uint8", "u8", 1},
                                                 {"bool", "bool", 1},
                                                 {"complex64", "c64", 8}}};

}  // namespace

const ElementType* element_type(std::string_view name) {
  const auto known = std::ranges::find_if(kTypes, [&](const ElementType& type) {
    return type.name == name || type.short_name == name;
  });
  return known == kTypes.end() ? nullptr : &*known;
}

std::vector<std::string_view> element_type_names() {
  std::vector<std::string_view> names;
  for (const ElementType& type : kTypes) names.push_back(type.name);
  return names;
}

std::string full_type_name(std::string_view name) {
  const ElementType* type = element_type(name);
  return std::string(type == nullptr ? name : type->name);
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t extent : shape)
    text += (text.empty() ? "" : "x") + std::to_string(extent);
  return text;
}

}  // namespace pipewright
