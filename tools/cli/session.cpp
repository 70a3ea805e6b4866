#include "tools/cli/session.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/base/error.hpp"
#include "core/base/plain_text.hpp"
#include "core/base/text_file.hpp"
#include "tools/cli/interrupt.hpp"

namespace pipewright::tools {
namespace {
constexpr std::size_t kGather = 1 << 16;

void write_to_stderr(std::string_view text) {
  // A closed stderr must not change the answer.
  static_cast<void>(pipewright::write_all(STDERR_FILENO, std::as_bytes(std::span(text))));
}

}  // namespace

void Session::write_all(int descriptor, std::string_view text) {
  if (reader_gone_) return;
  const int failure = pipewright::write_all(descriptor, std::as_bytes(std::span(text)));
  // `pipewright … | head`: the reader has seen enough.
  reader_gone_ = failure == EPIPE;
  if (failure != 0 && !reader_gone_)
    throw MachineError(std::string("standard output: ") + std::strerror(failure));
}

void Session::print(std::string_view text) {
  pending_ += shown(terminal_, text);
  if (pending_.size() >= kGather) flush();
}

void Session::flush() {
  clear_progress();
  const std::string text = std::move(pending_);
  pending_.clear();
  if (!stdout_is_a_file_) return write_all(STDOUT_FILENO, text);
  if (!quiet_) write_to_stderr(text);
}

void Session::print_result(const Json& fields) {
  Json document = {{"schema", "pipewright.result/1"}};
  document.update(fields);
  print(to_text(document));
}

/// The list's place is found by its line: no JSON string holds a line feed, and deeper keys are
/// indented more.
void Session::print_result(const Json& fields, const JsonList& list) {
  Json document = {{"schema", "pipewright.result/1"}};
  document.update(fields);
  const std::string text = to_text(document), empty = "\n  \"" + list.key + "\": []";
  const std::size_t at = text.find(empty);
  PIPEWRIGHT_ASSERT(at != text.npos, "the result has no empty array \"" + list.key + "\"");
  const std::size_t open = at + empty.size() - 1;
  print(std::string_view(text).substr(0, open));
  for (std::size_t i = 0; i < list.size && !reader_gone_; ++i) {
    std::string element = to_text(list.element(i));
    element.pop_back();
    for (std::size_t end = 0; (end = element.find('\n', end)) != element.npos; ++end)
      element.insert(end + 1, 4, ' ');
    print((i == 0 ? "\n    " : ",\n    ") + element);
  }
  if (list.size > 0) print("\n  ");
  print(std::string_view(text).substr(open));
}

void Session::note(std::string_view text) {
  if (quiet_) return;
  flush();
  write_to_stderr(plain_text(text) + "\n");
}

void Session::progress(std::string_view text) {
  if (quiet_ || !terminal_.progress) return;
  const std::string line = "\r\x1b[K" + plain_text(text);
  write_to_stderr(line);
  progress_shown_ = true;
}

void Session::clear_progress() {
  if (!progress_shown_) return;
  write_to_stderr("\r\x1b[K");
  progress_shown_ = false;
}

void Session::save(const std::filesystem::path& path, std::string_view bytes) {
  const InterruptScope scope;
  if (path != "-") {
    write_file(path, bytes);
  } else if (stdout_is_a_file_) {
    write_all(STDOUT_FILENO, bytes);
  } else {
    throw InputError("a file called \"-\" is not written; name another");
  }
  InterruptScope::check();
}

void Session::wrote(const std::filesystem::path& path, std::string_view more) {
  if (path != "-") note("wrote " + path.string() + std::string(more));
}

void Session::save_page(const std::filesystem::path& path, std::string_view html) {
  save(path, html);
  wrote(path, "   (open it in a browser)");
}

}  // namespace pipewright::tools
