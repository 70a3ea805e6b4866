// gzip in memory, through zlib. Pure functions; any number of threads may call them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pipewright::traces {

/// The same input gives the same bytes: the header holds no time and no name.
std::string gzip(std::string_view bytes);

bool is_gzip(std::string_view bytes);

/// Throws InputError naming `file` if the bytes are damaged or cut short, or would unpack to more
/// than `most_bytes`.
std::string gunzip(std::string_view bytes, const std::string& file, std::uint64_t most_bytes);

}  // namespace pipewright::traces
