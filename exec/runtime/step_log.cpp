#include "exec/runtime/step_log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <type_traits>

#include "core/base/error.hpp"

namespace pipewright::exec {

static_assert(std::is_trivially_copyable_v<StepResult>);

/// Has no name any more once it is open, so that nothing is left of it however the process ends.
class StepLog::File {
 public:
  File() {
    std::error_code failed;
    const std::filesystem::path folder = std::filesystem::temp_directory_path(failed);
    if (failed) return;
    std::string name = (folder / "pipewright-steps-XXXXXX").string();
    descriptor_ = ::mkostemp(name.data(), O_CLOEXEC);
    if (descriptor_ >= 0) ::unlink(name.c_str());
  }
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  /// False if there is no file, or no room.
  bool write(std::size_t first, std::span<const StepResult> steps) const {
    auto bytes = std::as_bytes(steps);
    auto at = static_cast<off_t>(first * sizeof(StepResult));
    while (!bytes.empty()) {
      const ssize_t put = ::pwrite(descriptor_, bytes.data(), bytes.size(), at);
      if (put < 0 && errno == EINTR) continue;
      if (put <= 0) return false;
      bytes = bytes.subspan(static_cast<std::size_t>(put));
      at += put;
    }
    return true;
  }

  StepResult read(std::size_t step) const {
    StepResult result;
    const auto at = static_cast<off_t>(step * sizeof result);
    ssize_t got = 0;
    do {
      got = ::pread(descriptor_, static_cast<void*>(&result), sizeof result, at);
    } while (got < 0 && errno == EINTR);
    if (got == static_cast<ssize_t>(sizeof result)) return result;
    throw MachineError(std::string("cannot read back the losses of the steps: ") +
                       (got < 0 ? std::strerror(errno) : "the temporary file is too short"));
  }

 private:
  int descriptor_ = -1;
};

void StepLog::push_back(const StepResult& step) {
  if (recent_.size() >= kInMemory && !has_no_file_) {
    if (!file_) file_ = std::make_shared<File>();
    has_no_file_ = !file_->write(in_file_, recent_);
    if (!has_no_file_) {
      in_file_ += recent_.size();
      recent_.clear();
    }
  }
  recent_.push_back(step);
}

StepResult StepLog::operator[](std::size_t step) const {
  PIPEWRIGHT_ASSERT(step < size(), "a step that has not ended");
  return step < in_file_ ? file_->read(step) : recent_[step - in_file_];
}

}  // namespace pipewright::exec
