// Files that hold a secret: made for their owner alone (0600), and read only where they are that.
// No name that somebody else has laid out is followed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "exec/base/packing.hpp"

namespace pipewright::exec::tcp {

/// Largest of them.
inline constexpr std::size_t kMostPrivateBytes = std::size_t{1} << 26U;

/// Who may have written a file, by stat(2).
struct FileOwner {
  unsigned user = 0;
  bool is_private = false;  // nobody else may read or write it
};

/// Creates the folder (0700) if it is not there. Throws MachineError if that fails, or if it is not
/// a folder of this user that nobody else may use.
void make_private_folder(const std::filesystem::path& folder);
/// Creates a new file (0600) with those bytes; returns whom the file system says it belongs to.
/// Throws InputError if the name is taken, by a link too, and MachineError if writing fails.
FileOwner write_private_file(const std::filesystem::path& path, std::span<const std::byte> bytes);

struct ReadFile {
  PackedBytes bytes;
  FileOwner owner;
};
enum class Links : std::uint8_t { Followed, Refused };
/// nullopt: there is no such file. Throws InputError for what is not a regular file, or too large,
/// MachineError if it cannot be read.
std::optional<ReadFile> read_private_file(const std::filesystem::path& path, Links links);

}  // namespace pipewright::exec::tcp
