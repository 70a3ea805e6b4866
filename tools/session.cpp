#include "tools/session.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.hpp"
#include "tools/interrupt.hpp"

namespace pipewright::tools {
namespace {
constexpr std::size_t kGather = 1 << 16;
}

void Session::write_all(int descriptor, std::string_view text) {
  while (!text.empty() && !reader_gone_) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EPIPE) {
      reader_gone_ = true;  // `pipewright … | head`: whoever read has seen enough
    } else if (errno != EINTR) {
      throw MachineError(std::string("standard output: ") + std::strerror(errno));
    }
  }
}

void Session::print(std::string_view text) {
  pending_ += text;
  if (pending_.size() >= kGather) flush();
}

void Session::flush() {
  clear_progress();
  const std::string text = std::move(pending_);
  pending_.clear();
  write_all(STDOUT_FILENO, text);
}

void Session::print_result(const Json& fields) {
  Json document = {{"schema", "pipewright.result/1"}};
  document.update(fields);
  print(to_text(document));
}

void Session::note(std::string_view text) {
  if (quiet_) return;
  flush();
  const std::string line = std::string(text) + "\n";
  // A closed stderr must not change the answer.
  [[maybe_unused]] const ssize_t ignored = write(STDERR_FILENO, line.data(), line.size());
}

void Session::progress(std::string_view text) {
  if (quiet_ || !terminal_.progress) return;
  const std::string line = "\r\x1b[K" + std::string(text);
  [[maybe_unused]] const ssize_t ignored = write(STDERR_FILENO, line.data(), line.size());
  progress_shown_ = true;
}

void Session::clear_progress() {
  if (!progress_shown_) return;
  [[maybe_unused]] const ssize_t ignored = write(STDERR_FILENO, "\r\x1b[K", 4);
  progress_shown_ = false;
}

void Session::save(const std::filesystem::path& path, std::string_view bytes) {
  const InterruptScope scope;
  write_file(path, bytes);
  InterruptScope::check();
}

}  // namespace pipewright::tools
