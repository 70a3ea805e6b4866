// What one GPU can do, for the roofline that a plan's costs are measured against, and whether
// partitions of its SMs keep their share: cuBLAS on the whole GPU and on 2, 4 and 8 partitions that
// all work at once, copies, products of experts one by one and in one launch, and how long one
// event takes from stream to stream. Prints a table; a file named as the argument gets the same as
// JSON. Exit status 77: there is no GPU.
//   gpu_rates [FILE [SIDE]]
// SIDE is of the matrices (4096). Their numbers are random: the same products of zeros take less
// power, and a GPU at its power limit is faster then.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "exec/base/random.hpp"
#include "exec/devices/cuda/bfloat16.hpp"
#include "exec/devices/cuda/module.hpp"
#include "exec/devices/cuda/sites.hpp"

namespace pipewright::bench {
namespace {

using exec::cuda::require;
using exec::cuda::required;

constexpr int kSide = 4096;
constexpr int kRepeats = 8;  // products in one measurement
constexpr int kRounds = 5;   // the best counts: what else runs only slows down
constexpr int kExperts = 8;
constexpr std::size_t kWorkspace = std::size_t{32} << 20;

/// Square, all of one size.
struct Matrices {
  int side = kSide;
  std::size_t bytes = 0;
  std::vector<float> numbers;  // what each begins with

  explicit Matrices(int rows) : side(rows) {
    const auto count = static_cast<std::size_t>(rows) * static_cast<std::size_t>(rows);
    bytes = count * sizeof(float);
    for (std::size_t i = 0; i < count; ++i) numbers.push_back(exec::symmetric_uniform(1, i));
  }
  double flops() const { return 2.0 * side * side * side * kRepeats; }
};

/// A stream with cuBLAS on it, on a partition or on the whole GPU.
class Worker {
 public:
  Worker(const pipewright_cuda& cuda, const Matrices& of, void* partition, int sms)
      : cuda_(cuda), of_(of), partition_(partition) {
    enter();
    stream_ = required(cuda_, cuda_.stream(partition));
    for (void*& event : events_) event = required(cuda_, cuda_.event(1));
    workspace_ = required(cuda_, cuda_.allocate(kWorkspace));
    blas_ = required(cuda_, cuda_.blas(stream_, sms, workspace_, kWorkspace));
    for (void*& matrix : matrices_) {
      matrix = required(cuda_, cuda_.allocate(of_.bytes));
      require(cuda_, cuda_.copy(stream_, matrix, of_.numbers.data(), of_.bytes));
    }
    for (void*& matrix : narrow_) {
      matrix = required(cuda_, cuda_.allocate(of_.bytes));
      require(cuda_, cuda_.bf16.round(stream_, of_.numbers.size(),
                                      static_cast<const float*>(matrices_[0]), matrix));
    }
    require(cuda_, cuda_.record(events_[0], stream_));
    require(cuda_, cuda_.wait_for_event(events_[0]));
  }
  ~Worker() {
    cuda_.release_blas(blas_);
    for (void* event : events_) cuda_.release_event(event);
    cuda_.release_stream(stream_);
    for (void* matrix : matrices_) cuda_.release(matrix);
    for (void* matrix : narrow_) cuda_.release(matrix);
    cuda_.release(pointers_);
    cuda_.release(workspace_);
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void enqueue_products(int precision) {
    enter();
    pipewright_cuda_gemm product{};
    product.m = product.n = product.k = product.c_stride = of_.side;
    product.outer = product.inner = 1;
    product.alpha = 1;
    void* const* const of_kind = precision == PIPEWRIGHT_CUDA_BF16 ? narrow_ : matrices_;
    product.a = {of_kind[0], of_.side, 0, 0, 0};
    product.b = {of_kind[1], of_.side, 0, 0, 0};
    product.c = of_kind[2];
    require(cuda_, cuda_.gemm(blas_, &product, precision));  // the first one chooses its kernel
    require(cuda_, cuda_.record(events_[0], stream_));
    for (int i = 0; i < kRepeats; ++i) require(cuda_, cuda_.gemm(blas_, &product, precision));
    require(cuda_, cuda_.record(events_[1], stream_));
  }
  /// In bfloat16, on the whole GPU; false: cuBLAS has no launch for all of them.
  bool enqueue_experts(bool together) {
    enter();
    const std::vector<pipewright_cuda_gemm> all = experts();
    if (together && cuda_.gemms_group(blas_, all.data(), kExperts, PIPEWRIGHT_CUDA_BF16) == 0)
      return false;
    multiply_experts(all, together);  // the first time chooses kernels
    require(cuda_, cuda_.record(events_[0], stream_));
    for (int i = 0; i < kRepeats; ++i) multiply_experts(all, together);
    require(cuda_, cuda_.record(events_[1], stream_));
    return true;
  }
  void enqueue_copies() {
    enter();
    require(cuda_, cuda_.record(events_[0], stream_));
    for (int i = 0; i < kRepeats; ++i)
      require(cuda_, cuda_.copy(stream_, matrices_[2], matrices_[0], of_.bytes));
    require(cuda_, cuda_.record(events_[1], stream_));
  }
  /// Of what was enqueued last.
  double seconds() {
    require(cuda_, cuda_.wait_for_event(events_[1]));
    float ms = 0;
    require(cuda_, cuda_.elapsed_ms(events_[0], events_[1], &ms));
    return static_cast<double>(ms) * 1e-3;
  }

 private:
  void enter() const { require(cuda_, cuda_.enter(0, partition_)); }

  /// A few rows each, so that one product does not fill the GPU; weights fill the second matrix.
  std::vector<pipewright_cuda_gemm> experts() const {
    std::vector<pipewright_cuda_gemm> all;
    const std::ptrdiff_t m = of_.side / 16, k = of_.side / 4, n = of_.side / 2;
    const auto* const x = static_cast<const exec::cuda::Bfloat16*>(narrow_[0]);
    const auto* const w = static_cast<const exec::cuda::Bfloat16*>(narrow_[1]);
    for (std::ptrdiff_t e = 0; e < kExperts; ++e) {
      pipewright_cuda_gemm g{};
      g.m = static_cast<int>(m), g.n = static_cast<int>(n), g.k = static_cast<int>(k);
      g.outer = g.inner = 1;
      g.alpha = 1;
      g.a = {x + e * m * k, g.k, 0, 0, 0};
      g.b = {w + e * k * n, g.n, 0, 0, 0};
      g.c = static_cast<exec::cuda::Bfloat16*>(narrow_[2]) + e * m * n;
      g.c_stride = g.n;
      all.push_back(g);
    }
    return all;
  }
  /// Pointers are told with each launch, as a run tells them (exec/devices/cuda/queue.cpp).
  void multiply_experts(const std::vector<pipewright_cuda_gemm>& all, bool together) {
    if (!together) {
      for (const auto& one : all) require(cuda_, cuda_.gemm(blas_, &one, PIPEWRIGHT_CUDA_BF16));
      return;
    }
    std::vector<const void*> places;
    for (const auto& one : all) places.push_back(one.a.data);
    for (const auto& one : all) places.push_back(one.b.data);
    for (const auto& one : all) places.push_back(one.c);
    if (pointers_ == nullptr)
      pointers_ = required(cuda_, cuda_.allocate(places.size() * sizeof(void*)));
    auto** const kept = static_cast<void**>(pointers_);
    require(cuda_, cuda_.bf16.keep_pointers(stream_, places.size(), places.data(), kept));
    require(cuda_, cuda_.grouped_gemm(blas_, all.data(), kExperts, PIPEWRIGHT_CUDA_BF16, kept));
  }

  const pipewright_cuda& cuda_;
  const Matrices& of_;
  void* const partition_;
  void *stream_ = nullptr, *blas_ = nullptr, *workspace_ = nullptr;
  void* events_[2] = {};
  void *matrices_[3] = {}, *narrow_[3] = {};  // of floats, and of bfloat16
  void* pointers_ = nullptr;
};

using Workers = std::vector<std::unique_ptr<Worker>>;

/// FLOP/s of the slowest worker while all of them work, the best of the rounds.
double product_rate(std::span<const std::unique_ptr<Worker>> workers, const Matrices& of,
                    int precision) {
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (const auto& worker : workers) worker->enqueue_products(precision);
    double slowest = 0;
    for (const auto& worker : workers) slowest = std::max(slowest, worker->seconds());
    best = std::max(best, of.flops() / slowest);
  }
  return best;
}

/// FLOP/s of products of experts; null where there is no launch for all of them.
Json expert_rate(Worker& worker, const Matrices& of, bool together) {
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    if (!worker.enqueue_experts(together)) return nullptr;
    // A sixteenth of the rows, a quarter of their width, half the columns.
    best = std::max(best, of.flops() * kExperts / (16 * 4 * 2) / worker.seconds());
  }
  return best;
}

/// Bytes that are read and written in a second.
double copy_rate(Worker& worker, const Matrices& of) {
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    worker.enqueue_copies();
    best = std::max(best, 2.0 * static_cast<double>(of.bytes) * kRepeats / worker.seconds());
  }
  return best;
}

Json measure_partitions(const pipewright_cuda& cuda, const Matrices& of,
                        const pipewright_cuda_gpu& gpu, const double (&peak)[3]) {
  Json rows = Json::array();
  for (const int count : {2, 4, 8}) {
    exec::cuda::Partitions partitions(cuda);
    exec::cuda::Division division;
    try {
      division = partitions.divide(0, count);
    } catch (const Error& error) {
      std::printf("%d partitions: none here: %s\n", count, error.what());
      continue;
    }
    const int sms = division.sms;
    Workers workers;
    for (void* partition : division.parts)
      workers.push_back(std::make_unique<Worker>(cuda, of, partition, sms));
    const std::span<const std::unique_ptr<Worker>> first(workers.data(), 1);
    for (int precision = 0; precision < 3; ++precision) {
      const double rate = product_rate(workers, of, precision);
      const double alone = product_rate(first, of, precision);
      const double share = rate / (peak[precision] * sms / gpu.sms);
      std::printf(
          "%d partitions of %3d SMs  %s  %8.2f TFLOP/s each, %.3f of their share; one alone %.2f\n",
          count, sms, precision == 0 ? "fp32" : (precision == 1 ? "tf32" : "bf16"), rate * 1e-12,
          share, alone * 1e-12);
      rows.push_back({{"partitions", count},
                      {"sms", sms},
                      {"precision", precision},
                      {"flops", rate},
                      {"flops_alone", alone},
                      {"share", share}});
    }
  }
  return rows;
}

int run(const char* file, int side) {
  const std::string why = exec::cuda::why_no_gpu();
  if (!why.empty()) {
    std::printf("skipped: %s\n", why.c_str());
    return 77;
  }
  const pipewright_cuda& cuda = exec::cuda::require_gpu();
  pipewright_cuda_gpu gpu{};
  require(cuda, cuda.gpu(0, &gpu));
  const Matrices of(side);
  std::printf("%s, %d SMs, products of %d x %d x %d\n", gpu.name, gpu.sms, side, side, side);
  double peak[3] = {};
  double bytes_per_second = 0;
  Json experts = Json::array();
  {
    Workers whole;
    whole.push_back(std::make_unique<Worker>(cuda, of, nullptr, 0));
    for (int precision = 0; precision < 3; ++precision)
      peak[precision] = product_rate(whole, of, precision);
    bytes_per_second = copy_rate(*whole.front(), of);
    for (const bool together : {false, true})
      experts.push_back(expert_rate(*whole.front(), of, together));
  }
  std::printf("whole GPU: fp32 %.2f, tf32 %.2f, bf16 %.2f TFLOP/s; copies %.2f TB/s\n",
              peak[0] * 1e-12, peak[1] * 1e-12, peak[2] * 1e-12, bytes_per_second * 1e-12);
  std::printf("products of %d experts, bf16: FLOP/s one by one and in one launch: %s\n", kExperts,
              experts.dump().c_str());
  const Json rows = measure_partitions(cuda, of, gpu, peak);
  if (file == nullptr) return 0;
  const Json result = {{"gpu", gpu.name},
                       {"sms", gpu.sms},
                       {"side", side},
                       {"peak_flops", {peak[0], peak[1], peak[2]}},
                       {"experts_flops", experts},
                       {"copy_bytes_per_second", bytes_per_second},
                       {"partitions", rows}};
  std::ofstream(file) << result.dump(2) << "\n";
  return 0;
}

}  // namespace
}  // namespace pipewright::bench

int main(int argc, char** argv) {
  try {
    const int side = argc > 2 ? std::atoi(argv[2]) : pipewright::bench::kSide;
    if (side < 1 || side > 32768) {
      std::fprintf(stderr, "gpu_rates: SIDE is 1 to 32768\n");
      return 2;
    }
    return pipewright::bench::run(argc > 1 ? argv[1] : nullptr, side);
  } catch (const pipewright::Error& error) {
    std::fprintf(stderr, "gpu_rates: %s\n", error.what());
    return 1;
  }
}
