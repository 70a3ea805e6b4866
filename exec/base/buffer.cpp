#include "exec/base/buffer.hpp"

#include <algorithm>

namespace pipewright::exec {

struct Buffer::Block {
  BufferPool* pool = nullptr;
  std::size_t words = 0;
  int holders = 0;
  std::vector<std::byte, AlignedAllocator<std::byte>> memory;

  std::int64_t bytes() const { return static_cast<std::int64_t>(words) * 4; }
};

Buffer::Buffer(const Buffer& other) : block_(other.block_) {
  if (block_ != nullptr) ++block_->holders;
}

Buffer& Buffer::operator=(Buffer other) noexcept {
  std::swap(block_, other.block_);
  return *this;
}

void Buffer::reset() {
  if (block_ != nullptr && --block_->holders == 0) block_->pool->give_back(block_);
  block_ = nullptr;
}

bool Buffer::is_shared() const { return block_ != nullptr && block_->holders > 1; }

std::size_t Buffer::words() const { return block_ == nullptr ? 0 : block_->words; }

float* Buffer::floats() const {
  return block_ == nullptr ? nullptr : reinterpret_cast<float*>(block_->memory.data());
}

std::int32_t* Buffer::ids() const {
  return block_ == nullptr ? nullptr : reinterpret_cast<std::int32_t*>(block_->memory.data());
}

BufferPool::BufferPool() = default;
BufferPool::~BufferPool() = default;

Buffer BufferPool::take(std::size_t words) {
  std::vector<Buffer::Block*>& free_blocks = free_[words];
  if (free_blocks.empty()) {
    auto fresh = std::make_unique<Buffer::Block>();
    fresh->pool = this;
    fresh->words = words;
    fresh->memory.resize(words * 4);
    reserved_bytes_ += fresh->bytes();
    blocks_.push_back(std::move(fresh));
    free_blocks.push_back(blocks_.back().get());
  }
  Buffer::Block* block = free_blocks.back();
  free_blocks.pop_back();
  block->holders = 1;
  live_bytes_ += block->bytes();
  peak_bytes_ = std::max(peak_bytes_, live_bytes_);
  if (meter_ != nullptr) meter_->add(block->bytes());
  return Buffer(block);
}

void BufferPool::give_back(Buffer::Block* block) {
  live_bytes_ -= block->bytes();
  if (meter_ != nullptr) meter_->add(-block->bytes());
  // take() made this list, and popping never shrinks it, so this cannot allocate in a steady state.
  free_[block->words].push_back(block);
}

}  // namespace pipewright::exec
