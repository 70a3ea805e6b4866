#include "exec/base/buffer.hpp"

#include <algorithm>

namespace pipewright::exec {

struct BufferPool::HostBlock final : Block {
  HostBlock(BufferPool& owner, std::size_t words) : pool(owner), memory(words * sizeof(float)) {
    at = memory.data();
    bytes = memory.size();
  }
  void come_back() noexcept override { pool.give_back(*this); }

  BufferPool& pool;
  std::vector<std::byte, AlignedAllocator<std::byte>> memory;
};

BufferPool::BufferPool() = default;
BufferPool::~BufferPool() = default;

Buffer BufferPool::take(std::size_t words) {
  std::vector<HostBlock*>& free_blocks = free_[words];
  if (free_blocks.empty()) {
    blocks_.push_back(std::make_unique<HostBlock>(*this, words));
    free_blocks.push_back(blocks_.back().get());
    reserved_bytes_ += static_cast<std::int64_t>(blocks_.back()->bytes);
  }
  HostBlock* const block = free_blocks.back();
  free_blocks.pop_back();
  const auto bytes = static_cast<std::int64_t>(block->bytes);
  live_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, live_bytes_);
  if (meter_ != nullptr) meter_->add(bytes);
  return Buffer(*block);
}

void BufferPool::give_back(HostBlock& block) {
  const auto bytes = static_cast<std::int64_t>(block.bytes);
  live_bytes_ -= bytes;
  if (meter_ != nullptr) meter_->add(-bytes);
  // take() made this list, and popping never shrinks it, so this cannot allocate in a steady state.
  free_[block.bytes / sizeof(float)].push_back(&block);
}

}  // namespace pipewright::exec
