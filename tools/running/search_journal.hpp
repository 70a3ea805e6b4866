// The journal of searches (`tune --resume FILE`): a first line that says of what it is, then a line
// for every configuration that was simulated, of any job, or measured (`--measure`), of one. It
// only grows, so that a search that was interrupted at any moment can go on from all that it knew;
// each line carries a seal.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "core/base/json.hpp"
#include "core/plan/job.hpp"
#include "core/plan/profile.hpp"
#include "planner/search/search.hpp"

namespace pipewright::tools {

/// What a journal holds: its records, and how many of its bytes are whole lines of it. The bytes
/// behind those are a line that was being written when its writer was stopped.
struct JournalContent {
  std::map<std::string, std::string> known;  // as planner::SearchJournal::known
  std::size_t whole_bytes = 0;
};

/// What all records of a journal depend on. Those of simulations name what else they depend on
/// themselves, and may be of any job.
std::string head_of_searches();
/// `asked`: what measurements depend on beside job and profile.
std::string head_of_measurements(const Job& job, const Profile* profile, const Json& asked);

/// The line with its seal and its end. Records are sealed by what the head says too.
std::string sealed_head(const std::string& head);
std::string sealed_record(const std::string& head, const std::string& configuration,
                          const std::string& record);

/// Reads the journal that `head` describes. Throws InputError naming `file` for another one, with
/// the place where they differ, and for a line that is not as it was written, with its number.
JournalContent read_journal(std::string_view text, const std::string& head,
                            const std::string& file);

class SearchJournalFile {
 public:
  /// Reads the file, or begins it with this head, and keeps it locked. `flushes`: each record is on
  /// the disk before the next thing is done. Throws as read_journal(); InputError where another
  /// search writes it or it is no plain file; MachineError where it cannot be written.
  SearchJournalFile(std::string path, const std::string& head, bool flushes = false);
  ~SearchJournalFile();
  SearchJournalFile(const SearchJournalFile&) = delete;
  SearchJournalFile& operator=(const SearchJournalFile&) = delete;

  /// To search with, as long as this object lives: what it adds goes into the file.
  planner::SearchJournal& journal() { return journal_; }

 private:
  /// Opens and locks it.
  explicit SearchJournalFile(std::string path);
  void append(std::string_view line);

  std::string path_;
  int descriptor_ = -1;
  std::size_t size_ = 0;  // of the file
  bool flushes_ = false;
  planner::SearchJournal journal_;
};

}  // namespace pipewright::tools
