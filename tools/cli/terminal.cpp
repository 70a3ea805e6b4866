#include "tools/cli/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "core/base/plain_text.hpp"

namespace pipewright::tools {
namespace {

constexpr char kEscape = '\x1b';

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

/// mpirun gives its processes a terminal of their own and passes on what they write, perhaps into a
/// file.
bool is_terminal(int descriptor) {
  return isatty(descriptor) == 1 && environment("OMPI_COMM_WORLD_SIZE").empty();
}

int width_of_stdout() {
  winsize size{};
  if (is_terminal(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 &&
      size.ws_col > 0) {
    return std::clamp<int>(size.ws_col, 40, 1000);
  }
  return 80;
}

bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string_view value = environment(name);
    if (value.empty()) continue;
    return value.find("UTF-8") != value.npos || value.find("utf8") != value.npos ||
           value.find("utf-8") != value.npos;
  }
  return false;
}

const char* code_of(Ink ink) {
  switch (ink) {
    case Ink::Plain:
      return "";
    case Ink::Bold:
      return "\x1b[1m";
    case Ink::Dim:
      return "\x1b[2m";
    case Ink::Red:
      return "\x1b[31m";
    case Ink::Green:
      return "\x1b[32m";
    case Ink::Yellow:
      return "\x1b[33m";
    case Ink::Blue:
      return "\x1b[34m";
  }
  return "";
}

}  // namespace

Terminal look_at_terminal(std::string_view color) {
  Terminal terminal;
  const bool wanted = environment("NO_COLOR").empty() && environment("TERM") != "dumb";
  terminal.color = color == "always" || (color == "auto" && is_terminal(STDOUT_FILENO) && wanted);
  if (terminal.color) terminal.mark = std::to_string(std::random_device()());
  terminal.progress = is_terminal(STDERR_FILENO) && environment("TERM") != "dumb";
  terminal.unicode = locale_is_utf8();
  terminal.width = width_of_stdout();
  terminal.cuts_rows = is_terminal(STDOUT_FILENO);
  return terminal;
}

int width_of_stderr() {
  winsize size{};
  const bool known =
      is_terminal(STDERR_FILENO) && ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

std::string painted(const Terminal& terminal, Ink ink, std::string_view text) {
  if (!terminal.color || ink == Ink::Plain) return std::string(text);
  return own_codes(terminal, code_of(ink)) + std::string(text) + own_codes(terminal, "\x1b[0m");
}

std::string own_codes(const Terminal& terminal, std::string_view text) {
  std::string marked;
  for (const char c : text) {
    marked += c;
    if (c == kEscape) marked += terminal.mark;
  }
  return marked;
}

std::string shown(const Terminal& terminal, std::string_view text) {
  if (terminal.mark.empty()) return plain_text(text);
  const std::string code = kEscape + terminal.mark;
  std::string out;
  for (;;) {
    const std::size_t at = text.find(code);
    out += plain_text(text.substr(0, at));
    if (at == text.npos) return out;
    out += kEscape;
    text.remove_prefix(at + code.size());
  }
}

}  // namespace pipewright::tools
