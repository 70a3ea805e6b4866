// The types of what ranks send one another, by the names that PyTorch has for them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace pipewright {

/// Extents of a shape.
inline constexpr std::size_t kMostDimensions = 16;

struct ElementType {
  std::string_view name, short_name;  // "bfloat16", "bf16"
  std::int64_t bytes = 0;
};

/// By either name; nullptr: none is called so.
const ElementType* element_type(std::string_view name);
/// Their full names.
std::vector<std::string_view> element_type_names();

}  // namespace pipewright
