// A rank's place on a GPU: the streams on which its work is put, its memory, and its cuBLAS.
// Nothing here waits for the GPU but finish(), whose name says so.
//
// A Queue belongs to its rank's thread; what it shares with handles that other threads may drop
// (the streams, the pools) lives as long as they do. It is made while the calling thread has
// entered nothing in particular, and enters its GPU and partition itself. Failures are RunErrors
// with the module's sentence.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "exec/devices/cuda/bfloat16.hpp"
#include "exec/devices/cuda/events.hpp"
#include "exec/devices/cuda/fused_attention.hpp"
#include "exec/devices/cuda/module.hpp"
#include "exec/devices/cuda/pool.hpp"
#include "exec/devices/cuda/rotary_turns.hpp"
#include "exec/devices/cuda/scratch.hpp"

namespace pipewright::exec::cuda {

/// How a rank computes. Exact: the CPU's bits, products by its canonical chain. The others multiply
/// by cuBLAS: floats as they are, or rounded to TF32. Bfloat16: so are activations, messages and
/// the weights that layers read; the weights themselves, gradients and what the optimizer keeps
/// stay floats. Everything is computed and added up in float32.
enum class Precision : std::uint8_t { Exact, Float32, Tf32, Bfloat16 };

/// Of a number of activations and messages.
constexpr std::size_t number_bytes(Precision precision) {
  return precision == Precision::Bfloat16 ? sizeof(Bfloat16) : sizeof(float);
}

/// Where a rank lives.
struct QueueSite {
  int gpu = 0;
  void* partition = nullptr;  // the whole GPU; else of pipewright_cuda::split, not owned
  Precision precision = Precision::Float32;
  int sms = 0;  // of the partition; 0: all of the GPU's
};

class Queue {
 public:
  Queue(const pipewright_cuda& cuda, const QueueSite& site);
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  const pipewright_cuda& cuda() const { return cuda_; }
  const pipewright_cuda_kernels& kernels() const {
    if (site_.precision == Precision::Bfloat16) return cuda_.bf16;
    return site_.precision == Precision::Exact ? cuda_.kernels : cuda_.fast;
  }
  std::size_t number_bytes() const { return cuda::number_bytes(site_.precision); }
  const QueueSite& site() const { return site_; }
  /// To be called by the queue's thread when it has worked elsewhere in between, and by no other:
  /// a partition is current to one thread at a time (cuda.h, cuCtxFromGreenCtx).
  void enter() const { require(cuda_, cuda_.enter(site_.gpu, site_.partition)); }

  /// The stream of the computations, and that of arriving messages.
  void* computing() const;
  void* arriving() const;
  /// Those, and the transport's own of this rank.
  std::vector<void*> streams() const;
  void add_stream(void* stream) { of_transport_.push_back(stream); }
  /// An event after all work that is on the stream by now.
  Event record(void* stream);
  /// An event that tells its time, and nothing else.
  Event mark(void* stream);
  void wait(void* stream, const Event& event) const;

  /// A kernel on the computing stream, or a product.
  template <class Kernel, class... Arguments>
  void run(Kernel kernel, Arguments... arguments) const {
    require(cuda_, kernel(computing(), arguments...));
  }
  void multiply(const pipewright_cuda_gemm& product) const;
  /// All of them, of which no two write to the same place: in one launch where cuBLAS has one for
  /// them. `most`: there are never more of this kind.
  void multiply_all(std::span<const pipewright_cuda_gemm> products, int most);
  /// Whether multiply() does what the product asks for besides.
  bool fuses(const pipewright_cuda_gemm& product) const;
  void copy(void* to, const void* from, std::size_t bytes) const;
  void clear(void* at, std::size_t bytes) const;

  /// Null where attention of this shape takes squares: in other numbers than bfloat16, and where
  /// the table has none for it.
  template <class Shape>
  const FusedAttention::Made* fused_attention(const Shape& shape) {
    return site_.precision == Precision::Bfloat16 ? attention_.of(shape) : nullptr;
  }

  /// Of kernels' `rotate`.
  const float* rotary_turns(const RotaryShape& shape) { return turns_.of(shape); }

  /// PIPEWRIGHT_CUDA_COLUMN_WORDS floats for kernels of the computing stream; null in exact
  /// numerics, whose kernels need none.
  float* column_scratch() const;

  /// So many bytes for kernels of the computing stream, until the next call.
  void* scratch(std::size_t bytes) { return scratch_.of(bytes); }

  /// The pools: of computations; of messages, which the arriving stream writes first; of what
  /// stays.
  Pool& memory() { return memory_; }
  Pool& messages() { return messages_; }
  Pool& weights() { return weights_; }

  /// Bytes that cuBLAS, cuDNN and the kernels have for themselves, those of rotary positions, and
  /// of scratch().
  std::int64_t workspace_bytes() const;
  /// All that was put on the streams of all ranks is done: nothing has to wait for its memory.
  void forget_guards();

  /// Polls until the event has passed, calling `between` now and then, which may throw. Throws
  /// RunError if the work before it has failed.
  void finish(const Event& event, const std::function<void()>& between) const;
  /// Waits for all that was put on the streams, whatever becomes of it: before memory goes that it
  /// reads or writes.
  void drain() noexcept;

 private:
  struct Streams;
  PoolSource memory_of_gpu();

  const pipewright_cuda& cuda_;
  const QueueSite site_;
  std::shared_ptr<Streams> streams_;
  std::vector<void*> of_transport_;
  Pool memory_, messages_, weights_;
  void* workspace_ = nullptr;
  void* blas_ = nullptr;  // null in exact numerics
  FusedAttention attention_;
  RotaryTurns turns_;
  Scratch scratch_;
};

}  // namespace pipewright::exec::cuda
