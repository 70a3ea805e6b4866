#include "exec/checkpoint/folder_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <string>
#include <utility>

#include "core/base/error.hpp"
#include "exec/base/durable_file.hpp"

namespace pipewright::exec {
namespace {

constexpr std::size_t kMostOfHolder = 200;

/// "process 4711 on host, since 2026-11-22 18:40:12 UTC"
std::string holder_text() {
  char host[128] = "";
  if (gethostname(host, sizeof host - 1) != 0 || *host == '\0') std::strcpy(host, "this machine");
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char since[64];
  std::strftime(since, sizeof since, "%Y-%m-%d %H:%M:%S UTC", &parts);
  return "process " + std::to_string(getpid()) + " on " + host + ", since " + since;
}

/// What the holder has written: nothing yet, perhaps, and printable whatever it is.
std::string read_holder(int descriptor) {
  char text[kMostOfHolder];
  const ssize_t size = pread(descriptor, text, sizeof text, 0);
  std::string holder;
  for (ssize_t i = 0; i < size && text[i] != '\n'; ++i)
    holder += text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
  return holder.empty() ? "another run" : holder;
}

bool is_file_at(int descriptor, const std::filesystem::path& path) {
  struct stat held {
  }, there{};
  return fstat(descriptor, &held) == 0 && lstat(path.c_str(), &there) == 0 &&
         held.st_ino == there.st_ino && held.st_dev == there.st_dev;
}

}  // namespace

FolderLock::FolderLock(const std::filesystem::path& folder)
    : folder_(folder), file_(folder / "saving.lock") {
  std::error_code ignored;
  made_ = !std::filesystem::exists(folder, ignored);
  make_folder(folder);
  // The one before may take its file away between our opening and our locking it.
  while (!try_once()) {
  }
}

/// False if the file that was locked is not the folder's any more.
bool FolderLock::try_once() {
  descriptor_ = ::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (descriptor_ < 0)
    throw MachineError("cannot write " + file_.string() + ": " + std::strerror(errno));
  if (flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    const int failure = errno;
    const std::string holder = read_holder(descriptor_);
    ::close(std::exchange(descriptor_, -1));
    if (failure != EWOULDBLOCK) return true;
    throw InputError(folder_.string(), "",
                     holder +
                         " saves its checkpoints here; name another folder, or wait for "
                         "that run to end");
  }
  if (!is_file_at(descriptor_, file_)) {
    ::close(std::exchange(descriptor_, -1));
    return false;
  }
  unfinished_ = UnfinishedFile(file_.native());
  const std::string holder = holder_text() + "\n";
  // Saying who holds it only helps the reader: the lock holds on a full disk, too.
  static_cast<void>(ftruncate(descriptor_, 0) == 0 &&
                    pwrite(descriptor_, holder.data(), holder.size(), 0) < 0);
  return true;
}

FolderLock::~FolderLock() {
  std::error_code ignored;
  if (descriptor_ >= 0 && is_file_at(descriptor_, file_)) ::unlink(file_.c_str());
  if (made_) ::rmdir(folder_.c_str());  // which refuses unless it is empty
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace pipewright::exec
