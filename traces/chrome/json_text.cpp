#include "traces/chrome/json_text.hpp"

#include <array>
#include <charconv>

#include "core/base/plain_text.hpp"

namespace pipewright::traces {
JsonText& JsonText::number(std::int64_t value) {
  std::array<char, 24> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  text_.append(digits.data(), end);
  return *this;
}

JsonText& JsonText::micros(std::int64_t ns) {
  if (ns < 0) {
    text_.push_back('-');
    ns = -ns;
  }
  number(ns / 1000);
  const auto rest = static_cast<int>(ns % 1000);
  const std::array<char, 4> decimals = {'.', static_cast<char>('0' + rest / 100),
                                        static_cast<char>('0' + rest / 10 % 10),
                                        static_cast<char>('0' + rest % 10)};
  text_.append(decimals.data(), decimals.size());
  return *this;
}

JsonText& JsonText::quoted(std::string_view text) {
  text_.push_back('"');
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) {
      text_.push_back('?');
    } else if (length == 1 && static_cast<unsigned char>(text[0]) < 0x20) {
      text_.push_back(' ');
    } else if (text[0] == 0x7F) {
      text_.push_back(' ');
    } else {
      if (text[0] == '"' || text[0] == '\\') text_.push_back('\\');
      text_.append(text.substr(0, length));
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  text_.push_back('"');
  return *this;
}

}  // namespace pipewright::traces
