#include "exec/devices/cuda/step_graph.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "core/model/find_layer.hpp"
#include "exec/devices/cuda/gradient_copies.hpp"

namespace pipewright::exec::cuda {
namespace {

constexpr int kCapturedStep = 1;
static_assert(kCapturedStep + 1 == kLeastCapturedSteps);

Event make_event(const pipewright_cuda& cuda) {
  return {required(cuda, cuda.event(0)), [&cuda](void* which) { cuda.release_event(which); }};
}

}  // namespace

StepWay way_of_captured_run(int step) {
  if (step < kCapturedStep) return StepWay::Enqueued;
  return step == kCapturedStep ? StepWay::Captured : StepWay::Replayed;
}

std::string why_not_captured(const Program& program, const Model& model, Precision precision,
                             bool over_nccl) {
  if (find_layer(model,
                 [](const Layer& layer) { return layer.kind == LayerKind::MixtureOfExperts; }))
    return "how many rows an expert takes is known only inside a step";
  for (InstructionId id = 0; id < program.code.size(); ++id) {
    const Instruction& in = program.code[id];
    if (over_nccl && precision != Precision::Exact) continue;
    if (is_call(in.kind)) return "ranks that divide layers wait for one another inside a step";
    const bool is_tied = in.kind == ActionKind::ReduceTied;
    if (!is_tied && (!in.in_collective() || in.kind == ActionKind::ReduceNorm)) continue;
    if (in.kind == ActionKind::Unshard)
      return "replicas that share weights out bring them together on the host";
    if (adds_copies(program, in, program.rank_of(id), precision)) continue;
    return is_tied ? "the gradients of a tied head are summed on the host"
                   : "the gradients of replicas are summed on the host";
  }
  return "";
}

void require_captured(const Program& program, const Model& model, Precision precision,
                      bool over_nccl) {
  const std::string why = why_not_captured(program, model, precision, over_nccl);
  if (!why.empty())
    throw InputError("a step of this run cannot be one CUDA graph: " + why +
                     "; leave out --cuda-graph");
}

StepGraph::StepGraph(const pipewright_cuda& cuda, int gpu, int ranks)
    : cuda_(cuda), gpu_(gpu), ranks_(ranks) {
  enter();
  begun_ = make_event(cuda);
  done_ = make_event(cuda);
  origin_ = required(cuda, cuda.stream(nullptr));
}

/// A capture that nobody has finished is ended, so that its streams can go.
StepGraph::~StepGraph() {
  static_cast<void>(cuda_.enter(gpu_, nullptr));
  if (is_capturing_) graph_ = cuda_.end_capture(origin_);
  if (graph_ != nullptr) cuda_.release_graph(graph_);
  cuda_.release_stream(origin_);
}

std::unique_lock<std::mutex> StepGraph::capture(const Queue& queue, bool is_first) {
  std::unique_lock lock(mutex_);
  if (!is_first) return lock;
  if (!is_capturing_) {
    enter();
    require(cuda_, cuda_.begin_capture(origin_));
    is_capturing_ = true;
    require(cuda_, cuda_.record(begun_.get(), origin_));
  }
  queue.enter();
  for (void* const stream : queue.streams()) queue.wait(stream, begun_);
  return lock;
}

void StepGraph::leave(Queue& queue, int step) {
  for (void* const stream : queue.streams()) {
    const Event event = queue.record(stream);
    require(cuda_, cuda_.stream_waits(origin_, event.get()));
  }
  if (++left_ < ranks_) return;
  enter();
  is_capturing_ = false;
  graph_ = required(cuda_, cuda_.end_capture(origin_));
  launch_locked(step);
  queue.enter();
}

void StepGraph::launch(int step) {
  if (is_launched(step)) return;
  const std::scoped_lock lock(mutex_);
  if (!is_launched(step)) launch_locked(step);
}

void StepGraph::launch_locked(int step) {
  enter();
  require(cuda_, cuda_.launch(graph_, origin_));
  require(cuda_, cuda_.record(done_.get(), origin_));
  launched_.store(step);
}

}  // namespace pipewright::exec::cuda
