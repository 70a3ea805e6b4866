// The ranks of a walk that can go on.
#pragma once

#include <cstdint>
#include <vector>

namespace pipewright::sim {

/// First in, first out. A rank is among them at most once, so there is a place for each.
class AwakeRanks {
 public:
  explicit AwakeRanks(std::size_t ranks) : ring_(ranks) {}

  bool empty() const { return size_ == 0; }
  void push(std::uint32_t rank) {
    std::size_t place = first_ + size_++;
    if (place >= ring_.size()) place -= ring_.size();
    ring_[place] = rank;
  }
  std::uint32_t pop() {
    const std::uint32_t rank = ring_[first_];
    if (++first_ == ring_.size()) first_ = 0;
    --size_;
    return rank;
  }

 private:
  std::vector<std::uint32_t> ring_;
  std::size_t first_ = 0, size_ = 0;
};

}  // namespace pipewright::sim
