#include "traces/page/columns.hpp"

#include <zlib.h>

#include "core/base/error.hpp"

namespace pipewright::traces {

void append_varint(std::int64_t value, std::string& out) {
  auto rest = (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63);
  while (rest >= 0x80) {
    out += static_cast<char>(rest | 0x80);
    rest >>= 7;
  }
  out += static_cast<char>(rest);
}

void Columns::add(std::string_view name, const std::vector<std::int64_t>& values, Coding coding) {
  const std::size_t before = bytes_.size();
  const bool difference = coding == Coding::Difference;
  std::int64_t last = 0;
  for (const std::int64_t value : values) {
    append_varint(difference ? value - last : value, bytes_);
    last = value;
  }
  directory_.push_back({{"name", std::string(name)},
                        {"count", values.size()},
                        {"bytes", bytes_.size() - before},
                        {"difference", difference}});
}

std::string Columns::packed() const {
  uLongf size = compressBound(bytes_.size());
  std::string out(size, '\0');
  const int status = compress2(reinterpret_cast<Bytef*>(out.data()), &size,
                               reinterpret_cast<const Bytef*>(bytes_.data()), bytes_.size(),
                               Z_DEFAULT_COMPRESSION);
  PIPEWRIGHT_ASSERT(status == Z_OK, "zlib does not pack");
  out.resize(size);
  return base64(out);
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k)
      group = group << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    for (std::size_t k = 0; k < 4; ++k)
      out += i + k <= bytes.size() ? kDigits[group >> (18 - 6 * k) & 63U] : '=';
  }
  return out;
}

}  // namespace pipewright::traces
