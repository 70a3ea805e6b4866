// What a profiler's library tells of GPUs' work, brought together: of each kernel, copy and
// clearing a record, and of each call that put one there a record of what the calling thread was
// about. They come from any thread, in any order and in buffers that tear them apart; a graph's
// work names its node instead, and a node is told of when it is captured, and again when it is
// copied.
//
// Knows nothing of CUDA, so tests have the module's own. Any thread may call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "exec/devices/cuda/module_api.h"

namespace pipewright::exec::cuda {

/// What the calling thread is about: 0 for nothing.
class AboutStack {
 public:
  void begin(std::uint64_t what) { open_.push_back(what); }
  void end() {
    if (!open_.empty()) open_.pop_back();
  }
  std::uint64_t now() const { return open_.empty() ? 0 : open_.back(); }

 private:
  std::vector<std::uint64_t> open_;
};

class ActivityRecords {
 public:
  /// Forgets all; of what nobody takes at most `most` are kept.
  void begin(std::size_t most) {
    const std::scoped_lock lock(mutex_);
    most_ = most;
    dropped_ = 0;
    work_.clear();
    calls_.clear();
    older_calls_.clear();
    nodes_.clear();
  }

  void note_call(std::uint32_t call, std::uint64_t about) {
    const std::scoped_lock lock(mutex_);
    calls_[call] = about;
  }
  void note_node(std::uint64_t node, std::uint64_t about) {
    const std::scoped_lock lock(mutex_);
    nodes_[node] = about;
  }
  void note_copied_node(std::uint64_t copy, std::uint64_t original) {
    const std::scoped_lock lock(mutex_);
    const auto found = nodes_.find(original);
    if (found != nodes_.end()) nodes_[copy] = found->second;
  }
  /// `node` 0: it is of no graph. The name need not stay.
  void note_work(const pipewright_cuda_activity& what, std::uint32_t call, std::uint64_t node) {
    const std::scoped_lock lock(mutex_);
    // The library writes zeros where it has no times.
    if (what.start_ns == 0 || work_.size() >= most_) {
      ++dropped_;
      return;
    }
    work_.push_back({what, call, node});
    if (what.name != nullptr) work_.back().what.name = names_.emplace(what.name).first->c_str();
  }
  void note_dropped(std::int64_t count) {
    const std::scoped_lock lock(mutex_);
    dropped_ += count;
  }

  /// Gives all that was noted; returns how many were not. The call of some work may come with the
  /// next buffers, and so is kept until the next time.
  std::int64_t take(const std::function<void(const pipewright_cuda_activity&)>& taken) {
    const std::scoped_lock lock(mutex_);
    for (Work& work : work_) {
      work.what.about = about(work);
      taken(work.what);
    }
    work_.clear();
    older_calls_ = std::exchange(calls_, {});
    return std::exchange(dropped_, 0);
  }

 private:
  struct Work {
    pipewright_cuda_activity what;
    std::uint32_t call;
    std::uint64_t node;
  };

  std::uint64_t about(const Work& work) const {
    if (work.node != 0) {
      const auto node = nodes_.find(work.node);
      return node == nodes_.end() ? 0 : node->second;
    }
    for (const auto* calls : {&calls_, &older_calls_}) {
      const auto call = calls->find(work.call);
      if (call != calls->end()) return call->second;
    }
    return 0;
  }

  std::mutex mutex_;
  std::size_t most_ = 0;
  std::int64_t dropped_ = 0;
  std::vector<Work> work_;
  std::unordered_map<std::uint32_t, std::uint64_t> calls_, older_calls_;
  std::unordered_map<std::uint64_t, std::uint64_t> nodes_;
  std::unordered_set<std::string> names_;  // they stay where they are
};

}  // namespace pipewright::exec::cuda
