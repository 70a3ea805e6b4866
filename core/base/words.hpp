// A line of a text format as words, for what has blanks between its fields.
#pragma once

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>
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

/// The whole word as a number; nullopt where it is none.
template <class Number>
std::optional<Number> number_of_word(std::string_view word) {
  Number value{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

}  // namespace pipewright
