#include "exec/transports/process/tcp/private_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "core/base/error.hpp"
#include "core/base/text_file.hpp"
#include "exec/transports/process/tcp/socket.hpp"

namespace pipewright::exec::tcp {
namespace {

constexpr mode_t kOthers = S_IRWXG | S_IRWXO;

[[noreturn]] void fail(const std::string& what, const std::filesystem::path& path,
                       int reason = errno) {
  throw MachineError("cannot " + what + " " + path.string() + ": " + std::strerror(reason));
}

FileOwner owner_of(const struct stat& state) {
  return {state.st_uid, (state.st_mode & kOthers) == 0};
}

std::string kind_of(const struct stat& state) {
  if (S_ISDIR(state.st_mode)) return "a folder";
  if (S_ISLNK(state.st_mode)) return "a symbolic link";
  return "a pipe or a device";
}

[[noreturn]] void refuse_kind(const std::filesystem::path& path, const std::string& found) {
  throw InputError(path.string(), "", "expected a regular file, found " + found);
}

}  // namespace

void make_private_folder(const std::filesystem::path& folder) {
  if (mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST) fail("make the folder", folder);
  struct stat state {};
  if (lstat(folder.c_str(), &state) != 0) fail("use the folder", folder);
  if (!S_ISDIR(state.st_mode) || state.st_uid != geteuid() || !owner_of(state).is_private)
    throw MachineError(folder.string() +
                       " is not a folder that belongs to this user alone (mode 0700), so the job's "
                       "token cannot be kept there; remove it, or set PIPEWRIGHT_TOKEN_FILE or "
                       "PIPEWRIGHT_TOKEN for every process");
}

FileOwner write_private_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  const Socket file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!file.is_open() && errno == EEXIST)
    throw InputError(path.string(), "", "is there already, from another run or of somebody else");
  if (!file.is_open()) fail("write", path);
  if (const int failure = pipewright::write_all(file.get(), bytes); failure != 0)
    fail("write", path, failure);
  struct stat state {};
  if (fstat(file.get(), &state) != 0) fail("write", path);
  return owner_of(state);
}

std::optional<ReadFile> read_private_file(const std::filesystem::path& path, Links links) {
  // A pipe that nobody writes to must not be waited for.
  const int follow = links == Links::Refused ? O_NOFOLLOW : 0;
  const Socket file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | follow));
  if (!file.is_open() && errno == ENOENT) return std::nullopt;
  if (!file.is_open() && errno == ELOOP) refuse_kind(path, "a symbolic link");
  if (!file.is_open()) fail("read", path);
  struct stat state {};
  if (fstat(file.get(), &state) != 0) fail("read", path);
  if (!S_ISREG(state.st_mode)) refuse_kind(path, kind_of(state));
  ReadFile read{{}, owner_of(state)};
  std::array<std::byte, 1U << 16U> part;
  while (true) {
    const ssize_t got = ::read(file.get(), part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read", path);
    if (got == 0) return read;
    read.bytes.insert(read.bytes.end(), part.begin(), part.begin() + got);
    if (read.bytes.size() > kMostPrivateBytes)
      throw InputError(path.string(), "", "is larger than anything that a process leaves there");
  }
}

}  // namespace pipewright::exec::tcp
