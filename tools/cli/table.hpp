// A table for the terminal: columns as wide as their widest cell, closer together where they would
// not fit. Where that is not enough, a last column of words is broken into lines; else each row,
// and the titles too, takes several lines. Nothing is cut. In a pipe or a file a row is one line.
#pragma once

#include <string>
#include <vector>

#include "tools/cli/terminal.hpp"

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
  struct Layout;
  Layout layout(const Terminal& terminal) const;
  std::string lines_of(const std::vector<std::string>& cells, const Layout& layout) const;

  std::vector<Column> columns_;
  std::vector<Row> rows_;
};

/// Breaks text at spaces into lines of at most `width` columns, each begun with `indent` spaces.
std::string wrapped(std::string_view text, int width, int indent);
/// Columns that UTF-8 text takes (every code point one).
std::size_t columns_of(std::string_view text);

}  // namespace pipewright::tools
