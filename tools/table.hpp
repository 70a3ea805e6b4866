// A table for the terminal: columns as wide as their widest cell, closer together where they would
// not fit. What still does not is cut, and whole where stdout is a pipe or a file.
#pragma once

#include <string>
#include <vector>

#include "tools/terminal.hpp"

namespace pipewright::tools {

class Table {
 public:
  enum class Align { Left, Right };
  struct Column {
    std::string title;
    Align align = Align::Left;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  /// As many cells as columns. `ink` paints the whole row.
  void add(std::vector<std::string> cells, Ink ink = Ink::Plain);
  /// Lines that end in a newline, on a terminal none longer than it is wide.
  std::string text(const Terminal& terminal) const;

 private:
  struct Row {
    std::vector<std::string> cells;
    Ink ink;
  };
  std::vector<Column> columns_;
  std::vector<Row> rows_;
};

/// Breaks text at spaces into lines of at most `width` columns, each begun with `indent` spaces.
std::string wrapped(std::string_view text, int width, int indent);
/// Columns that UTF-8 text takes (every code point one).
std::size_t columns_of(std::string_view text);

}  // namespace pipewright::tools
