// Files under temporary names, which go away when the process leaves, also where it leaves by
// _exit(): from a signal handler, or because a thread does not come back.
#pragma once

#include <atomic>
#include <cstddef>
#include <string_view>

namespace pipewright {

/// A name that is to go. Announced before the file is made and taken back once it is renamed or
/// removed. Where very many are announced at once, or the name is very long, it is not kept.
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

/// Removes what is announced. May be called in a signal handler; what other threads write
/// meanwhile loses its name.
void remove_unfinished_files() noexcept;

}  // namespace pipewright
