// Names of kernels for people: what the linker knows them by, without what everybody's begin with.
#pragma once

#include <cxxabi.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <memory>
#include <string>

namespace pipewright::exec::cuda {

/// As in the source: its return type, the parameters and all namespaces left out. A name that C++
/// has not made stays. No characters that JSON would have to escape.
inline std::string kernel_name(const char* symbol) {
  if (symbol == nullptr) return {};
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain(
      abi::__cxa_demangle(symbol, nullptr, nullptr, &status), &std::free);
  const std::string text = status == 0 && plain != nullptr ? plain.get() : symbol;
  const auto is_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
  };
  std::string name;
  int depth = 0;  // of < >
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    constexpr std::string_view kNobody = "(anonymous namespace)";
    if (text.compare(i, kNobody.size(), kNobody) == 0) {
      i += kNobody.size() - 1 + 2;  // and its colons
      continue;
    }
    if (text.compare(i, 2, "::") == 0 && !name.empty() && is_word(name.back())) {
      while (!name.empty() && is_word(name.back())) name.pop_back();
      ++i;
      continue;
    }
    if (c == '<') ++depth;
    if (c == '>') --depth;
    if (depth == 0 && c == '(') break;
    if (depth == 0 && c == ' ') {
      name.clear();
      continue;
    }
    if (c == '>' && !name.empty() && name.back() == ' ') name.pop_back();
    name += c == '"' || c == '\\' || std::iscntrl(static_cast<unsigned char>(c)) ? '_' : c;
  }
  return name;
}

}  // namespace pipewright::exec::cuda
