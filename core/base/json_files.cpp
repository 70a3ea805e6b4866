// Files as a whole: reading, writing under a temporary name, and the text of a document.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/base/descriptor.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/plain_text.hpp"
#include "core/base/text_file.hpp"
#include "core/base/unfinished_files.hpp"

namespace pipewright {

namespace {

std::string system_reason(int code) { return std::strerror(code); }

[[noreturn]] void write_failed(const std::filesystem::path& path, const std::string& why) {
  throw MachineError("cannot write " + path.string() + ": " + why);
}

/// Opens a new file beside `path`; `temporary` and `unfinished` get its name.
int open_temporary(const std::filesystem::path& path, std::filesystem::path& temporary,
                   UnfinishedFile& unfinished) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    temporary = path;
    temporary += "." + std::to_string(::getpid()) + "-" + std::to_string(attempt) + ".tmp";
    const int descriptor = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor >= 0) unfinished = UnfinishedFile(temporary.native());
    if (descriptor >= 0 || errno != EEXIST) {
      return descriptor;
    }
  }
  return -1;
}

/// A pipe or a terminal has no old content to keep and no place for a second name.
void write_in_place(const std::filesystem::path& path, std::string_view bytes) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  int failure = file.get() < 0 ? errno : write_all(file.get(), std::as_bytes(std::span(bytes)));
  if (failure == 0 && file.close() != 0) {
    failure = errno;
  }
  if (failure != 0) {
    write_failed(path, system_reason(failure));
  }
}

bool is_plain(const Json& value) { return !value.is_structured() || value.empty(); }

/// Controls that JSON lets stand as they are, written as escapes: a document may be shown too.
std::string with_escapes(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::string_view sequence = text.substr(0, std::max<std::size_t>(1, utf8_length(text)));
    if (is_control(sequence)) {
      out += Json(sequence).dump(-1, ' ', true).substr(1, 6);
    } else {
      out += sequence;
    }
    text.remove_prefix(sequence.size());
  }
  return out;
}

std::string scalar_text(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  const bool is_ascii =
      std::all_of(text.begin(), text.end(), [](char c) { return c > 0 && c < 0x7F; });
  return is_ascii ? text : with_escapes(text);
}

void append_text(const Json& value, std::size_t indent, std::string& out) {
  if (is_plain(value)) {
    out += scalar_text(value);
    return;
  }
  bool one_line = value.is_array();
  for (const Json& element : value) {
    one_line = one_line && is_plain(element);
  }
  out += value.is_array() ? '[' : '{';
  bool first = true;
  for (auto member = value.begin(); member != value.end(); ++member) {
    if (!first) {
      out += one_line ? ", " : ",";
    }
    first = false;
    if (!one_line) {
      out += '\n';
      out.append(indent + 2, ' ');
    }
    if (value.is_object()) {
      out += scalar_text(Json(member.key())) + ": ";
    }
    append_text(member.value(), indent + 2, out);
  }
  if (!one_line) {
    out += '\n';
    out.append(indent, ' ');
  }
  out += value.is_array() ? ']' : '}';
}

}  // namespace

void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (std::filesystem::is_directory(status)) {
    write_failed(path, "it is a folder");
  }
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    write_in_place(path, bytes);
    return;
  }
  // Through a symbolic link: the file it names is replaced, the link stays.
  std::filesystem::path target = path;
  if (std::filesystem::is_symlink(path, ignored) && std::filesystem::exists(status)) {
    target = std::filesystem::canonical(path, ignored);
  }
  std::filesystem::path temporary;
  UnfinishedFile unfinished;
  Descriptor file(open_temporary(target, temporary, unfinished));
  if (file.get() < 0) {
    write_failed(path, system_reason(errno));
  }
  int failure = write_all(file.get(), std::as_bytes(std::span(bytes)));
  if (failure == 0 && file.close() != 0) {
    failure = errno;
  }
  if (failure == 0 && ::rename(temporary.c_str(), target.c_str()) != 0) {
    failure = errno;
  }
  if (failure != 0) {
    ::unlink(temporary.c_str());
    write_failed(path, system_reason(failure));
  }
}

std::string to_text(const Json& document) {
  std::string out;
  append_text(document, 0, out);
  out += '\n';
  return out;
}

}  // namespace pipewright
