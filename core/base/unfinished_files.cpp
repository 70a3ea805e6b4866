#include "core/base/unfinished_files.hpp"

#include <unistd.h>

#include <array>
#include <cstring>
#include <utility>

namespace pipewright {
namespace {

constexpr std::size_t kMostFiles = 64, kLongestPath = 4096;

enum State : int { kFree, kBeingWritten, kAnnounced };

// A signal handler has nothing but globals that exist from the beginning.
std::array<std::atomic<int>, kMostFiles> states{};
std::array<std::array<char, kLongestPath>, kMostFiles> unfinished_paths{};

static_assert(std::atomic<int>::is_always_lock_free);

}  // namespace

UnfinishedFile::UnfinishedFile(std::string_view path) {
  if (path.size() >= kLongestPath) return;
  for (std::size_t i = 0; i < kMostFiles; ++i) {
    int free = kFree;
    if (!states[i].compare_exchange_strong(free, kBeingWritten)) continue;
    std::memcpy(unfinished_paths[i].data(), path.data(), path.size());
    unfinished_paths[i][path.size()] = '\0';
    states[i].store(kAnnounced);
    slot_ = &states[i];
    return;
  }
}

UnfinishedFile::~UnfinishedFile() {
  if (slot_ != nullptr) slot_->store(kFree);
}

UnfinishedFile::UnfinishedFile(UnfinishedFile&& other) noexcept
    : slot_(std::exchange(other.slot_, nullptr)) {}

UnfinishedFile& UnfinishedFile::operator=(UnfinishedFile&& other) noexcept {
  std::swap(slot_, other.slot_);
  return *this;
}

void remove_unfinished_files() noexcept {
  for (std::size_t i = 0; i < kMostFiles; ++i) {
    if (states[i].load() == kAnnounced) ::unlink(unfinished_paths[i].data());
  }
}

}  // namespace pipewright
