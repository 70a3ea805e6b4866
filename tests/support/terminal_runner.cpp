#include "tests/support/terminal_runner.hpp"

#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>

namespace pipewright::test {
namespace {

/// In the child of forkpty(): never comes back.
[[noreturn]] void become_command(const std::string& words, const Folder& folder) {
  const std::string script = "cd '" + folder.path().string() +
                             "' && unset COLUMNS LC_ALL && export NO_COLOR=1 TERM=dumb "
                             "LANG=C.UTF-8 && exec '" PIPEWRIGHT_COMMAND "' " +
                             words;
  execl("/bin/sh", "sh", "-c", script.c_str(), nullptr);
  _exit(127);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines(1);
  for (const char c : text) {
    if (c == '\n') {
      lines.emplace_back();
    } else if (c != '\r') {
      lines.back() += c;
    }
  }
  if (lines.back().empty()) lines.pop_back();
  return lines;
}

}  // namespace

std::string Shown::text() const {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

std::size_t Shown::line_with(const std::string& words) const {
  const auto found = std::find_if(lines.begin(), lines.end(), [&](const std::string& line) {
    return line.find(words) != line.npos;
  });
  return static_cast<std::size_t>(found - lines.begin());
}

Shown on_terminal(const std::string& words, const Folder& folder, int columns) {
  winsize size{};
  size.ws_col = static_cast<unsigned short>(columns);
  size.ws_row = 50;
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
  if (child < 0) throw std::runtime_error("no pseudo-terminal");
  if (child == 0) become_command(words, folder);
  std::string text;
  char buffer[4096];
  // The read fails once the child has closed its end.
  for (ssize_t count = 0; (count = read(terminal, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(count));
  close(terminal);
  int status = 0;
  waitpid(child, &status, 0);
  return {.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1, .lines = lines_of(text)};
}

std::size_t columns_of_line(const std::string& line) {
  return static_cast<std::size_t>(std::count_if(line.begin(), line.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

}  // namespace pipewright::test
