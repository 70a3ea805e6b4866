// Runs the built `pipewright` as a user would: a process of its own, in a folder of its own.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace pipewright::test {

/// What a finished command left behind.
struct CommandResult {
  int status = -1;  // exit status; 128 + number if a signal ended it
  std::string out, err;
};

/// An empty folder that goes away with the object.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void write(const std::string& name, const std::string& text) const;
  /// Names of what lies in it, sorted.
  std::vector<std::string> names() const;

 private:
  std::filesystem::path path_;
};

/// Runs `pipewright WORDS` through /bin/sh in `folder`; quoting and redirection are the shell's.
/// NO_COLOR and COLUMNS are not set, LANG is C.UTF-8.
CommandResult pipewright(const std::string& words, const Folder& folder);
/// Runs a whole shell line; $PW is the command. mpirun does not mind root.
CommandResult shell(const std::string& line, const Folder& folder);

/// For `shell`. Under a sanitizer leaks are not looked for: Open MPI leaves some of its memory to
/// the end of the process.
inline constexpr const char* kMpirun = "ASAN_OPTIONS=detect_leaks=0 mpirun --oversubscribe ";

}  // namespace pipewright::test
