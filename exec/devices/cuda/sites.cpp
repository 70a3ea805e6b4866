#include "exec/devices/cuda/sites.hpp"

#include <algorithm>
#include <cstdint>
#include <string>

#include "core/base/error.hpp"

namespace pipewright::exec::cuda {

namespace {

/// What a GPU can be divided into (pipewright_cuda_gpu).
struct SmFacts {
  int sms = 0;
  int least = 0;      // of a partition; 0: the driver has no partitions
  int alignment = 0;  // a partition's size is a multiple of this
};

/// SMs of each of `ranks` equal partitions: as many as fit, at least facts.least, a multiple of the
/// alignment. 0 for a single rank, which gets the GPU undivided.
int partition_sms(const SmFacts& facts, int ranks) {
  PIPEWRIGHT_ASSERT(ranks > 0, "a GPU without ranks");
  if (ranks == 1) return 0;
  if (facts.least <= 0) {
    throw MachineError("this driver cannot divide a GPU among " + std::to_string(ranks) +
                       " ranks (it needs CUDA 12.5 or newer); give each rank a GPU of its own");
  }
  const int alignment = std::max(1, facts.alignment);
  const int least = (facts.least + alignment - 1) / alignment * alignment;
  const int each = facts.sms / ranks / alignment * alignment;
  if (each >= least) return each;
  throw InputError("a GPU of " + std::to_string(facts.sms) + " SMs has room for " +
                   std::to_string(facts.sms / least) + " ranks of at least " +
                   std::to_string(least) + " SMs, not for " + std::to_string(ranks) +
                   "; use fewer ranks, or more GPUs");
}

}  // namespace

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
