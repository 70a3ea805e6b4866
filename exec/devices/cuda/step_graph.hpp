// A training step as one CUDA graph: the second step of a run is captured while the ranks put it on
// their streams, and from then on a step is one launch. The first one is not, because it makes what
// a capture cannot make: memory, events, handles.
//
// What changes from step to step has to lie in memory that the captured work reads: data, and the
// optimizer's factors. What makes the host wait inside a step cannot be captured at all
// (require_captured()).
//
// One for all ranks of a process, which are threads, where they copy from one another: a capture is
// one object that several threads must not add to at once (CUDA runtime API, cudaGraph_t), so while
// a step is captured each puts its work there under a lock. Over NCCL each rank has a graph of its
// own, with NCCL's kernels in it, which meet those of the other ranks' graphs
// (docs/decisions/0114-graphs-with-nccl.md). Must outlive the ranks' queues, and go before their
// partitions.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "core/model/model.hpp"
#include "core/program/program.hpp"
#include "exec/devices/cuda/queue.hpp"

namespace pipewright::exec::cuda {

/// How the work of a step gets to the GPU.
enum class StepWay : std::uint8_t { Enqueued, Captured, Replayed };

/// The least steps of a run that has something to capture.
inline constexpr int kLeastCapturedSteps = 2;

/// `step` counts from the beginning of the run.
StepWay way_of_captured_run(int step);

/// Why the steps of such a Program and model cannot be captured; empty: they can. `over_nccl`: that
/// brings together what ranks share, in all numerics but the exact ones.
std::string why_not_captured(const Program& program, const Model& model, Precision precision,
                             bool over_nccl = false);
/// Throws InputError with that reason.
void require_captured(const Program& program, const Model& model, Precision precision,
                      bool over_nccl);

class StepGraph {
 public:
  /// Launched on this GPU. `ranks` of them take part.
  StepGraph(const pipewright_cuda& cuda, int gpu, int ranks);
  ~StepGraph();
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  /// In the captured step, around everything that a rank puts on its streams. The first call of a
  /// rank, told by `is_first`, adds its streams to the capture.
  std::unique_lock<std::mutex> capture(const Queue& queue, bool is_first);
  /// The rank has put all of the step there; under the lock of capture(). The last one ends the
  /// capture, and launches it for the first time.
  void leave(Queue& queue, int step);
  /// In a step that is replayed: launched once, by the first who asks.
  void launch(int step);

  bool is_launched(int step) const { return launched_.load() >= step; }
  /// Recorded after the step that was launched last.
  const Event& done() const { return done_; }

 private:
  void launch_locked(int step);
  void enter() const { require(cuda_, cuda_.enter(gpu_, nullptr)); }

  const pipewright_cuda& cuda_;
  const int gpu_, ranks_;
  std::mutex mutex_;  // guards what follows, and the capture
  void* origin_ = nullptr;
  Event begun_, done_;
  bool is_capturing_ = false;
  int left_ = 0;
  void* graph_ = nullptr;
  std::atomic<int> launched_{-1};
};

}  // namespace pipewright::exec::cuda
