#include "exec/devices/cuda/queue.hpp"

#include <cstddef>
#include <vector>

#include "core/base/error.hpp"

namespace pipewright::exec::cuda {
namespace {

/// What NVIDIA advises for Hopper (cuBLAS guide, cublasSetWorkspace); more than older ones need.
constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;
constexpr std::size_t kScratchBytes = PIPEWRIGHT_CUDA_COLUMN_WORDS * sizeof(float);
/// How often a poll asks before it does something else.
constexpr int kAsksAtOnce = 64;

int precision_of(Precision precision) {
  switch (precision) {
    case Precision::Tf32:
      return PIPEWRIGHT_CUDA_TF32;
    case Precision::Bfloat16:
      return PIPEWRIGHT_CUDA_BF16;
    default:
      return PIPEWRIGHT_CUDA_FP32;
  }
}

}  // namespace

struct Queue::Streams {
  Streams(const pipewright_cuda& table, void* partition) : cuda(table), events(table) {
    computing = required(cuda, cuda.stream(partition));
    arriving = cuda.stream(partition);
    if (arriving != nullptr) return;
    const std::string why = cuda.why();
    cuda.release_stream(computing);
    throw RunError(why);
  }
  ~Streams() {
    cuda.release_stream(computing);
    cuda.release_stream(arriving);
  }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  Event record(void* stream) {
    Event event = events.take(false);
    require(cuda, cuda.record(event.get(), stream));
    return event;
  }

  const pipewright_cuda& cuda;
  void *computing = nullptr, *arriving = nullptr;
  EventPool events;
};

/// Memory of the entered GPU; where there is none left, what this rank does not use is given back.
PoolSource Queue::memory_of_gpu() {
  const pipewright_cuda& cuda = cuda_;
  PoolSource source;
  source.allocate = [&cuda](std::size_t bytes) { return required(cuda, cuda.allocate(bytes)); };
  source.release = [&cuda](void* at) { cuda.release(at); };
  // A failure there has been told, or will be, by whoever waits for the work itself.
  source.before_release = [&cuda](const Event& guard) {
    static_cast<void>(cuda.wait_for_event(guard.get()));
  };
  source.make_room = [this] { return memory_.trim() + messages_.trim() + weights_.trim(); };
  return source;
}

Queue::Queue(const pipewright_cuda& cuda, const QueueSite& site)
    : cuda_(cuda),
      site_(site),
      streams_((require(cuda, cuda.enter(site.gpu, site.partition)),
                std::make_shared<Streams>(cuda, site.partition))),
      memory_([&] {
        PoolSource source = memory_of_gpu();
        source.before_reuse = [streams = streams_.get(), &cuda](const Event& event) {
          require(cuda, cuda.stream_waits(streams->computing, event.get()));
        };
        return source;
      }()),
      // A message's last reader is a computation, and the next writer is the arriving stream.
      messages_([&] {
        PoolSource source = memory_of_gpu();
        source.before_reuse = [streams = streams_.get(), &cuda](const Event& event) {
          require(cuda, cuda.stream_waits(streams->arriving, event.get()));
        };
        source.after_use = [streams = streams_] { return streams->record(streams->computing); };
        return source;
      }()),
      weights_(memory_of_gpu()),
      attention_(cuda, streams_->computing, site.sms),
      turns_(cuda, streams_->computing),
      scratch_(cuda, streams_->computing) {
  if (site.precision == Precision::Exact) return;
  workspace_ = required(cuda, cuda.allocate(kWorkspaceBytes + kScratchBytes));
  blas_ = cuda.blas(streams_->computing, site.sms, workspace_, kWorkspaceBytes);
  if (blas_ != nullptr) return;
  const std::string why = cuda.why();
  cuda.release(workspace_);
  throw RunError(why);
}

Queue::~Queue() {
  if (blas_ != nullptr) cuda_.release_blas(blas_);
  if (workspace_ != nullptr) cuda_.release(workspace_);
}

void Queue::drain() noexcept {
  if (cuda_.enter(site_.gpu, site_.partition) != 0) return;
  for (void* stream : {streams_->arriving, streams_->computing}) {
    void* const event = cuda_.event(0);
    if (event == nullptr) continue;
    if (cuda_.record(event, stream) == 0) static_cast<void>(cuda_.wait_for_event(event));
    cuda_.release_event(event);
  }
}

void* Queue::computing() const { return streams_->computing; }
void* Queue::arriving() const { return streams_->arriving; }

std::vector<void*> Queue::streams() const {
  std::vector<void*> all{computing(), arriving()};
  all.insert(all.end(), of_transport_.begin(), of_transport_.end());
  return all;
}

Event Queue::record(void* stream) { return streams_->record(stream); }

Event Queue::mark(void* stream) {
  Event event = streams_->events.take(true);
  require(cuda_, cuda_.mark(event.get(), stream));
  return event;
}

std::int64_t Queue::workspace_bytes() const {
  const std::size_t own = workspace_ == nullptr ? 0 : kWorkspaceBytes + kScratchBytes;
  return static_cast<std::int64_t>(own) + attention_.workspace_bytes() + turns_.bytes() +
         scratch_.bytes();
}

float* Queue::column_scratch() const {
  if (workspace_ == nullptr) return nullptr;
  return static_cast<float*>(workspace_) + kWorkspaceBytes / sizeof(float);
}

void Queue::forget_guards() {
  memory_.forget_guards();
  messages_.forget_guards();
}

void Queue::wait(void* stream, const Event& event) const {
  if (event != nullptr) require(cuda_, cuda_.stream_waits(stream, event.get()));
}

void Queue::multiply(const pipewright_cuda_gemm& product) const {
  if (site_.precision == Precision::Exact) return run(kernels().canonical_gemm, &product);
  require(cuda_, cuda_.gemm(blas_, &product, precision_of(site_.precision)));
}

/// The scratch is as large from the first time on, which is before NCCL's kernels may wait.
void Queue::multiply_all(std::span<const pipewright_cuda_gemm> products, int most) {
  const auto count = static_cast<int>(products.size());
  const int precision = precision_of(site_.precision);
  auto* const kept = static_cast<void**>(
      blas_ == nullptr ? nullptr : scratch(3 * static_cast<std::size_t>(most) * sizeof(void*)));
  if (kept == nullptr || count < 2 ||
      cuda_.gemms_group(blas_, products.data(), count, precision) == 0) {
    for (const pipewright_cuda_gemm& one : products) multiply(one);
    return;
  }
  std::vector<const void*> pointers;
  for (const pipewright_cuda_gemm& one : products) pointers.push_back(one.a.data);
  for (const pipewright_cuda_gemm& one : products) pointers.push_back(one.b.data);
  for (const pipewright_cuda_gemm& one : products) pointers.push_back(one.c);
  run(kernels().keep_pointers, pointers.size(), pointers.data(), kept);
  require(cuda_, cuda_.grouped_gemm(blas_, products.data(), count, precision, kept));
}

bool Queue::fuses(const pipewright_cuda_gemm& product) const {
  return blas_ != nullptr && cuda_.gemm_fuses(blas_, &product, precision_of(site_.precision)) != 0;
}

void Queue::copy(void* to, const void* from, std::size_t bytes) const {
  require(cuda_, cuda_.copy(computing(), to, from, bytes));
}

void Queue::clear(void* at, std::size_t bytes) const {
  require(cuda_, cuda_.clear(computing(), at, bytes));
}

void Queue::finish(const Event& event, const std::function<void()>& between) const {
  while (true) {
    for (int ask = 0; ask < kAsksAtOnce; ++ask) {
      const int state = cuda_.is_over(event.get());
      if (state < 0) throw RunError(cuda_.why());
      if (state > 0) return;
    }
    if (between) between();
  }
}

}  // namespace pipewright::exec::cuda
