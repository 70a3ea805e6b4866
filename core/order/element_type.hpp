// The types of what ranks send one another, by the names that PyTorch has for them, and shapes.
#pragma once

#include <cstdint>
#include <string>
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
/// "bfloat16" for "bf16"; a name that none has stays.
std::string full_type_name(std::string_view name);

/// "4x1024"; "" without extents.
std::string shape_text(const std::vector<std::int64_t>& shape);

}  // namespace pipewright
