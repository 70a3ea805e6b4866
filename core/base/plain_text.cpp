#include "core/base/plain_text.hpp"

namespace pipewright {
namespace {

unsigned byte_at(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]);
}

/// Of a sequence of three bytes.
unsigned code_point(std::string_view text) {
  return (byte_at(text, 0) & 0x0FU) << 12U | (byte_at(text, 1) & 0x3FU) << 6U |
         (byte_at(text, 2) & 0x3FU);
}

}  // namespace

std::size_t utf8_length(std::string_view text) {
  const unsigned first = byte_at(text, 0);
  std::size_t length = 0;
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first < 0xE0) length = 2;
  if (first >= 0xE0 && first < 0xF0) length = 3;
  if (first >= 0xF0 && first < 0xF5) length = 4;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte_at(text, i) & 0xC0U) != 0x80) return 0;
  }
  // Overlong forms, surrogates, and what lies beyond U+10FFFF.
  const unsigned second = byte_at(text, 1);
  if (first == 0xE0 && second < 0xA0) return 0;
  if (first == 0xED && second >= 0xA0) return 0;
  if (first == 0xF0 && second < 0x90) return 0;
  if (first == 0xF4 && second >= 0x90) return 0;
  return length;
}

bool is_control(std::string_view sequence) {
  const unsigned first = byte_at(sequence, 0);
  if (sequence.size() == 1) return first < 0x20 || first == 0x7F;
  if (sequence.size() == 2) {
    const unsigned second = byte_at(sequence, 1);
    return (first == 0xC2 && second < 0xA0) || (first == 0xD8 && second == 0x9C);  // C1, U+061C
  }
  if (sequence.size() != 3) return false;
  const unsigned point = code_point(sequence);
  return (point >= 0x200E && point <= 0x200F) || (point >= 0x2028 && point <= 0x202E) ||
         (point >= 0x2066 && point <= 0x2069);
}

std::string plain_text(std::string_view text) {
  std::string plain;
  plain.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const std::string_view sequence = text.substr(0, length);
    const bool stays = sequence == "\n" || sequence == "\t";
    if (length > 0 && (stays || !is_control(sequence))) {
      plain += sequence;
    } else {
      plain += '?';
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return plain;
}

}  // namespace pipewright
