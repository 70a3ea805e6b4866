#include "core/program/lowering.hpp"

#include <algorithm>
#include <numeric>

namespace pipewright::lowering {
namespace {

/// §1.2: each RECV to just before its consumer. The result is the old place of each instruction, in
/// the new order.
std::vector<std::size_t> deferred_positions(const std::vector<Instruction>& row,
                                            const std::vector<Action>& partners) {
  struct Waiting {
    std::size_t position;
    bool placed = false;
  };
  std::vector<std::pair<std::uint64_t, Waiting>> receives;  // by tensor, sorted
  const auto key = [](bool activation, int stage, std::uint32_t micro_batch) {
    return (std::uint64_t{activation} << 63) | (static_cast<std::uint64_t>(stage) << 40) |
           micro_batch;
  };
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (is_recv(row[i].kind) && !is_call(row[i].kind)) {
      receives.emplace_back(key(carries_activation(row[i].kind), row[i].stage, row[i].micro_batch),
                            Waiting{i});
    }
  }
  std::stable_sort(receives.begin(), receives.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::size_t> positions;
  positions.reserve(row.size());
  const auto fetch = [&](ActionKind kind, int stage, std::uint32_t micro_batch) {
    if (kind != ActionKind::F && kind != ActionKind::I && kind != ActionKind::B) return;
    const std::uint64_t wanted = key(kind == ActionKind::F, stage, micro_batch);
    auto at = std::lower_bound(receives.begin(), receives.end(), wanted,
                               [](const auto& a, std::uint64_t k) { return a.first < k; });
    for (; at != receives.end() && at->first == wanted && !at->second.placed; ++at) {
      positions.push_back(at->second.position);
      at->second.placed = true;
    }
  };
  for (std::size_t i = 0; i < row.size(); ++i) {
    const Instruction& in = row[i];
    if (is_recv(in.kind) && !is_call(in.kind)) continue;
    fetch(in.kind, in.stage, in.micro_batch);
    if (in.has(Instruction::kPair)) {
      const Action& second = partners[in.link];
      fetch(second.kind, second.stage.value, static_cast<std::uint32_t>(second.micro_batch.value));
    }
    positions.push_back(i);
  }
  std::vector<std::size_t> left;
  for (const auto& [tensor, waiting] : receives) {
    if (!waiting.placed) left.push_back(waiting.position);
  }
  std::sort(left.begin(), left.end());
  positions.insert(positions.end(), left.begin(), left.end());
  return positions;
}

/// §1.3: each run in Megatron's order for the parity of the rank, as old places.
std::vector<std::size_t> even_odd_positions(const std::vector<Instruction>& row, bool odd_rank) {
  const auto place = [odd_rank](const Instruction& in) {
    const int base = in.kind == ActionKind::SendF   ? 0
                     : in.kind == ActionKind::RecvF ? 1
                     : in.kind == ActionKind::SendB ? 2
                                                    : 3;
    return odd_rank ? base ^ 1 : base;
  };
  std::vector<std::size_t> positions(row.size());
  std::iota(positions.begin(), positions.end(), std::size_t{0});
  for (std::size_t begin = 0; begin < row.size();) {
    std::size_t end = begin;
    while (end < row.size() && is_pipeline_transfer(row[end].kind)) ++end;
    const auto first = positions.begin() + static_cast<std::ptrdiff_t>(begin);
    std::stable_sort(first, positions.begin() + static_cast<std::ptrdiff_t>(end),
                     [&](std::size_t a, std::size_t b) { return place(row[a]) < place(row[b]); });
    begin = end + 1;
  }
  return positions;
}

void reorder(Draft& draft, std::size_t rank, const std::vector<std::size_t>& positions) {
  const auto apply = [&](auto& list) {
    auto moved = list;
    for (std::size_t i = 0; i < positions.size(); ++i) moved[i] = list[positions[i]];
    list.swap(moved);
  };
  apply(draft.ranks[rank]);
  if (!draft.versions.empty()) apply(draft.versions[rank]);
}

}  // namespace

void arrange(Draft& draft, const CommPolicy& policy, std::size_t devices) {
  for (std::size_t r = 0; r < draft.ranks.size(); ++r) {
    if (policy.post == Post::Deferred)
      reorder(draft, r, deferred_positions(draft.ranks[r], draft.partners));
    if (policy.run_order == RunOrder::EvenOdd)
      reorder(draft, r, even_odd_positions(draft.ranks[r], r / devices % 2 == 1));
  }
}

}  // namespace pipewright::lowering
