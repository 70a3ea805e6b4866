#include "tools/running/search_journal.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <span>

#include "core/base/error.hpp"
#include "core/base/text_file.hpp"
#include "core/model/difference.hpp"
#include "exec/base/durable_file.hpp"

namespace pipewright::tools {
namespace {

constexpr std::string_view kSchema = "pipewright.journal/3";          // of searches
constexpr std::string_view kMeasuredSchema = "pipewright.journal/2";  // of measurements
constexpr std::size_t kSealLetters = 8;

std::uint32_t crc_of(std::string_view text, std::uint32_t before = 0) {
  return exec::crc32_of(std::as_bytes(std::span(text)), before);
}

std::string line_of(std::string_view body, std::uint32_t crc) {
  return exec::crc_text(crc) + "\t" + std::string(body) + "\n";
}

/// The text after the seal, or nullopt where the seal does not fit it. `before`: for a record, the
/// head's checksum.
std::optional<std::string_view> body_of(std::string_view line, std::uint32_t before = 0) {
  if (line.size() <= kSealLetters || line[kSealLetters] != '\t') return std::nullopt;
  const std::string_view body = line.substr(kSealLetters + 1);
  const std::string expected = line_of("", crc_of(body, before));
  if (line.substr(0, kSealLetters) != std::string_view(expected).substr(0, kSealLetters))
    return std::nullopt;
  return body;
}

[[noreturn]] void refuse_head(std::string_view line, const std::string& head,
                              const std::string& file) {
  const auto body = body_of(line);
  const Json first = Json::parse(body.value_or(line), nullptr, false);
  if (body && first.is_object()) {
    throw InputError(
        file, "",
        "this journal is of another search (" +
            document_difference(first, "the journal", Json::parse(head), "this search") +
            "); name another file");
  }
  if (line.find("\"pipewright.journal/") == line.npos)
    throw InputError(file, "", "this is no journal of a search; name another file");
  throw InputError(file, "line 1",
                   first.is_object()
                       ? "this journal is of an older version of pipewright; name another file"
                       : "says of which search the journal is, and was damaged or altered; name "
                         "another file");
}

[[noreturn]] void refuse_record(const std::string& file, std::size_t line) {
  const std::string number = std::to_string(line);
  throw InputError(file, "line " + number,
                   "this record was damaged or altered; take the line out (sed -i " + number +
                       "d) and its configuration is looked at again, or name another file");
}

/// Keeps a record, a line without its end; false: it is not as it was written.
bool take_record(std::string_view line, std::uint32_t head_crc, JournalContent& content) {
  const auto body = body_of(line, head_crc);
  if (!body) return false;
  const std::size_t tab = body->find('\t');
  if (tab == body->npos) return false;
  const Json configuration = Json::parse(body->substr(0, tab), nullptr, false);
  if (!configuration.is_string()) return false;
  content.known[configuration.get<std::string>()] = body->substr(tab + 1);
  return true;
}

}  // namespace

std::string head_of_searches() {
  return Json{{"schema", kSchema}, {"version", PIPEWRIGHT_VERSION}}.dump();
}

std::string head_of_measurements(const Job& job, const Profile* profile, const Json& asked) {
  Json measured = to_json(job);
  for (const char* key : {"tuner_load_path", "tuner_save_path", "tuner_run_mode", "profile_path"})
    measured.erase(key);
  return Json{{"schema", kMeasuredSchema},
              {"version", PIPEWRIGHT_VERSION},
              {"job", std::move(measured)},
              {"profile", profile != nullptr ? to_json(*profile) : Json(nullptr)},
              {"measure", asked}}
      .dump();
}

std::string sealed_head(const std::string& head) { return line_of(head, crc_of(head)); }

std::string sealed_record(const std::string& head, const std::string& configuration,
                          const std::string& record) {
  const std::string body = Json(configuration).dump() + '\t' + record;
  return line_of(body, crc_of(body, crc_of(head)));
}

JournalContent read_journal(std::string_view text, const std::string& head,
                            const std::string& file) {
  JournalContent content;
  const std::string first = sealed_head(head);
  if (std::string_view(first).starts_with(text) && text.size() < first.size()) return content;
  if (!text.starts_with(first)) refuse_head(text.substr(0, text.find('\n')), head, file);
  content.whole_bytes = first.size();
  const std::uint32_t head_crc = crc_of(head);
  for (std::size_t number = 2; content.whole_bytes < text.size(); ++number) {
    const std::size_t end = text.find('\n', content.whole_bytes);
    if (end == text.npos) break;  // it was being written
    const auto line = text.substr(content.whole_bytes, end - content.whole_bytes);
    if (!take_record(line, head_crc, content)) refuse_record(file, number);
    content.whole_bytes = end + 1;
  }
  return content;
}

SearchJournalFile::SearchJournalFile(std::string path, const std::string& head, bool flushes)
    : SearchJournalFile(std::move(path)) {
  flushes_ = flushes;
  const std::string text = read_text(path_);
  JournalContent content = read_journal(text, head, path_);
  // Only what was being written goes: no whole line is ever taken away.
  if (content.whole_bytes < text.size() &&
      ::ftruncate(descriptor_, static_cast<off_t>(content.whole_bytes)) != 0)
    throw MachineError(path_ + ": the journal cannot be written: " + std::strerror(errno));
  size_ = content.whole_bytes;
  if (size_ == 0) append(sealed_head(head));
  journal_.known = std::move(content.known);
  journal_.add = [this, head](const std::string& configuration, const std::string& record) {
    append(sealed_record(head, configuration, record));
    journal_.known[configuration] = record;
  };
}

SearchJournalFile::~SearchJournalFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

SearchJournalFile::SearchJournalFile(std::string path) : path_(std::move(path)) {
  struct stat status {};
  // Looked at before it is opened: to open a pipe or a device may wait, or do something.
  const bool is_there = ::stat(path_.c_str(), &status) == 0;
  if (is_there && !S_ISREG(status.st_mode)) {
    throw InputError(path_, "",
                     std::string(S_ISDIR(status.st_mode) ? "is a folder" : "is no plain file") +
                         "; expected a journal, or the name of a new one");
  }
  descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0)
    throw MachineError(path_ + ": the journal cannot be written: " + std::strerror(errno));
  // Not all file systems have locks.
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(descriptor_);
    throw InputError(path_, "",
                     "another search is writing this journal; wait for it, or name "
                     "another file");
  }
}

void SearchJournalFile::append(std::string_view line) {
  int failure = write_all(descriptor_, std::as_bytes(std::span(line)));
  if (failure == 0 && flushes_ && ::fsync(descriptor_) != 0) failure = errno;
  if (failure != 0) {
    // Where even that fails, the next reader finds a line that was being written.
    [[maybe_unused]] const int ignored = ::ftruncate(descriptor_, static_cast<off_t>(size_));
    throw MachineError(path_ + ": the journal cannot be written: " + std::strerror(failure) +
                       "; what it had is kept, and the same command goes on from it");
  }
  size_ += line.size();
}

}  // namespace pipewright::tools
