#include "traces/json_text.hpp"

#include <array>
#include <charconv>

namespace pipewright::traces {
namespace {

/// Length of the UTF-8 sequence at the front of `text`, 0 if it is not one.
std::size_t sequence_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  std::size_t length = 0;
  if (byte(0) < 0x80) return 1;
  if (byte(0) >= 0xC2 && byte(0) < 0xE0) length = 2;
  if (byte(0) >= 0xE0 && byte(0) < 0xF0) length = 3;
  if (byte(0) >= 0xF0 && byte(0) < 0xF5) length = 4;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, and what lies beyond U+10FFFF.
  if (byte(0) == 0xE0 && byte(1) < 0xA0) return 0;
  if (byte(0) == 0xED && byte(1) >= 0xA0) return 0;
  if (byte(0) == 0xF0 && byte(1) < 0x90) return 0;
  if (byte(0) == 0xF4 && byte(1) >= 0x90) return 0;
  return length;
}

}  // namespace

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
    const std::size_t length = sequence_length(text);
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
