// The journal of a search (`tune --resume FILE`): a first line that says of which job it is, then a
// line for every configuration that was simulated. A search that was broken off goes on from it.
#pragma once

#include <fstream>
#include <string>

#include "core/job.hpp"
#include "core/profile.hpp"
#include "planner/search.hpp"

namespace pipewright::tools {

class SearchJournalFile {
 public:
  /// Reads the file, or begins it. A last line that was cut off is dropped. Throws InputError for a
  /// journal of another job, profile or version, saying where they differ; MachineError where the
  /// file cannot be written.
  SearchJournalFile(std::string path, const Job& job, const Profile* profile);

  /// To search with, as long as this object lives: what it adds goes into the file.
  planner::SearchJournal& journal() { return journal_; }
  std::size_t known() const { return journal_.known.size(); }

 private:
  void read(const std::string& text, const std::string& head);

  std::string path_;
  std::ofstream file_;
  planner::SearchJournal journal_;
};

}  // namespace pipewright::tools
