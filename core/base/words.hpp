// A line of a text format as words, for what has blanks between its fields.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

namespace pipewright {

/// What stands between any of `blanks`; nothing empty.
inline std::vector<std::string_view> words_of(std::string_view text,
                                              std::string_view blanks = " \t\r") {
  std::vector<std::string_view> words;
  for (std::size_t at = text.find_first_not_of(blanks); at != text.npos;) {
    const std::size_t end = std::min(text.find_first_of(blanks, at), text.size());
    words.push_back(text.substr(at, end - at));
    at = text.find_first_not_of(blanks, end);
  }
  return words;
}

}  // namespace pipewright
