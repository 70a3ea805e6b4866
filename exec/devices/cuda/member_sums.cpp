#include "exec/devices/cuda/member_sums.hpp"

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "core/base/error.hpp"

namespace pipewright::exec::cuda {
namespace {

bool is_narrow(const Queue& queue, const SumOfMembers& sum) {
  return !sum.in_floats && queue.number_bytes() == sizeof(Bfloat16);
}

}  // namespace

PartPtr MemberSums::part_of(const SumOfMembers& sum) {
  PIPEWRIGHT_ASSERT(!sum.scatters, "a scattered sum on GPUs");
  return std::make_shared<DevicePart>(ArrayOfGroup{sum.values, sum.size(), is_narrow(queue_, sum)},
                                      queue_.record(queue_.computing()));
}

void MemberSums::take(const PartPtr& sum) {
  const auto* part = dynamic_cast<const DevicePart*>(sum.get());
  if (part == nullptr) throw RunError("received what is no sum on a GPU");
  queue_.wait(queue_.computing(), part->ready);
}

void MemberSums::bring_together(const SumOfMembers& sum, const AxisGroup& members,
                                collectives::Group& group) {
  PIPEWRIGHT_ASSERT(!sum.scatters, "a scattered sum on GPUs");
  if (members.numerics() == Numerics::Exact) return go_on_in_turns(sum, members.index(), group);
  is_narrow(queue_, sum) ? add_up<Bfloat16>(sum, group) : add_up<float>(sum, group);
}

void MemberSums::rehearse(const SumOfMembers& sum, const AxisGroup& members) {
  if (members.numerics() != Numerics::Exact) return;
  queue_.clear(sum.values, sum.size() * sizeof(float));
  for (const ChainTurn& turn : sum.turns)
    if (turn.member == members.index()) sum.go_on(turn.own, sum.values);
}

/// As exec/training/tensor_sums.cpp has it.
void MemberSums::go_on_in_turns(const SumOfMembers& sum, int index, collectives::Group& group) {
  std::vector<float> values(sum.size());
  queue_.clear(sum.values, values.size() * sizeof(float));
  for (std::size_t k = 0; k < sum.turns.size(); ++k) {
    const ChainTurn& turn = sum.turns[k];
    const bool is_own = turn.member == index;
    if (is_own) sum.go_on(turn.own, sum.values);
    if (k + 1 < sum.turns.size() && sum.turns[k + 1].member == turn.member) continue;
    if (is_own) download(sum, values);
    group.broadcast(turn.member, std::as_writable_bytes(std::span(values)));
    if (!is_own) upload(values, sum);
  }
}

template <class Number>
void MemberSums::add_up(const SumOfMembers& sum, collectives::Group& group) {
  std::vector<Number> numbers;
  download(sum, numbers);
  std::vector<float> values(numbers.begin(), numbers.end());
  const bool is_finite = group.all_reduce({std::span(values), Numerics::Fast});
  PIPEWRIGHT_ASSERT(is_finite, "a sum of floats has no range to leave");
  std::copy(values.begin(), values.end(), numbers.begin());
  upload(numbers, sum);
}

template <class Number>
void MemberSums::download(const SumOfMembers& sum, std::vector<Number>& to) {
  to.resize(sum.size());
  queue_.copy(to.data(), sum.values, to.size() * sizeof(Number));
  queue_.finish(queue_.record(queue_.computing()), between_);
}

/// What is copied stays until it is on the GPU.
template <class Number>
void MemberSums::upload(const std::vector<Number>& from, const SumOfMembers& sum) {
  queue_.copy(sum.values, from.data(), from.size() * sizeof(Number));
  queue_.finish(queue_.record(queue_.computing()), between_);
}

}  // namespace pipewright::exec::cuda
