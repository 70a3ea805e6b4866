#include "exec/devices/cuda/sites.hpp"

#include <algorithm>
#include <cstdint>
#include <string>

#include "core/base/error.hpp"
#include "exec/devices/cuda/partition_sizes.hpp"

namespace pipewright::exec::cuda {

int gpu_of_rank(int rank, int ranks, int gpus) {
  return static_cast<int>(static_cast<std::int64_t>(rank) * std::min(ranks, gpus) / ranks);
}

Partitions::~Partitions() {
  for (void* one : all_) cuda_.release_partition(one);
}

Division Partitions::divide(int gpu, int count) {
  pipewright_cuda_gpu gpu_facts{};
  require(cuda_, cuda_.gpu(gpu, &gpu_facts));
  const SmFacts facts{gpu_facts.sms, gpu_facts.least_partition_sms,
                      gpu_facts.partition_alignment_sms};
  Division made{partition_sms(facts, count),
                std::vector<void*>(static_cast<std::size_t>(count), nullptr)};
  if (made.sms == 0) return made;
  std::string why;
  while (cuda_.split(gpu, made.sms, count, made.parts.data()) != 0) {
    if (why.empty()) why = cuda_.why();
    made.sms -= std::max(1, facts.alignment);
    if (made.sms < facts.least || made.sms < 1) throw RunError(why);
  }
  all_.insert(all_.end(), made.parts.begin(), made.parts.end());
  return made;
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
    const Division division = partitions.divide(gpu, static_cast<int>(here.size()));
    for (std::size_t i = 0; i < here.size(); ++i)
      sites[static_cast<std::size_t>(here[i])] = {gpu, division.parts[i], precision, division.sms};
    require(cuda, cuda.enter(gpu, nullptr));
    for (int other = 0; other < std::min(gpus, ranks); ++other) require(cuda, cuda.reach(other));
  }
  return sites;
}

}  // namespace pipewright::exec::cuda
