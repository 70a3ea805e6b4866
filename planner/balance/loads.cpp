#include "planner/balance/loads.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/error.hpp"

namespace pipewright::planner {
namespace {

double median(std::vector<double> values) {
  if (values.empty()) return 1;
  std::ranges::sort(values);
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

}  // namespace

Loads::Loads(const Program& program, const CostTable& costs, const ReplicaShape& shape)
    : shape_(shape) {
  if (!program.pairs.empty() || !program.part_of.empty()) {
    throw InputError(
        "micro-batches are dealt out where each action computes one of them, in one piece; this "
        "order overlaps two, or has parts");
  }
  for (InstructionId id = 0; id < program.code.size(); ++id)
    as_given_.push_back(costs.duration(program, id).value);
  read(program);
  tell_slow_ranks();
}

void Loads::read(const Program& program) {
  for (const Instruction& in : program.code) {
    if (is_compute(in.kind)) slots_.push_back({in.kind, in.stage});
  }
  std::ranges::sort(slots_);
  slots_.erase(std::unique(slots_.begin(), slots_.end()), slots_.end());
  const auto micro_batches = static_cast<std::size_t>(shape_.replicas * shape_.micro_batches);
  times_.assign(micro_batches * slots_.size(), 0);
  ranks_.assign(times_.size(), 0);
  work_.assign(micro_batches * static_cast<std::size_t>(shape_.ranks), 0);
  for (InstructionId id = 0; id < program.code.size(); ++id) {
    const Instruction& in = program.code[id];
    if (!is_compute(in.kind)) continue;
    const int place = static_cast<int>(in.micro_batch),
              rank = program.rank_of(id).value % shape_.ranks;
    const auto slot = static_cast<std::size_t>(
        std::ranges::lower_bound(slots_, Slot{in.kind, in.stage}) - slots_.begin());
    computations_.push_back({id, place, rank, slot});
    const std::size_t own = static_cast<std::size_t>(place) * slots_.size() + slot;
    times_[own] = as_given_[id];
    ranks_[own] = rank;
    work_[index(place, rank)] += static_cast<double>(as_given_[id]);
  }
  if (computations_.size() != times_.size()) {
    throw InputError(
        "micro-batches are dealt out where all are computed in the same pieces; this order splits "
        "the backward of some into I and W and of others not");
  }
}

void Loads::tell_slow_ranks() {
  const int micro_batches = shape_.replicas * shape_.micro_batches;
  std::vector<double> mean(static_cast<std::size_t>(shape_.ranks), 0);
  for (int m = 0; m < micro_batches; ++m) {
    for (int q = 0; q < shape_.ranks; ++q)
      mean[static_cast<std::size_t>(q)] += work_[index(m, q)] / micro_batches;
  }
  // Of each micro-batch, what it takes on a rank against what it takes on most.
  const auto relative = [&](int m, int q) {
    std::vector<double> of_ranks;
    for (int other = 0; other < shape_.ranks; ++other) {
      const double usual = mean[static_cast<std::size_t>(other)];
      if (usual > 0) of_ranks.push_back(work_[index(m, other)] / usual);
    }
    return work_[index(m, q)] / mean[static_cast<std::size_t>(q)] / median(of_ranks);
  };
  slowness_.assign(static_cast<std::size_t>(shape_.replicas * shape_.ranks), 1);
  for (int q = 0; q < shape_.ranks; ++q) {
    if (mean[static_cast<std::size_t>(q)] <= 0) continue;
    std::vector<double> all;
    for (int r = 0; r < shape_.replicas; ++r) {
      std::vector<double> own;
      for (int m = r * shape_.micro_batches; m < (r + 1) * shape_.micro_batches; ++m) {
        if (const double ratio = relative(m, q); std::isfinite(ratio) && ratio > 0)
          own.push_back(ratio);
      }
      all.push_back(median(std::move(own)));
    }
    const double usual = median(all);
    for (int r = 0; r < shape_.replicas; ++r)
      slowness_[index(r, q)] = all[static_cast<std::size_t>(r)] / usual;
  }
  for (int m = 0; m < micro_batches; ++m) {
    for (int q = 0; q < shape_.ranks; ++q)
      work_[index(m, q)] /= slowness(m / shape_.micro_batches, q);
  }
}

Dealing Loads::as_it_is() const {
  Dealing dealing(static_cast<std::size_t>(shape_.replicas * shape_.micro_batches));
  std::iota(dealing.begin(), dealing.end(), 0);
  return dealing;
}

std::int64_t Loads::time_of(const Computation& computation, int micro_batch) const {
  const std::size_t own = static_cast<std::size_t>(micro_batch) * slots_.size() + computation.slot;
  if (computation.place == micro_batch) return times_[own];
  const int replica = computation.place / shape_.micro_batches;
  const double there = slowness(replica, computation.rank),
               here = slowness(micro_batch / shape_.micro_batches, ranks_[own]);
  return std::llround(static_cast<double>(times_[own]) * there / here);
}

std::vector<std::int64_t> Loads::compute_ns(const Dealing& dealing) const {
  std::vector<std::int64_t> all = as_given_;
  for (const Computation& each : computations_)
    all[each.instruction] = time_of(each, dealing[static_cast<std::size_t>(each.place)]);
  return all;
}

std::vector<std::int64_t> Loads::ends(const Timeline& timeline) const {
  std::vector<std::int64_t> ends(static_cast<std::size_t>(shape_.replicas), 0);
  for (const Computation& each : computations_) {
    auto& end = ends[static_cast<std::size_t>(each.place / shape_.micro_batches)];
    end = std::max(end, timeline.end[each.instruction]);
  }
  return ends;
}

std::vector<ActionTime> Loads::rows(const Dealing& dealing) const {
  std::vector<ActionTime> rows;
  for (const Computation& each : computations_) {
    const Slot& slot = slots_[each.slot];
    const Action action{.kind = slot.kind,
                        .stage = StageId(slot.stage),
                        .micro_batch = MicroBatchId(each.place % shape_.micro_batches)};
    rows.push_back({each.place / shape_.micro_batches,
                    RankId(each.rank),
                    {.action = action},
                    Nanoseconds(time_of(each, dealing[static_cast<std::size_t>(each.place)]))});
  }
  return rows;
}

}  // namespace pipewright::planner
