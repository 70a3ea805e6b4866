#include "exec/collectives/threads.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <string>

#include "core/base/error.hpp"
#include "exec/base/buffer.hpp"
#include "exec/collectives/posting.hpp"
#include "exec/collectives/shared_group.hpp"

namespace pipewright::exec::collectives {
namespace {

/// What is on its way, by the member that it goes to, and name.
struct Post {
  std::mutex mutex;
  std::vector<std::map<std::string, std::deque<std::vector<std::byte>>>> to;
};

class ThreadsGroup final : public SharedGroup, public Posting {
 public:
  ThreadsGroup(const Board::Place& place, std::shared_ptr<void> memory, std::shared_ptr<Post> post)
      : SharedGroup(place, std::move(memory)), post_(std::move(post)) {}

  void post(const std::string& name, std::span<const std::byte> bytes) override {
    const std::lock_guard lock(post_->mutex);
    auto& next = post_->to[index_of((member() + 1) % members())];
    next[name].emplace_back(bytes.begin(), bytes.end());
  }
  void collect(const std::string& name, std::span<std::byte> bytes) override {
    const std::lock_guard lock(post_->mutex);
    auto& own = post_->to[index_of(member())][name];
    if (own.empty() || own.front().size() != bytes.size())
      throw RunError("member " + std::to_string(member()) + " of a group takes " + name +
                     ", which the one before it has not sent");
    std::copy(own.front().begin(), own.front().end(), bytes.begin());
    own.pop_front();
  }

 private:
  const std::shared_ptr<Post> post_;
};

}  // namespace

std::vector<std::unique_ptr<Group>> groups_of_threads(int members, const Look& look) {
  const auto memory = std::make_shared<std::vector<std::byte, AlignedAllocator<std::byte>>>(
      Board::bytes(members, 0));
  const auto post = std::make_shared<Post>();
  post->to.resize(index_of(members));
  std::vector<std::unique_ptr<Group>> groups;
  for (int m = 0; m < members; ++m) {
    groups.push_back(std::make_unique<ThreadsGroup>(
        Board::Place{.memory = memory->data(), .member = m, .members = members, .look = look},
        memory, post));
  }
  return groups;
}

}  // namespace pipewright::exec::collectives
