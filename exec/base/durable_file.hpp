// A file that is on the disk, whole and under its name, or is not there at all, also if the process
// or the machine stops in between: written under a temporary name, flushed (fsync), renamed, and
// then the folder flushed, because the name lies in the folder (POSIX says no less: rename() alone
// promises nothing of what survives a power cut).
//
// A DurableFile belongs to one thread. Failures are MachineErrors that name the file and the
// system's reason; the temporary file is then removed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>

#include "core/base/unfinished_files.hpp"

namespace pipewright::exec {

/// Called before each change of the disk, with what is about to happen: "create", "write", "flush",
/// "rename", "flush folder", "remove", "make folder". May be empty.
using DiskWatch = std::function<void(std::string_view what, const std::filesystem::path& path)>;

/// CRC-32 (that of gzip, polynomial 0x04c11db7) of the bytes; `before`: the CRC-32 of what precedes
/// them.
std::uint32_t crc32_of(std::span<const std::byte> bytes, std::uint32_t before = 0);
/// As our files write it: eight hexadecimal digits.
std::string crc_text(std::uint32_t value);

class DurableFile {
 public:
  /// Creates a temporary file in the folder; `tag` keeps apart those who write there at once.
  DurableFile(const std::filesystem::path& folder, std::string_view tag, DiskWatch watch = {});
  /// Removes the file unless commit() has given it its name.
  ~DurableFile();
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  void write(std::span<const std::byte> bytes);
  std::int64_t size() const { return size_; }
  std::uint32_t crc() const { return crc_; }

  /// Flushes, gives the file its name in the folder (an older one is replaced) and flushes the
  /// folder. Nothing may be written after it.
  void commit(const std::string& name);

 private:
  [[noreturn]] void fail(int code) const;
  void tell(std::string_view what) const;

  std::filesystem::path folder_, temporary_;
  UnfinishedFile unfinished_;  // temporary_
  DiskWatch watch_;
  int descriptor_ = -1;
  std::int64_t size_ = 0;
  std::uint32_t crc_ = 0;
};

/// Makes the folder and those above it, and flushes the folder above each new one. Does nothing if
/// it is there.
void make_folder(const std::filesystem::path& folder, const DiskWatch& watch = {});
/// Removes a file or a folder with all in it; what cannot be removed stays.
void remove_quietly(const std::filesystem::path& path, const DiskWatch& watch = {});

}  // namespace pipewright::exec
