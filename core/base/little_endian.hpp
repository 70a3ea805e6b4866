// Whole numbers as file formats have them, the lowest byte first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pipewright {

/// Of at most eight bytes.
inline std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    value |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return value;
}

}  // namespace pipewright
