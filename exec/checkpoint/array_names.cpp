#include "exec/checkpoint/array_names.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

#include "core/base/error.hpp"
#include "core/base/suggest.hpp"

namespace pipewright::exec {
namespace {

constexpr std::int64_t kMostPlaces = 9;
constexpr std::int64_t kMostRows = std::int64_t{1} << 48;

/// What each * of the pattern stands for, the shortest first; nullopt: it is another name.
std::optional<std::vector<std::string>> matched(std::string_view pattern, std::string_view name) {
  const std::size_t star = pattern.find('*');
  if (star == pattern.npos)
    return pattern == name ? std::optional(std::vector<std::string>{}) : std::nullopt;
  if (name.substr(0, star) != pattern.substr(0, star)) return std::nullopt;
  pattern.remove_prefix(star + 1);
  name.remove_prefix(star);
  for (std::size_t length = 0; length <= name.size(); ++length) {
    if (auto rest = matched(pattern, name.substr(length))) {
      rest->insert(rest->begin(), std::string(name.substr(0, length)));
      return rest;
    }
    if (length < name.size() && name[length] == '/') break;
  }
  return std::nullopt;
}

/// "h.{2}.weight" with what stands for {2}. The reader has seen to it that there is one.
std::string filled(const std::string& name, const std::vector<std::string>& stands_for) {
  std::string text;
  for (std::size_t at = 0; at < name.size(); ++at) {
    if (name[at] == '{' && at + 2 < name.size() && name[at + 2] == '}') {
      text += stands_for[static_cast<std::size_t>(name[at + 1] - '1')];
      at += 2;
    } else {
      text += name[at];
    }
  }
  return text;
}

/// Refuses {…} other than {1} to {9}, and those for which the pattern has no *.
void require_places(const JsonCursor& name, std::int64_t stars) {
  const std::string text = name.string();
  if (text.empty()) name.fail("a name");
  for (std::size_t at = text.find('{'); at != text.npos; at = text.find('{', at + 1)) {
    const bool is_place = at + 2 < text.size() && text[at + 2] == '}' && text[at + 1] >= '1' &&
                          text[at + 1] - '0' <= stars;
    if (!is_place)
      name.fail("{1} for what the first * of \"ours\" stands for, which has " +
                std::to_string(stars));
  }
}

}  // namespace

std::vector<std::int64_t> FileArray::shape() const {
  if (!is_matrix) return {elements()};
  return is_transposed ? std::vector{columns, rows} : std::vector{rows, columns};
}

void FileArray::take(std::span<const float> array, std::span<float> tensor) const {
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      const std::int64_t there = is_transposed ? column * rows + row : row * columns + column;
      tensor[static_cast<std::size_t>(there)] =
          array[static_cast<std::size_t>(row * all_columns + first + column)];
    }
  }
}

void FileArray::put(std::span<const float> tensor, std::span<float> array) const {
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      const std::int64_t there = is_transposed ? column * rows + row : row * columns + column;
      array[static_cast<std::size_t>(row * all_columns + first + column)] =
          tensor[static_cast<std::size_t>(there)];
    }
  }
}

ArrayNames::Entry ArrayNames::read_entry(const JsonCursor& value) {
  value.only({"ours", "theirs", "rows", "columns", "transposed"});
  Entry entry;
  entry.pointer = value.pointer();
  entry.ours = value.at("ours").string();
  const std::int64_t stars = std::count(entry.ours.begin(), entry.ours.end(), '*');
  if (stars > kMostPlaces) value.at("ours").fail("at most 9 of *, which {1} to {9} stand for");
  const JsonCursor theirs = value.at("theirs");
  for (const JsonCursor& name :
       theirs.value().is_array() ? theirs.elements() : std::vector{theirs}) {
    require_places(name, stars);
    entry.theirs.push_back(name.string());
  }
  if (entry.theirs.empty()) theirs.fail("a name or several");
  if (const auto rows = value.find("rows")) {
    entry.is_matrix = true;
    entry.rows = rows->integer(1, kMostRows);
  }
  if (const auto transposed = value.find("transposed")) {
    entry.is_transposed = transposed->boolean();
    if (entry.is_transposed && !entry.is_matrix)
      transposed->fail("\"rows\" beside it, those of the matrix here");
  }
  if (const auto columns = value.find("columns")) {
    for (const JsonCursor& count : columns->elements())
      entry.columns.push_back(count.integer(1, kMostRows));
    if (entry.columns.size() != entry.theirs.size())
      columns->fail("as many as \"theirs\" has names, " + std::to_string(entry.theirs.size()));
  }
  return entry;
}

ArrayNames ArrayNames::read(const JsonCursor& document) {
  require_schema(document, "names");
  document.only({"schema", "arrays"});
  ArrayNames names;
  names.file_ = document.file();
  for (const JsonCursor& value : document.at("arrays").elements())
    names.entries_.push_back(read_entry(value));
  return names;
}

std::vector<std::int64_t> ArrayNames::columns_of(const Entry& entry, const std::string& array,
                                                 std::int64_t elements) const {
  const auto parts = static_cast<std::int64_t>(entry.theirs.size());
  const std::string has = array + " has " + std::to_string(elements) + " elements";
  if (elements % entry.rows != 0)
    throw InputError(file_, entry.pointer + "/rows",
                     has + ", which are not so many of " + std::to_string(entry.rows) + " rows");
  const std::int64_t all = elements / entry.rows;
  if (entry.columns.empty()) {
    if (all % parts != 0)
      throw InputError(file_, entry.pointer + "/theirs",
                       has + ", which are not " + std::to_string(parts) +
                           " tensors alike; give their \"columns\"");
    return std::vector(entry.theirs.size(), all / parts);
  }
  const std::int64_t told =
      std::accumulate(entry.columns.begin(), entry.columns.end(), std::int64_t{0});
  if (told != all)
    throw InputError(
        file_, entry.pointer + "/columns",
        has + " in " + std::to_string(all) + " columns, and these are " + std::to_string(told));
  return entry.columns;
}

std::vector<FileArray> ArrayNames::of(const std::string& array, std::int64_t elements) const {
  for (const Entry& entry : entries_) {
    const auto stands_for = matched(entry.ours, array);
    if (!stands_for) continue;
    std::vector<FileArray> tensors;
    std::int64_t first = 0;
    const std::vector<std::int64_t> columns = columns_of(entry, array, elements);
    for (std::size_t part = 0; part < columns.size(); ++part) {
      tensors.push_back({.name = filled(entry.theirs[part], *stands_for),
                         .rows = entry.rows,
                         .all_columns = elements / entry.rows,
                         .first = first,
                         .columns = columns[part],
                         .is_matrix = entry.is_matrix,
                         .is_transposed = entry.is_transposed});
      first += columns[part];
    }
    return tensors;
  }
  return {{.name = array, .all_columns = elements, .columns = elements}};
}

void ArrayNames::require_used(const std::vector<std::string_view>& arrays) const {
  for (const Entry& entry : entries_) {
    const bool is_used = std::ranges::any_of(
        arrays, [&](std::string_view array) { return matched(entry.ours, array).has_value(); });
    if (!is_used)
      throw InputError(file_, entry.pointer + "/ours",
                       "\"" + entry.ours + "\" is no array of the checkpoint" +
                           did_you_mean(entry.ours, arrays));
  }
}

}  // namespace pipewright::exec
