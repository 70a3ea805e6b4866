// gzip in memory, through zlib. Pure functions; any number of threads may call them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace pipewright::traces {

/// zlib's windowBits of the gzip format: 15 for the largest window, 16 more for the format.
inline constexpr int kGzipFormat = 15 + 16;
/// As much is packed or unpacked at a time.
inline constexpr std::size_t kGzipPiece = std::size_t{1} << 18;

/// The same input gives the same bytes: the header holds no time and no name.
std::string gzip(std::string_view bytes);

bool is_gzip(std::string_view bytes);

/// Throws InputError naming `file` if the bytes are damaged or cut short, or would unpack to more
/// than `most_bytes`.
std::string gunzip(std::string_view bytes, const std::string& file, std::uint64_t most_bytes);

}  // namespace pipewright::traces
