#include "core/base/json_fields.hpp"

#include <algorithm>

namespace pipewright {

std::string read_name(const JsonCursor& value) {
  constexpr std::size_t kLongest = 200;
  const std::string name = value.string();
  const bool printable = std::none_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
  if (name.empty() || name.size() > kLongest || !printable) {
    value.fail("a name of 1 to 200 bytes without control characters");
  }
  return name;
}

Nanoseconds read_duration(const JsonCursor& value) {
  return Nanoseconds(value.integer(0, kMostNanoseconds));
}

Bytes read_size(const JsonCursor& value) { return Bytes(value.integer(0, kMostBytes)); }

int read_count(const JsonCursor& value, int least, int most) {
  return static_cast<int>(value.integer(least, most));
}

std::filesystem::path resolved_path(const JsonCursor& value, const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(value.file()).parent_path();
  return std::filesystem::absolute(folder / path).lexically_normal();
}

std::string read_path(const JsonCursor& value) {
  const std::string path = value.string();
  if (path.find('\0') != std::string::npos) {
    value.fail("a path without a zero byte");
  }
  return path.empty() ? path : resolved_path(value, path).string();
}

void require_schema_where_document(const JsonCursor& value, std::string_view kind) {
  if (value.pointer().empty() || value.find("schema")) {
    require_schema(value, kind);
  }
}

}  // namespace pipewright
