// How often a text holds a part.
#pragma once

#include <cstddef>
#include <string_view>

namespace pipewright::test {

inline std::size_t occurrences(std::string_view text, std::string_view part) {
  std::size_t times = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++times;
  return times;
}

}  // namespace pipewright::test
