#include "exec/devices/cuda/member_sums.hpp"

#include <algorithm>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "core/base/error.hpp"
#include "exec/layers/layer.hpp"
#include "exec/training/expert_exchange.hpp"
#include "exec/training/tensor_sums.hpp"

namespace pipewright::exec::cuda {
ArrayOfGroup MemberSums::array_of(const Wanted& wanted) const {
  const bool is_narrow = queue_.number_bytes() == sizeof(Bfloat16);
  if (wanted.rows != nullptr)
    return {wanted.rows->values, words_of(wanted.rows->rows, wanted.rows->width),
            is_narrow && !wanted.rows->in_floats};
  PIPEWRIGHT_ASSERT(wanted.sum != nullptr, "ranks bring together what no GPU does");
  return {wanted.sum->values, wanted.sum->size(), is_narrow && !wanted.sum->in_floats};
}

RoundOfGroup MemberSums::round_of(const RingOfMembers& ring) const {
  RoundOfGroup round{.hops = {}, .bytes = words_of(ring.rows, ring.width) * queue_.number_bytes()};
  for (const RingOfMembers::Hop& hop : ring.arrays) round.hops.push_back({hop.sent, hop.arrived});
  return round;
}

PartPtr MemberSums::part_of(const Wanted& wanted) {
  if (wanted.ring != nullptr)
    return std::make_shared<DevicePart>(round_of(*wanted.ring), queue_.record(queue_.computing()));
  if (wanted.exchange != nullptr)
    return std::make_shared<DevicePart>(ExchangeOfGroup{wanted.exchange, queue_.number_bytes()},
                                        queue_.record(queue_.computing()));
  return std::make_shared<DevicePart>(array_of(wanted), queue_.record(queue_.computing()));
}

void MemberSums::take(const PartPtr& together) {
  const auto* part = dynamic_cast<const DevicePart*>(together.get());
  if (part == nullptr) throw RunError("received what does not lie on a GPU");
  queue_.wait(queue_.computing(), part->ready);
}

void MemberSums::bring_together(const Wanted& wanted, const AxisGroup& members,
                                collectives::Group& group) {
  if (wanted.ring != nullptr) return pass_on(round_of(*wanted.ring), group);
  const ArrayOfGroup array = array_of(wanted);
  if (wanted.rows != nullptr) return gather(array, group);
  if (members.numerics() == Numerics::Exact)
    return go_on_in_turns(*wanted.sum, members.index(), group);
  array.is_narrow ? add_up<Bfloat16>(array, group) : add_up<float>(array, group);
}

void MemberSums::bring_together(ExchangeOfMembers& exchange, collectives::Group& group) {
  bring_counts_together(exchange, group);
  const std::size_t bytes = queue_.number_bytes();
  const auto room_for = [&](const std::vector<std::size_t>& rows) {
    const std::size_t all = std::accumulate(rows.begin(), rows.end(), std::size_t{0});
    return std::vector<std::byte>(all * static_cast<std::size_t>(exchange.width) * bytes);
  };
  std::vector<std::byte> out = room_for(exchange.rows_out), in = room_for(exchange.rows_in);
  copy(out.data(), exchange.out, out.size());
  bring_rows_together(exchange, bytes, out.data(), in.data(), group);
  copy(exchange.in, in.data(), in.size());
}

void MemberSums::rehearse(const Wanted& wanted, const AxisGroup& members) {
  if (wanted.rows != nullptr) {
    const ArrayOfGroup array = array_of(wanted);
    return queue_.clear(array.at,
                        array.size * (array.is_narrow ? sizeof(Bfloat16) : sizeof(float)));
  }
  if (wanted.sum == nullptr || members.numerics() != Numerics::Exact) return;
  const SumOfMembers& sum = *wanted.sum;
  queue_.clear(sum.values, sum.size() * sizeof(float));
  for (const ChainTurn& turn : sum.turns)
    if (turn.member == members.index()) sum.go_on(turn.own, sum.values);
}

/// As exec/training/tensor_sums.cpp has it.
void MemberSums::go_on_in_turns(const SumOfMembers& sum, int index, collectives::Group& group) {
  const ArrayOfGroup array{sum.values, sum.size(), false};
  std::vector<float> values(sum.size());
  queue_.clear(sum.values, values.size() * sizeof(float));
  for (std::size_t k = 0; k < sum.turns.size(); ++k) {
    const ChainTurn& turn = sum.turns[k];
    const bool is_own = turn.member == index;
    if (is_own) sum.go_on(turn.own, sum.values);
    if (k + 1 < sum.turns.size() && sum.turns[k + 1].member == turn.member) continue;
    if (is_own) download(array, values);
    group.broadcast(turn.member, std::as_writable_bytes(std::span(values)));
    if (!is_own) upload(values, array);
  }
}

/// Of a scattered sum others' rows mean nothing, so they may as well be there.
template <class Number>
void MemberSums::add_up(const ArrayOfGroup& array, collectives::Group& group) {
  std::vector<Number> numbers;
  download(array, numbers);
  std::vector<float> values(numbers.begin(), numbers.end());
  const bool is_finite = group.all_reduce({std::span(values), Numerics::Fast});
  PIPEWRIGHT_ASSERT(is_finite, "a sum of floats has no range to leave");
  std::copy(values.begin(), values.end(), numbers.begin());
  upload(numbers, array);
}

/// Bytes, whatever they mean.
void MemberSums::gather(const ArrayOfGroup& array, collectives::Group& group) {
  const auto members = static_cast<std::size_t>(group.members());
  const auto together = [&](auto& numbers) {
    download(array, numbers);
    const std::vector<std::size_t> sizes(members,
                                         numbers.size() / members * sizeof(numbers.front()));
    group.all_gather({std::as_writable_bytes(std::span(numbers)), sizes});
    upload(numbers, array);
  };
  std::vector<float> wide;
  std::vector<Bfloat16> narrow;
  array.is_narrow ? together(narrow) : together(wide);
}

/// What is sent stays as it is until then, also beside a computation.
void MemberSums::pass_on(const RoundOfGroup& round, collectives::Group& group) {
  for (const RoundOfGroup::Hop& hop : round.hops) {
    std::vector<std::byte> sent, arrived(round.bytes);
    download({const_cast<void*>(hop.sent), round.bytes}, sent);
    exec::pass_on(sent, arrived, group);
    upload(arrived, {hop.arrived, round.bytes});
  }
}

template <class Number>
void MemberSums::download(const ArrayOfGroup& array, std::vector<Number>& to) {
  to.resize(array.size);
  copy(to.data(), array.at, to.size() * sizeof(Number));
}

template <class Number>
void MemberSums::upload(const std::vector<Number>& from, const ArrayOfGroup& array) {
  copy(array.at, from.data(), from.size() * sizeof(Number));
}

/// Waits: what is copied stays until it is on the GPU, or on the host.
void MemberSums::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) queue_.copy(to, from, bytes);
  queue_.finish(queue_.record(queue_.computing()), between_);
}

}  // namespace pipewright::exec::cuda
