// The fields that several formats share: names, choices, times, sizes, paths.
// Each reader throws InputError with file and pointer, as JsonCursor does.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/suggest.hpp"
#include "core/base/units.hpp"

namespace pipewright {

/// The longest duration and the largest size that a file may hold: sums of very many stay within
/// 63 bits.
inline constexpr std::int64_t kMostNanoseconds = 100'000'000'000'000;
inline constexpr std::int64_t kMostBytes = std::int64_t{1} << 53;

/// 1 to 200 bytes, no control characters: a name ends up in tables and on terminals.
std::string read_name(const JsonCursor& value);
Nanoseconds read_duration(const JsonCursor& value);
Bytes read_size(const JsonCursor& value);  // not negative
int read_count(const JsonCursor& value, int least, int most);

/// One of some words; a wrong one gets a suggestion.
template <class Enum>
Enum read_choice(const JsonCursor& value,
                 const std::vector<std::pair<std::string_view, Enum>>& choices) {
  const std::string text = value.string();
  std::vector<std::string_view> names;
  std::string list;
  for (const auto& [name, choice] : choices) {
    if (name == text) {
      return choice;
    }
    names.push_back(name);
    list += (list.empty() ? "one of \"" : ", \"") + std::string(name) + "\"";
  }
  value.fail(list + did_you_mean(text, names));
}

/// Runs `parse`; an InputError without a place (a parser of text) gets that of `value`.
template <class Parse>
auto parsed_at(const JsonCursor& value, Parse parse) {
  try {
    return parse();
  } catch (const InputError& error) {
    if (!error.file().empty() || !error.pointer().empty()) {
      throw;
    }
    throw InputError(value.file(), value.pointer(), error.message());
  }
}

/// A path as an absolute one; a relative one starts at the folder of the file it stands in. ""
/// stays "".
std::string read_path(const JsonCursor& value);
std::filesystem::path resolved_path(const JsonCursor& value, const std::string& path);

/// What files of their own describe ("model", "cluster"): an object, the name of one of `presets`,
/// or the path of a file. `read` takes the object, `preset` the name.
template <class Read, class Preset>
auto read_preset_or_file(const JsonCursor& value, const std::vector<std::string_view>& presets,
                         Read read, Preset preset) {
  if (value.value().is_object()) return read(value);
  if (!value.value().is_string()) value.fail("an object, a preset's name or the path of a file");
  const std::string text = value.string();
  if (std::ranges::count(presets, text)) return preset(text);
  const std::string path = read_path(value);
  const bool names_file = text.ends_with(".json") || text.find('/') != std::string::npos;
  std::error_code ignored;
  if (!names_file || !std::filesystem::exists(path, ignored)) {
    std::string list;
    for (std::string_view name : presets) list += (list.empty() ? "" : ", ") + std::string(name);
    value.fail("an object, a preset (" + list + ") or the path of a file that exists" +
               did_you_mean(text, presets));
  }
  const Json document = parse_json(read_text(path), path);
  return read(JsonCursor(document, path));
}

/// A document needs its schema tag; inside another document the tag may be left out.
void require_schema_where_document(const JsonCursor& value, std::string_view kind);

}  // namespace pipewright
