// Reading and writing Pipewright's JSON files: every complaint names the file
// and the JSON pointer, unknown keys are refused with a suggestion, and a file
// is written whole or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pipewright {

/// Keys keep the order in which they were written, so that the same input gives
/// the same bytes.
using Json = nlohmann::ordered_json;

/// One value of a document together with where it stands. Cheap to copy; the
/// document must outlive it. Every getter throws InputError(file, pointer,
/// "expected …, found …").
class JsonCursor {
 public:
  JsonCursor(const Json& value, std::string file, std::string pointer = "");

  const Json& value() const { return *value_; }
  const std::string& file() const { return file_; }
  const std::string& pointer() const { return pointer_; }

  /// The member, which has to be there.
  JsonCursor at(std::string_view key) const;
  std::optional<JsonCursor> find(std::string_view key) const;
  std::vector<JsonCursor> elements() const;                         // of an array
  std::vector<std::pair<std::string, JsonCursor>> members() const;  // of an object

  std::string string() const;
  bool boolean() const;
  std::int64_t integer(std::int64_t least, std::int64_t most) const;
  double number(double least, double most) const;

  /// Refuses members whose key is not in `known`, with a "did you mean".
  void only(const std::vector<std::string_view>& known) const;
  [[noreturn]] void fail(const std::string& expected) const;

 private:
  const Json* value_;
  std::string file_, pointer_;
};

/// Reads a whole file ("-": standard input). Throws InputError if it cannot be
/// read.
std::string read_text(const std::string& path);
/// Parses text; a syntax error names line and column. Duplicate keys and
/// nesting beyond 200 levels are refused.
Json parse_json(std::string_view text, const std::string& file);
/// Checks "schema": "pipewright.<kind>/1", or any up to `newest`; names what it found, and the
/// major version if that is the difference.
void require_schema(const JsonCursor& document, std::string_view kind, int newest = 1);

/// Writes to a temporary name beside `path` and renames it; on any failure
/// throws MachineError and leaves nothing behind.
void write_file(const std::filesystem::path& path, std::string_view bytes);
/// Two-space indent, trailing newline; arrays of plain numbers and strings on
/// one line.
std::string to_text(const Json& document);

}  // namespace pipewright
