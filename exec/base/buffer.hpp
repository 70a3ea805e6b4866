// Memory for activations and gradients: a counted handle of a block of any device's memory, and the
// host's pool of them: blocks of 4-byte words, aligned to a cache line, that go back to their pool
// when the last handle is dropped and are handed out again, so a training step allocates nothing
// once the first one is over.
//
// A BufferPool owns its blocks and must outlive its Buffers; it and all its Buffers belong to one
// thread at a time. Sizes are in words, figures in bytes.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace pipewright::exec {

inline constexpr std::size_t kAlignment = 64;

/// For std::vector: memory that starts on a cache line.
template <class T>
struct AlignedAllocator {
  using value_type = T;

  AlignedAllocator() = default;
  template <class U>
  AlignedAllocator(const AlignedAllocator<U>&) {}

  T* allocate(std::size_t n) {
    return static_cast<T*>(::operator new (n * sizeof(T), std::align_val_t{kAlignment}));
  }
  void deallocate(T* p, std::size_t) { ::operator delete (p, std::align_val_t{kAlignment}); }
  bool operator==(const AlignedAllocator&) const { return true; }
};

using AlignedFloats = std::vector<float, AlignedAllocator<float>>;

/// Memory that handles count. Whoever lends it derives from it.
class Block {
 public:
  virtual ~Block() = default;

  void* at = nullptr;
  std::size_t bytes = 0;

 private:
  friend class Buffer;
  /// The last handle has gone.
  virtual void come_back() noexcept = 0;

  std::atomic<int> holders_{0};
};

/// A counted handle of a block; an empty one holds nothing. Copies share the block: whoever wants
/// to write to a block that others may hold asks is_shared() first.
class Buffer {
 public:
  Buffer() = default;
  /// The first handle of a block that nobody holds.
  explicit Buffer(Block& block) : block_(&block) { block.holders_.store(1); }
  Buffer(const Buffer& other) : block_(other.block_) {
    if (block_ != nullptr) block_->holders_.fetch_add(1, std::memory_order_relaxed);
  }
  Buffer(Buffer&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  Buffer& operator=(Buffer other) noexcept {
    std::swap(block_, other.block_);
    return *this;
  }
  ~Buffer() { reset(); }

  /// Drops this handle's share; the block goes back with the last one.
  void reset() {
    Block* const block = std::exchange(block_, nullptr);
    if (block != nullptr && block->holders_.fetch_sub(1, std::memory_order_acq_rel) == 1)
      block->come_back();
  }

  explicit operator bool() const { return block_ != nullptr; }
  bool is_shared() const {
    return block_ != nullptr && block_->holders_.load(std::memory_order_acquire) > 1;
  }
  Block* block() const { return block_; }
  std::size_t bytes() const { return block_ == nullptr ? 0 : block_->bytes; }
  std::size_t words() const { return bytes() / sizeof(float); }
  void* at() const { return block_ == nullptr ? nullptr : block_->at; }
  float* floats() const { return static_cast<float*>(at()); }
  /// The same words read as token ids: what an embedding takes.
  std::int32_t* ids() const { return static_cast<std::int32_t*>(at()); }
  std::int64_t* longs() const { return static_cast<std::int64_t*>(at()); }

 private:
  Block* block_ = nullptr;
};

/// Bytes that several pools, and others that report to it, hold together. One thread at a time.
struct MemoryMeter {
  std::int64_t live_bytes = 0, peak_bytes = 0;

  void add(std::int64_t bytes) {
    live_bytes += bytes;
    peak_bytes = std::max(peak_bytes, live_bytes);
  }
};

class BufferPool {
 public:
  BufferPool();
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  /// A block of exactly `words` words with undefined content, from the free ones if there is one.
  Buffer take(std::size_t words);

  /// From now on the meter also counts what the pool holds. Nothing is held yet; the meter must
  /// outlive the pool.
  void report_to(MemoryMeter& meter) { meter_ = &meter; }

  /// Bytes of the blocks that somebody holds now, and the most there were at once.
  std::int64_t live_bytes() const { return live_bytes_; }
  std::int64_t peak_bytes() const { return peak_bytes_; }
  /// Bytes asked from the system so far; constant from the second step on.
  std::int64_t reserved_bytes() const { return reserved_bytes_; }

 private:
  struct HostBlock;
  void give_back(HostBlock& block);

  std::vector<std::unique_ptr<HostBlock>> blocks_;
  std::map<std::size_t, std::vector<HostBlock*>> free_;  // by size in words
  std::int64_t live_bytes_ = 0, peak_bytes_ = 0, reserved_bytes_ = 0;
  MemoryMeter* meter_ = nullptr;
};

}  // namespace pipewright::exec
