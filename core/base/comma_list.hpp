// "1,2,4": the lists of flags and other short texts.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace pipewright {

/// The parts between commas, untrimmed. An empty text has one part, which is empty.
inline std::vector<std::string> split_at_commas(std::string_view text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace pipewright
