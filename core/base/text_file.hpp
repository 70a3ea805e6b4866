// A file's bytes as a whole: read within limits, as what is endless is refused before memory ends,
// and written.
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

/// Of a plain file all of it, whatever its size; of a pipe at most kMostTextBytes.
std::string read_data(const std::string& path);

/// All bytes into the descriptor; 0, or the errno of what went wrong, when some may have been
/// written.
int write_all(int descriptor, std::span<const std::byte> bytes);

}  // namespace pipewright
