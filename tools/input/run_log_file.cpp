#include "tools/input/run_log_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "core/base/error.hpp"
#include "core/base/text_file.hpp"

namespace pipewright::tools {
namespace {

constexpr std::size_t kLogPiece = 1 << 16;

std::string start_of(const std::string& path) {
  const Descriptor file(open_to_read(path));
  std::array<char, 256> start{};
  const ssize_t size = ::pread(file.get(), start.data(), start.size(), 0);
  return {start.data(), static_cast<std::size_t>(size < 0 ? 0 : size)};
}

bool is_plain_file(const std::string& path) {
  std::error_code unknown;
  return std::filesystem::is_regular_file(path, unknown);
}

/// Complains where it is not; there is a job behind a log, and a user who has mistyped its name.
const std::string& require_run_log(const std::string& path) {
  static const std::string kExpected =
      "expected the log of a run, as run --log writes it and --watch follows it";
  std::error_code unknown;
  if (!std::filesystem::exists(path, unknown))
    throw InputError(path, "", "is not there; " + kExpected);
  if (!is_plain_file(path)) throw InputError(path, "", "is no plain file; " + kExpected);
  if (is_run_log(path)) return path;
  throw InputError(path, "",
                   (start_of(path).empty() ? "is empty; " : "is something else; ") + kExpected);
}

}  // namespace

bool is_run_log(const std::string& path) {
  return is_plain_file(path) && begins_run_log(start_of(path));
}

RunLogFile::RunLogFile(const std::string& path)
    : path_(path), file_(open_to_read(require_run_log(path))), lines_(path) {
  read_on();
  if (log().runs == 0) throw InputError(path, "line 1", "has no end yet; try again");
}

bool RunLogFile::read_on() {
  const std::int64_t before = taken_;
  std::string piece(kLogPiece, '\0');
  for (;;) {
    const ssize_t got = ::pread(file_.get(), piece.data(), piece.size(), taken_);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw InputError(path_, "", std::strerror(errno));
    if (got == 0) break;
    taken_ += got;
    lines_.add(std::string_view(piece).substr(0, static_cast<std::size_t>(got)));
  }
  lines_.require_sound();
  if (::lseek(file_.get(), 0, SEEK_END) < taken_)
    throw InputError(path_, "", "has become shorter while it was read; start again");
  return taken_ != before;
}

bool RunLogFile::may_grow() const {
  if (log().head.host != name_of_this_host()) return true;
  struct flock lock {};
  lock.l_type = F_RDLCK;
  lock.l_whence = SEEK_SET;
  return ::fcntl(file_.get(), F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

std::string name_of_this_host() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "";
  return name.data();
}

}  // namespace pipewright::tools
