// Text inside HTML and SVG.
#pragma once

#include <string>
#include <string_view>

#include "core/base/plain_text.hpp"

namespace pipewright::traces {

/// The text as plain_text() shows it, with the five characters that have a meaning in HTML
/// replaced.
inline std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : plain_text(text)) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace pipewright::traces
