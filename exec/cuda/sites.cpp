#include "exec/cuda/sites.hpp"

#include <algorithm>
#include <cstdint>

#include "core/error.hpp"
#include "exec/cuda/partition_sizes.hpp"

namespace pipewright::exec::cuda {

int gpu_of_rank(int rank, int ranks, int gpus) {
  return static_cast<int>(static_cast<std::int64_t>(rank) * std::min(ranks, gpus) / ranks);
}

Partitions::~Partitions() {
  for (void* one : all_) cuda_.release_partition(one);
}

std::vector<void*> Partitions::divide(int gpu, int count) {
  pipewright_cuda_gpu facts{};
  require(cuda_, cuda_.gpu(gpu, &facts));
  const int sms =
      partition_sms({facts.sms, facts.least_partition_sms, facts.partition_alignment_sms}, count);
  std::vector<void*> parts(static_cast<std::size_t>(count), nullptr);
  if (sms == 0) return parts;
  require(cuda_, cuda_.split(gpu, sms, count, parts.data()));
  all_.insert(all_.end(), parts.begin(), parts.end());
  return parts;
}

std::vector<QueueSite> sites_of(const pipewright_cuda& cuda, int ranks, Precision precision,
                                Partitions& partitions) {
  const int gpus = cuda.gpus();
  if (gpus < 1) throw MachineError("there is no GPU");
  std::vector<QueueSite> sites(static_cast<std::size_t>(ranks));
  for (int gpu = 0; gpu < gpus; ++gpu) {
    std::vector<int> here;
    for (int r = 0; r < ranks; ++r) {
      if (gpu_of_rank(r, ranks, gpus) == gpu) here.push_back(r);
    }
    if (here.empty()) continue;
    const std::vector<void*> parts = partitions.divide(gpu, static_cast<int>(here.size()));
    for (std::size_t i = 0; i < here.size(); ++i)
      sites[static_cast<std::size_t>(here[i])] = {gpu, parts[i], precision};
    require(cuda, cuda.enter(gpu, nullptr));
    for (int other = 0; other < std::min(gpus, ranks); ++other) require(cuda, cuda.reach(other));
  }
  return sites;
}

}  // namespace pipewright::exec::cuda
