// Columns of integers as text inside a page: differences as variable-length bytes, all columns in
// one deflate stream, base64. traces/page/web/decode.js reads it back. Plain data; not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.hpp"

namespace pipewright::traces {

/// How a column is written: each number, or the difference from the one before it (from 0 first).
enum class Coding : std::uint8_t { Plain, Difference };

class Columns {
 public:
  void add(std::string_view name, const std::vector<std::int64_t>& values,
           Coding coding = Coding::Plain);

  /// [{"name", "count", "bytes", "difference"}, …] in the order in which they stand in the stream.
  const Json& directory() const { return directory_; }
  /// zlib's format (RFC 1950), then base64 (RFC 4648). The same columns give the same text.
  std::string packed() const;

 private:
  std::string bytes_;
  Json directory_ = Json::array();
};

/// A number in groups of seven bits, the lowest first, all but the last with the eighth bit set; of
/// a signed one the sign is the lowest bit (LEB128 and zigzag, as in protocol buffers).
void append_varint(std::int64_t value, std::string& out);

std::string base64(std::string_view bytes);

}  // namespace pipewright::traces
