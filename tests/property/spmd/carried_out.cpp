#include "tests/property/spmd/carried_out.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace pipewright::spmd::test {
namespace {

constexpr double kMissing = -1;

/// The value at `at` that the members of a group make together, each of its old part.
double value_of(const ReshardStep& step, const State& before, const std::vector<int>& group,
                int rank, const Shape& at, Reduction reduction) {
  using Kind = ReshardStep::Kind;
  const double* own = find(before.at(rank), at);
  if (step.kind == Kind::Slice) return own == nullptr ? kMissing : *own;
  if (step.kind == Kind::MakePartial) {
    const bool repeats = reduction == Reduction::Maximum;
    return repeats || rank == group.front() ? *own : 0;
  }
  const double* sum = nullptr;
  double value = 0;
  for (const int member : group) {
    const double* one = find(before.at(member), at);
    const bool adds = step.kind == Kind::AllReduce || step.kind == Kind::ReduceScatter;
    if (one != nullptr && !adds) return *one;
    if (one == nullptr && adds) return kMissing;
    if (one == nullptr) continue;
    value = sum == nullptr ? *one : combined(reduction, value, *one);
    sum = one;
  }
  return sum == nullptr ? kMissing : value;
}

const std::vector<int>& group_with(const ReshardStep& step, int rank) {
  for (const std::vector<int>& group : step.groups) {
    for (const int member : group) {
      if (member == rank) return group;
    }
  }
  throw std::logic_error("a rank in no group");
}

State exchanged(const Shape& shape, const ReshardStep& step, const State& before,
                std::int64_t element_bytes) {
  State after;
  for (std::size_t place = 0; place < step.after.mesh.ranks.size(); ++place) {
    const int rank = step.after.mesh.ranks[place];
    Held held{local_part({shape, step.after.layout}, step.after.mesh, place), {}};
    const auto own = before.find(rank);
    for_each_element(held.part, [&](const Shape& at, std::size_t) {
      const double* value = own == before.end() ? nullptr : find(own->second, at);
      held.values.push_back(value == nullptr ? kMissing : *value);
    });
    after[rank] = std::move(held);
  }
  std::map<int, std::int64_t> sent, received;
  for (const PartTransfer& transfer : step.transfers) {
    Held& target = after.at(transfer.to);
    for_each_element(transfer.part, [&](const Shape& at, std::size_t) {
      const double* value = find(before.at(transfer.from), at);
      ASSERT_NE(value, nullptr) << "sent what it does not have";
      ASSERT_NE(find(target, at), nullptr) << "sent what is not wanted";
      *find(target, at) = *value;
    });
    sent[transfer.from] += elements_of(transfer.part);
    received[transfer.to] += elements_of(transfer.part);
  }
  std::int64_t most = 0;
  for (const auto& [rank, elements] : sent) most = std::max(most, elements);
  for (const auto& [rank, elements] : received) most = std::max(most, elements);
  EXPECT_EQ(element_bytes * most, step.bytes);
  return after;
}

}  // namespace

const double* find(const Held& held, const Shape& at) {
  std::size_t place = 0;
  for (std::size_t axis = 0; axis < at.size(); ++axis) {
    const std::int64_t within = at[axis] - held.part.offset[axis];
    if (within < 0 || within >= held.part.shape[axis]) return nullptr;
    place =
        place * static_cast<std::size_t>(held.part.shape[axis]) + static_cast<std::size_t>(within);
  }
  return &held.values[place];
}

double* find(Held& held, const Shape& at) {
  const double* found = find(static_cast<const Held&>(held), at);
  return found == nullptr ? nullptr : held.values.data() + (found - held.values.data());
}

double combined(Reduction reduction, double one, double other) {
  switch (reduction) {
    case Reduction::Sum:
      return one + other;
    case Reduction::Maximum:
      return std::max(one, other);
    case Reduction::LogSumExp:
      return std::log(std::exp(one) + std::exp(other));
    case Reduction::Norm:
      return std::sqrt(one * one + other * other);
    default:
      ADD_FAILURE() << "no rule here leaves this";
      return one;
  }
}

State carried_out(const Shape& shape, const ReshardStep& step, const State& before,
                  Reduction reduction, std::int64_t element_bytes) {
  if (step.kind == ReshardStep::Kind::Exchange) {
    return exchanged(shape, step, before, element_bytes);
  }
  State after;
  for (std::size_t place = 0; place < step.after.mesh.ranks.size(); ++place) {
    const int rank = step.after.mesh.ranks[place];
    const std::vector<int>& group = group_with(step, rank);
    Held held{local_part({shape, step.after.layout}, step.after.mesh, place), {}};
    for_each_element(held.part, [&](const Shape& at, std::size_t) {
      held.values.push_back(value_of(step, before, group, rank, at, reduction));
    });
    after[rank] = std::move(held);
  }
  return after;
}

}  // namespace pipewright::spmd::test
