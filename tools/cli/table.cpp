#include "tools/cli/table.hpp"

#include <algorithm>
#include <numeric>

#include "core/base/error.hpp"
#include "core/base/plain_text.hpp"

namespace pipewright::tools {
namespace {

bool starts_code_point(char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }

/// Continued lines of a row stand below its first column.
constexpr std::size_t kContinuedIndent = 4;
/// A column of words is not made narrower than this.
constexpr std::size_t kLeastWords = 24;

/// Text broken at spaces into pieces of at most `room` columns; a longer word is broken where the
/// room ends. At least one piece.
std::vector<std::string> pieces_of(std::string_view text, std::size_t room) {
  if (columns_of(text) <= room) return {std::string(text)};
  std::vector<std::string> pieces(1);
  const auto add_word = [&](std::string_view word) {
    std::string& last = pieces.back();
    if (!last.empty() && columns_of(last) + 1 + columns_of(word) > room) pieces.emplace_back();
    if (!pieces.back().empty()) pieces.back() += ' ';
    for (const char c : word) {
      if (starts_code_point(c) && columns_of(pieces.back()) == room) pieces.emplace_back();
      pieces.back() += c;
    }
  };
  while (!text.empty()) {
    const std::size_t space = std::min(text.find(' '), text.size());
    if (space > 0) add_word(text.substr(0, space));
    text.remove_prefix(std::min(space + 1, text.size()));
  }
  return pieces;
}

}  // namespace

std::size_t columns_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), starts_code_point));
}

void Table::add(std::vector<std::string> cells, Ink ink) {
  PIPEWRIGHT_ASSERT(cells.size() == columns_.size(), "a table row has the wrong number of cells");
  for (std::string& cell : cells) {
    cell = plain_text(cell);
    std::replace_if(
        cell.begin(), cell.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
  }
  rows_.push_back({std::move(cells), ink});
}

/// How wide the columns are, and which of them share a line.
struct Table::Layout {
  std::vector<std::size_t> widths;
  std::vector<std::size_t> line_of;  // by column
  std::size_t gap = 2;
};

Table::Layout Table::layout(const Terminal& terminal) const {
  Layout layout;
  std::vector<std::size_t>& widths = layout.widths;
  for (const Column& column : columns_) widths.push_back(columns_of(column.title));
  for (const Row& row : rows_) {
    for (std::size_t c = 0; c < row.cells.size(); ++c) {
      widths[c] = std::max(widths[c], columns_of(row.cells[c]));
    }
  }
  layout.line_of.assign(widths.size(), 0);
  const auto width = static_cast<std::size_t>(terminal.width);
  const std::size_t sum = std::accumulate(widths.begin(), widths.end(), std::size_t{0});
  const std::size_t gaps = widths.empty() ? 0 : widths.size() - 1;
  if (!terminal.cuts_rows || sum + 2 * gaps <= width) return layout;
  if (sum + gaps <= width) {
    layout.gap = 1;
    return layout;
  }
  const std::size_t before = sum - widths.back() + 2 * gaps;
  if (columns_.back().align == Align::Left && before + kLeastWords <= width) {
    widths.back() = width - before;
    return layout;
  }
  std::size_t taken = 0;
  for (std::size_t c = 0; c < widths.size(); ++c) {
    const std::size_t line = c == 0 ? 0 : layout.line_of[c - 1];
    const bool fits = c == 0 || taken + layout.gap + widths[c] <= width;
    layout.line_of[c] = fits ? line : line + 1;
    if (c == 0)
      taken = widths[c];
    else
      taken = fits ? taken + layout.gap + widths[c] : kContinuedIndent + widths[c];
    // Alone on its line and still too wide: broken there.
    const std::size_t room = width - (layout.line_of[c] > 0 ? kContinuedIndent : 0);
    widths[c] = std::min(widths[c], room);
  }
  return layout;
}

std::string Table::lines_of(const std::vector<std::string>& cells, const Layout& layout) const {
  std::string text;
  for (std::size_t begin = 0, end = 0; begin < cells.size(); begin = end) {
    const std::size_t line = layout.line_of[begin];
    std::vector<std::vector<std::string>> pieces;
    std::size_t height = 1;
    bool is_empty = true;
    for (end = begin; end < cells.size() && layout.line_of[end] == line; ++end) {
      pieces.push_back(pieces_of(cells[end], layout.widths[end]));
      height = std::max(height, pieces.back().size());
      is_empty = is_empty && cells[end].empty();
    }
    if (is_empty && line > 0) continue;
    for (std::size_t k = 0; k < height; ++k) {
      std::string row(line > 0 ? kContinuedIndent : 0, ' ');
      for (std::size_t c = begin; c < end; ++c) {
        const auto& mine = pieces[c - begin];
        const std::string piece = k < mine.size() ? mine[k] : "";
        const std::string padding(layout.widths[c] - columns_of(piece), ' ');
        if (c > begin) row.append(layout.gap, ' ');
        row += columns_[c].align == Align::Right ? padding + piece : piece + padding;
      }
      row.erase(row.find_last_not_of(' ') + 1);
      text += row + "\n";
    }
  }
  return text;
}

std::string Table::text(const Terminal& terminal) const {
  if (columns_.empty()) return "";
  const Layout how = layout(terminal);
  // Escape codes end with the line, so that none reaches into the next one.
  const auto paint = [&](Ink ink, const std::string& lines) {
    std::string text;
    for (std::size_t begin = 0; begin < lines.size();) {
      const std::size_t end = lines.find('\n', begin);
      text += painted(terminal, ink, std::string_view(lines).substr(begin, end - begin)) + "\n";
      begin = end + 1;
    }
    return text;
  };
  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.push_back(column.title);
  std::string text = paint(Ink::Bold, lines_of(titles, how));
  for (const Row& row : rows_) text += paint(row.ink, lines_of(row.cells, how));
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
