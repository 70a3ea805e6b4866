#include "exec/training/tensor_sums.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "core/base/error.hpp"
#include "exec/collectives/posting.hpp"
#include "exec/layers/layer.hpp"

namespace pipewright::exec {
namespace {

/// The chain that a single rank would make, begun with 0; each member hands on what it has where
/// another one goes on, and the last one hands it to all.
void go_on_in_turns(SumOfMembers& sum, int index, collectives::Group& group) {
  const std::span<float> values(sum.values, sum.size());
  std::fill(values.begin(), values.end(), 0.0F);
  for (std::size_t k = 0; k < sum.turns.size(); ++k) {
    const ChainTurn& turn = sum.turns[k];
    if (turn.member == index) sum.go_on(turn.own, sum.values);
    const bool goes_on = k + 1 < sum.turns.size() && sum.turns[k + 1].member == turn.member;
    if (!goes_on) group.broadcast(turn.member, std::as_writable_bytes(values));
  }
}

}  // namespace

void bring_together(SumOfMembers& sum, const AxisGroup& members, collectives::Group& group) {
  if (members.numerics() == Numerics::Exact) return go_on_in_turns(sum, members.index(), group);
  const collectives::Summands values{std::span(sum.values, sum.size()), Numerics::Fast};
  const bool is_finite = sum.scatters ? group.reduce_scatter(values) : group.all_reduce(values);
  PIPEWRIGHT_ASSERT(is_finite, "a sum of floats has no range to leave");
}

void bring_together(RowsOfMembers& rows, collectives::Group& group) {
  const std::size_t size =
      static_cast<std::size_t>(rows.rows) * static_cast<std::size_t>(rows.width);
  const auto members = static_cast<std::size_t>(group.members());
  const std::vector<std::size_t> sizes(members, size / members * sizeof(float));
  group.all_gather({std::as_writable_bytes(std::span(rows.values, size)), sizes});
}

void pass_on(std::span<const std::byte> sent, std::span<std::byte> arrived,
             collectives::Group& group) {
  const int n = group.members();
  std::vector<std::size_t> out(static_cast<std::size_t>(n), 0), in(out);
  out[collectives::index_of((group.member() + 1) % n)] = sent.size();
  in[collectives::index_of((group.member() + n - 1) % n)] = arrived.size();
  group.all_to_all({sent, out}, {arrived, in});
}

void bring_together(RingOfMembers& ring, collectives::Group& group) {
  const std::size_t words = words_of(ring.rows, ring.width);
  for (const RingOfMembers::Hop& hop : ring.arrays)
    pass_on(std::as_bytes(std::span(hop.sent, words)),
            std::as_writable_bytes(std::span(hop.arrived, words)), group);
}

void send_round(const std::string& name, const RingOfMembers& ring, collectives::Group& group) {
  auto* const posting = dynamic_cast<collectives::Posting*>(&group);
  if (posting == nullptr) return;
  const std::size_t size = words_of(ring.rows, ring.width);
  for (const RingOfMembers::Hop& hop : ring.arrays)
    posting->post(name, std::as_bytes(std::span(hop.sent, size)));
}

void take_round(const std::string& name, RingOfMembers& ring, collectives::Group& group) {
  auto* const posting = dynamic_cast<collectives::Posting*>(&group);
  if (posting == nullptr) return bring_together(ring, group);
  const std::size_t size = words_of(ring.rows, ring.width);
  for (const RingOfMembers::Hop& hop : ring.arrays)
    posting->collect(name, std::as_writable_bytes(std::span(hop.arrived, size)));
}

}  // namespace pipewright::exec
