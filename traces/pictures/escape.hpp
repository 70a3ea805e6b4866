// Text inside HTML and SVG.
#pragma once

#include <string>
#include <string_view>

#include "core/base/plain_text.hpp"

namespace pipewright::traces {

/// With the five characters that mean something replaced, of text as it may be shown.
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
