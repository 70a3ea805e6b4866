#include "planner/configurations/uneven_work.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "core/base/error.hpp"
#include "planner/estimate/rank_places.hpp"

namespace pipewright::planner {
namespace {

/// As slow as `other` on every rank, or less.
bool is_covered_by(const UnevenReplica& one, const UnevenReplica& other) {
  return std::ranges::equal(one.slowness, other.slowness, std::ranges::less_equal());
}

double all_work(const UnevenReplica& replica) {
  return replica.total_length() *
         std::accumulate(replica.slowness.begin(), replica.slowness.end(), 0.0);
}

Nanoseconds longer_time(Nanoseconds time, double factor) {
  // The epsilon keeps an exact product from being rounded up by its last bit.
  return Nanoseconds(
      static_cast<std::int64_t>(std::ceil(static_cast<double>(time.value) * factor - 1e-6)));
}

}  // namespace

double UnevenReplica::total_length() const {
  return std::accumulate(length.begin(), length.end(), 0.0);
}

UnevenReplica UnevenWork::replica(const ParallelSetup& mesh, int number) const {
  UnevenReplica replica{number, std::vector<double>(static_cast<std::size_t>(mesh.pipeline), 1),
                        std::vector<double>(static_cast<std::size_t>(mesh.micro_batches), 1)};
  for (int rank = 0; rank < mesh.pipeline && !job_.cluster.slow.empty(); ++rank) {
    const int devices = is_estimated_ ? devices_of_rank(mesh) : mesh.tensor;
    const int first = is_estimated_ ? first_device(mesh, rank, number)
                                    : (number * mesh.pipeline + rank) * devices;
    double& most = replica.slowness[static_cast<std::size_t>(rank)];
    for (int device = first; device < first + devices; ++device)
      most = std::max(most, job_.cluster.slowness(device));
  }
  if (!has_lengths()) return replica;
  const auto size = static_cast<std::ptrdiff_t>(mesh.micro_batch_size);
  if (static_cast<std::size_t>(mesh.data * mesh.micro_batches * size) != job_.sample_scales.size())
    throw InputError("sample_scales has numbers for " + std::to_string(job_.sample_scales.size()) +
                     " samples, and a step here has " +
                     std::to_string(mesh.data * mesh.micro_batches * size));
  for (int k = 0; k < mesh.micro_batches; ++k) {
    const auto from = job_.sample_scales.begin() + (number * mesh.micro_batches + k) * size;
    replica.length[static_cast<std::size_t>(k)] =
        std::accumulate(from, from + size, 0.0) / static_cast<double>(size);
  }
  return replica;
}

std::vector<UnevenReplica> UnevenWork::all(const ParallelSetup& mesh) const {
  std::vector<UnevenReplica> replicas;
  for (int d = 0; d < mesh.data; ++d) replicas.push_back(replica(mesh, d));
  return replicas;
}

std::vector<UnevenReplica> UnevenWork::telling(const ParallelSetup& mesh) const {
  std::vector<UnevenReplica> kept;
  for (UnevenReplica& one : all(mesh)) {
    const auto covers = [&](const UnevenReplica& other) { return is_covered_by(one, other); };
    if (!has_lengths() && std::ranges::any_of(kept, covers)) continue;
    if (!has_lengths())
      std::erase_if(kept, [&](const UnevenReplica& other) { return is_covered_by(other, one); });
    kept.push_back(std::move(one));
  }
  const auto most = std::ranges::max_element(kept, std::less(), all_work);
  std::rotate(kept.begin(), most, most + 1);
  return kept;
}

StageCosts stretched(const StageCosts& computations, double factor) {
  StageCosts longer = computations;
  for (Nanoseconds StageCosts::*time : {&StageCosts::f, &StageCosts::w, &StageCosts::b})
    longer.*time = longer_time(computations.*time, factor);
  longer.i = computations.i + computations.w == computations.b
                 ? longer.b - longer.w
                 : longer_time(computations.i, factor);
  return longer;
}

}  // namespace pipewright::planner
