#include "core/base/text_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/units.hpp"

namespace pipewright {
namespace {

constexpr std::size_t kChunk = std::size_t{1} << 16;

/// Closes what open_to_read() opened.
class Opened {
 public:
  explicit Opened(const std::string& path) : descriptor_(open_to_read(path)) {}
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  ~Opened() {
    if (descriptor_ != STDIN_FILENO) ::close(descriptor_);
  }
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

bool is_null_device(const struct stat& status) {
  return major(status.st_rdev) == 1 && minor(status.st_rdev) == 3;
}

void refuse_endless(int descriptor, const std::string& path) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return;
  if (S_ISDIR(status.st_mode)) throw InputError(path, "", "is a folder; expected a file");
  const bool is_harmless =
      !S_ISBLK(status.st_mode) &&
      (!S_ISCHR(status.st_mode) || is_null_device(status) || ::isatty(descriptor) == 1);
  if (!is_harmless) throw InputError(path, "", "is a device; expected a file or a pipe");
}

/// The size of a plain file, else 0.
std::uint64_t plain_size(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) return 0;
  return static_cast<std::uint64_t>(status.st_size);
}

std::string read_descriptor(int descriptor, const std::string& path, std::uint64_t most_bytes) {
  const auto refuse = [&] {
    throw InputError(path, "",
                     "is larger than " +
                         format_bytes(Bytes(static_cast<std::int64_t>(most_bytes))) +
                         ", the most that is read of such a file");
  };
  const std::uint64_t size = plain_size(descriptor);
  if (size > most_bytes) refuse();
  std::string text(size + 1, '\0');
  std::size_t filled = 0;
  for (;;) {
    if (filled == text.size()) text.resize(filled + std::max(filled, kChunk));
    const ssize_t taken = ::read(descriptor, text.data() + filled, text.size() - filled);
    if (taken < 0 && errno != EINTR)
      throw InputError(path, "", std::string("cannot be read: ") + std::strerror(errno));
    filled += static_cast<std::size_t>(std::max<ssize_t>(taken, 0));
    if (filled > most_bytes) refuse();
    if (taken == 0) {
      text.resize(filled);
      return text;
    }
  }
}

}  // namespace

int open_to_read(const std::string& path) {
  // No O_NONBLOCK: on a named pipe this has to wait until somebody writes into it.
  const int descriptor =
      path == "-" ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
  if (descriptor < 0)
    throw InputError(path, "", std::string("cannot be read: ") + std::strerror(errno));
  try {
    refuse_endless(descriptor, path);
  } catch (...) {
    if (descriptor != STDIN_FILENO) ::close(descriptor);
    throw;
  }
  return descriptor;
}

std::string read_text(const std::string& path, std::uint64_t most_bytes) {
  const Opened file(path);
  return read_descriptor(file.get(), path, most_bytes);
}

std::string read_data(const std::string& path) {
  const Opened file(path);
  const std::uint64_t size = plain_size(file.get());
  return read_descriptor(file.get(), path, std::max(size, kMostTextBytes));
}

std::string read_text(const std::string& path) { return read_text(path, kMostTextBytes); }

int write_all(int descriptor, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return 0;
}

}  // namespace pipewright
