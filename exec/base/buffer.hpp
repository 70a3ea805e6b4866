// Host memory for activations and gradients: blocks of 4-byte words, aligned to a cache line, that
// go back to their pool when the last handle is dropped and are handed out again, so a training
// step allocates nothing once the first one is over.
//
// A BufferPool owns its blocks and must outlive its Buffers. A pool and all its Buffers belong to
// one thread at a time (the reference counts are not atomic). Sizes are in words, figures in bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <new>
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

class BufferPool;

/// A counted handle of a block; an empty one holds nothing. Copies share the block: whoever wants
/// to write to a block that others may hold asks is_shared() first.
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer& other);
  Buffer(Buffer&& other) noexcept : block_(other.block_) { other.block_ = nullptr; }
  Buffer& operator=(Buffer other) noexcept;
  ~Buffer() { reset(); }

  /// Drops this handle's share; the block returns to the pool with the last one.
  void reset();

  explicit operator bool() const { return block_ != nullptr; }
  bool is_shared() const;
  std::size_t words() const;
  float* floats() const;
  /// The same words read as token ids: what an embedding takes.
  std::int32_t* ids() const;

 private:
  friend class BufferPool;
  struct Block;
  explicit Buffer(Block* block) : block_(block) {}

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
  friend class Buffer;
  void give_back(Buffer::Block* block);

  std::vector<std::unique_ptr<Buffer::Block>> blocks_;
  std::map<std::size_t, std::vector<Buffer::Block*>> free_;  // by size in words
  std::int64_t live_bytes_ = 0, peak_bytes_ = 0, reserved_bytes_ = 0;
  MemoryMeter* meter_ = nullptr;
};

}  // namespace pipewright::exec
