// Reads whole files, and writes bytes. Reading has limits, so that an endless input is refused
// before memory runs out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace pipewright {

/// The most that is read of a document (JSON, CSV).
inline constexpr std::uint64_t kMostTextBytes = std::uint64_t{256} << 20;

/// Opens a file to read from; "-" is standard input. The caller closes the descriptor unless it is
/// 0. Throws InputError naming the path if it cannot be read, is a folder, or a device other than a
/// terminal and /dev/null.
int open_to_read(const std::string& path);

/// The file's bytes. Throws as open_to_read(), and InputError for more than `most_bytes`.
std::string read_text(const std::string& path, std::uint64_t most_bytes);

/// The bytes of a plain file, whatever its size, or of a pipe of at most kMostTextBytes. Throws as
/// read_text().
std::string read_data(const std::string& path);

/// Writes all bytes to the descriptor. Returns 0, or the errno of the failure; some of the bytes
/// may be written then.
int write_all(int descriptor, std::span<const std::byte> bytes);

}  // namespace pipewright
