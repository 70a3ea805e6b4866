#include "exec/base/durable_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/text_file.hpp"

namespace pipewright::exec {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostOfZlib = std::size_t{1} << 30;  // its counter has 32 bits

[[noreturn]] void cannot(const std::string& what, const fs::path& path, int code) {
  throw MachineError("cannot " + what + " " + path.string() + ": " + std::strerror(code));
}

void flush_folder(const fs::path& folder, const DiskWatch& watch) {
  if (watch) watch("flush folder", folder);
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) cannot("open the folder", folder, errno);
  const int failure = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  // Some file systems have nothing to flush for a folder, and say so.
  if (failure != 0 && failure != EINVAL) cannot("flush the folder", folder, failure);
}

}  // namespace

std::uint32_t crc32_of(std::span<const std::byte> bytes, std::uint32_t before) {
  uLong crc = before;
  while (!bytes.empty()) {
    const std::size_t part = std::min(bytes.size(), kMostOfZlib);
    crc = ::crc32(crc, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(part));
    bytes = bytes.subspan(part);
  }
  return static_cast<std::uint32_t>(crc);
}

std::string crc_text(std::uint32_t value) {
  char text[16];
  std::snprintf(text, sizeof text, "%08x", value);
  return text;
}

DurableFile::DurableFile(const fs::path& folder, std::string_view tag, DiskWatch watch)
    : folder_(folder),
      temporary_(folder / (std::string(tag) + "." + std::to_string(::getpid()) + ".tmp")),
      unfinished_(temporary_.native()),
      watch_(std::move(watch)) {
  tell("create");
  // One that an earlier process with our number left there is nobody's.
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail(errno);
}

DurableFile::~DurableFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void DurableFile::fail(int code) const { cannot("write", temporary_, code); }

void DurableFile::tell(std::string_view what) const {
  if (watch_) watch_(what, temporary_);
}

void DurableFile::write(std::span<const std::byte> bytes) {
  PIPEWRIGHT_ASSERT(descriptor_ >= 0, "a file is written after it was closed");
  crc_ = crc32_of(bytes, crc_);
  size_ += static_cast<std::int64_t>(bytes.size());
  tell("write");
  if (const int failure = write_all(descriptor_, bytes); failure != 0) fail(failure);
}

void DurableFile::commit(const std::string& name) {
  tell("flush");
  if (::fsync(descriptor_) != 0) fail(errno);
  if (::close(std::exchange(descriptor_, -1)) != 0) fail(errno);
  tell("rename");
  if (::rename(temporary_.c_str(), (folder_ / name).c_str()) != 0) fail(errno);
  temporary_.clear();
  unfinished_ = {};
  flush_folder(folder_, watch_);
}

void make_folder(const fs::path& folder, const DiskWatch& watch) {
  std::error_code ignored;
  if (folder.empty() || fs::is_directory(folder, ignored)) return;
  const fs::path above = folder.has_parent_path() ? folder.parent_path() : fs::path(".");
  if (above != folder) make_folder(above, watch);
  if (watch) watch("make folder", folder);
  if (::mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST)
    cannot("make the folder", folder, errno);
  if (!fs::is_directory(folder, ignored)) {
    throw InputError(folder.string(), "", "is no folder; name another one for the checkpoints");
  }
  flush_folder(above, watch);
}

void remove_quietly(const fs::path& path, const DiskWatch& watch) {
  if (watch) watch("remove", path);
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

}  // namespace pipewright::exec
