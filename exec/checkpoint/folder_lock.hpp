// A folder that one run at a time saves into: the system's lock on a file in it, which ends with
// the process, however that ends.
#pragma once

#include <filesystem>

#include "core/base/unfinished_files.hpp"

namespace pipewright::exec {

class FolderLock {
 public:
  /// Makes the folder where it is missing. Throws InputError that names who holds it. On a file
  /// system without locks there is none.
  explicit FolderLock(const std::filesystem::path& folder);
  /// Releases the lock, and removes the folder if it was made here and nothing was put into it.
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  bool try_once();

  std::filesystem::path folder_, file_;
  UnfinishedFile unfinished_;  // file_, once it is ours
  bool made_ = false;
  int descriptor_ = -1;
};

}  // namespace pipewright::exec
