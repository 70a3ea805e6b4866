// Runs the built `pipewright` on a terminal of a given width, as a user sees it.
#pragma once

#include <string>
#include <vector>

#include "tests/support/command_runner.hpp"

namespace pipewright::test {

/// What a terminal of so many columns shows of `pipewright WORDS`: standard output and standard
/// error as they come, line by line, without colour.
struct Shown {
  int status = -1;
  std::vector<std::string> lines;

  std::string text() const;
  /// The number of the first line that holds the words; lines.size() if none.
  std::size_t line_with(const std::string& words) const;
};
Shown on_terminal(const std::string& words, const Folder& folder, int columns);

/// Columns that UTF-8 text takes.
std::size_t columns_of_line(const std::string& line);

}  // namespace pipewright::test
