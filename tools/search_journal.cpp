#include "tools/search_journal.hpp"

#include <filesystem>
#include <sstream>

#include "core/error.hpp"
#include "core/model_difference.hpp"

namespace pipewright::tools {
namespace {

/// What the answers depend on.
Json head_of(const Job& job, const Profile* profile) {
  Json json = to_json(job);
  for (const char* key : {"tuner_load_path", "tuner_save_path", "tuner_run_mode", "profile_path"})
    json.erase(key);
  return {{"schema", "pipewright.journal/1"},
          {"version", PIPEWRIGHT_VERSION},
          {"job", std::move(json)},
          {"profile", profile != nullptr ? to_json(*profile) : Json(nullptr)}};
}

}  // namespace

SearchJournalFile::SearchJournalFile(std::string path, const Job& job, const Profile* profile)
    : path_(std::move(path)) {
  const std::string head = head_of(job, profile).dump();
  std::error_code ignored;
  const bool is_there = std::filesystem::exists(path_, ignored);
  if (is_there) read(read_text(path_), head);
  // Written anew: without what was cut off.
  file_.open(path_, std::ios::trunc);
  file_ << head << '\n';
  for (const auto& [configuration, record] : journal_.known)
    file_ << Json(configuration).dump() << '\t' << record << '\n';
  file_.flush();
  if (!file_) throw MachineError(path_ + ": the journal cannot be written");
  journal_.add = [this](const std::string& configuration, const std::string& record) {
    journal_.known[configuration] = record;
    file_ << Json(configuration).dump() << '\t' << record << '\n' << std::flush;
    if (!file_) throw MachineError(path_ + ": the journal cannot be written");
  };
}

void SearchJournalFile::read(const std::string& text, const std::string& head) {
  std::istringstream lines(text);
  std::string line;
  if (!std::getline(lines, line) || line.empty()) return;
  if (line != head) {
    const Json first = Json::parse(line, nullptr, false);
    if (first.is_discarded() || !first.is_object() || !first.contains("schema")) {
      throw InputError(path_, "", "this is no journal of a search; name another file");
    }
    throw InputError(path_, "",
                     "this journal is of another search (" +
                         document_difference(first, "the journal", Json::parse(head), "the job") +
                         "); name another file");
  }
  while (std::getline(lines, line)) {
    const std::size_t tab = line.find('\t');
    if (lines.eof() || tab == std::string::npos) break;  // cut off
    const Json configuration = Json::parse(line.substr(0, tab), nullptr, false);
    if (!configuration.is_string()) break;
    journal_.known[configuration.get<std::string>()] = line.substr(tab + 1);
  }
}

}  // namespace pipewright::tools
