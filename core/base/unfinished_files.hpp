// Files under temporary names. They are removed when the process ends, also where it ends by
// _exit(): in a signal handler, or because a thread does not come back.
#pragma once

#include <atomic>
#include <cstddef>
#include <string_view>

namespace pipewright {

/// The name of a file to remove if the process ends. Announced before the file is made and taken
/// back once it is renamed or removed. If very many are announced at once, or the name is very
/// long, it is not kept.
class UnfinishedFile {
 public:
  UnfinishedFile() = default;
  explicit UnfinishedFile(std::string_view path);
  ~UnfinishedFile();
  UnfinishedFile(UnfinishedFile&& other) noexcept;
  UnfinishedFile& operator=(UnfinishedFile&& other) noexcept;

 private:
  std::atomic<int>* slot_ = nullptr;
};

/// Removes what is announced. May be called in a signal handler; a file that another thread is
/// writing is removed too.
void remove_unfinished_files() noexcept;

}  // namespace pipewright
