#include "tools/table.hpp"

#include <algorithm>
#include <numeric>

#include "core/error.hpp"

namespace pipewright::tools {
namespace {

bool starts_code_point(char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }

std::string cut(std::string_view text, std::size_t columns) {
  if (columns_of(text) <= columns) return std::string(text);
  std::size_t bytes = 0, seen = 0;
  const std::size_t keep = columns > 2 ? columns - 2 : columns;
  while (bytes < text.size() && (!starts_code_point(text[bytes]) || seen < keep)) {
    seen += starts_code_point(text[bytes]) ? 1 : 0;
    ++bytes;
  }
  return std::string(text.substr(0, bytes)) + (columns > 2 ? ".." : "");
}

}  // namespace

std::size_t columns_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), starts_code_point));
}

void Table::add(std::vector<std::string> cells, Ink ink) {
  PIPEWRIGHT_ASSERT(cells.size() == columns_.size(), "a table row has the wrong number of cells");
  rows_.push_back({std::move(cells), ink});
}

std::string Table::text(const Terminal& terminal) const {
  std::vector<std::size_t> widths;
  for (const Column& column : columns_) widths.push_back(columns_of(column.title));
  for (const Row& row : rows_) {
    for (std::size_t c = 0; c < row.cells.size(); ++c) {
      widths[c] = std::max(widths[c], columns_of(row.cells[c]));
    }
  }
  const std::size_t gaps = columns_.empty() ? 0 : columns_.size() - 1;
  const std::size_t wide = std::accumulate(widths.begin(), widths.end(), 2 * gaps);
  const auto width = static_cast<std::size_t>(terminal.width);
  const std::string_view gap = terminal.cuts_rows && wide > width ? " " : "  ";
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string text;
    for (std::size_t c = 0; c < cells.size(); ++c) {
      const std::string padding(widths[c] - std::min(widths[c], columns_of(cells[c])), ' ');
      if (c > 0) text += gap;
      text += columns_[c].align == Align::Right ? padding + cells[c] : cells[c] + padding;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    return terminal.cuts_rows ? cut(text, width) : text;
  };
  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.push_back(column.title);
  std::string text = painted(terminal, Ink::Bold, line(titles)) + "\n";
  for (const Row& row : rows_) text += painted(terminal, row.ink, line(row.cells)) + "\n";
  return text;
}

std::string wrapped(std::string_view text, int width, int indent) {
  const std::string margin(static_cast<std::size_t>(indent), ' ');
  std::string result, line;
  const auto end_line = [&] {
    if (!line.empty()) result += margin + line + "\n";
    line.clear();
  };
  while (!text.empty()) {
    const std::size_t space = text.find_first_of(" \n");
    const std::string_view word = text.substr(0, space);
    const std::size_t room = static_cast<std::size_t>(std::max(20, width - indent));
    if (!line.empty() && columns_of(line) + 1 + columns_of(word) > room) end_line();
    if (!word.empty()) line += (line.empty() ? "" : " ") + std::string(word);
    if (space == text.npos) break;
    if (text[space] == '\n') end_line();
    text.remove_prefix(space + 1);
  }
  end_line();
  return result;
}

}  // namespace pipewright::tools
