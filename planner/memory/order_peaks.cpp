#include "planner/memory/order_peaks.hpp"

#include <algorithm>
#include <functional>

#include "core/program/version_changes.hpp"

namespace pipewright::planner {
namespace {

constexpr ActionKind kComputations[] = {ActionKind::F, ActionKind::I, ActionKind::W, ActionKind::B};

/// Whether nothing of `a` is more than in `b`.
bool is_within(const std::vector<int>& a, const std::vector<int>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), std::less_equal<>());
}

}  // namespace

void OrderPeaks::Moments::add(const Held& held) {
  const auto larger = std::find_if(most.begin(), most.end(),
                                   [&](const Held& other) { return is_within(held, other); });
  if (larger != most.end()) {
    // The next ones are like this one: it is found sooner then.
    if (larger != most.begin()) std::iter_swap(larger, larger - 1);
    return;
  }
  std::erase_if(most, [&](const Held& other) { return is_within(other, held); });
  most.push_back(held);
}

/// One rank's way through its row.
class OrderPeaks::Walk {
 public:
  Walk(const Order& order, RankId rank, Sizes sizes)
      : in_actions_(sizes == Sizes::InActions),
        list_(order.ranks[static_cast<std::size_t>(rank.value)]),
        versions_(version_changes(list_, order.placement.stages_of(rank))) {
    rank_.versioned = !versions_.empty();
    for (const StageId stage : order.placement.stages_of(rank)) {
      local_.resize(std::max(local_.size(), static_cast<std::size_t>(stage.value) + 1));
      local_[static_cast<std::size_t>(stage.value)] = static_cast<int>(rank_.stages.size());
      rank_.stages.push_back(static_cast<int>(stage.value));
    }
    held_.assign(width() * rank_.stages.size(), 0);
    rank_.reductions.assign(rank_.stages.size(), 0);
    rank_.moments.push_back({});
    for (std::size_t s = 0; s < rank_.stages.size(); ++s) {
      for (const ActionKind kind : kComputations)
        rank_.moments.push_back({kind, static_cast<int>(s), {}});
    }
  }

  Rank run() {
    auto version = versions_.begin();
    for (std::size_t at = 0; at < list_.size(); ++at) {
      take(list_[at].action);
      if (list_[at].partner) take(*list_[at].partner);
      for (; version != versions_.end() && version->after == at; ++version) take(*version);
    }
    for (int& reductions : rank_.reductions) reductions = std::max(1, reductions);
    return std::move(rank_);
  }

 private:
  std::size_t width() const { return rank_.versioned ? 3 : 2; }
  std::size_t local(std::int64_t stage) const {
    return static_cast<std::size_t>(local_[static_cast<std::size_t>(stage)]);
  }

  void take(const VersionChange& version) {
    held_[width() * local(version.stage) + 2] += version.change;
    if (version.change > 0) rank_.moments.front().add(held_);
  }

  void take(const Action& action) {
    if (action.kind == ActionKind::ReduceGrad) ++rank_.reductions[local(action.stage.value)];
    const auto kind = std::find(std::begin(kComputations), std::end(kComputations), action.kind);
    if (kind == std::end(kComputations)) return;
    const std::size_t stage = local(action.stage.value);
    const auto f = width() * stage, i = f + 1;
    const auto place = 1 + std::size(kComputations) * stage +
                       static_cast<std::size_t>(kind - std::begin(kComputations));
    if (in_actions_) rank_.moments[place].add(held_);
    if (action.kind == ActionKind::F) {
      ++held_[f];
    } else if (action.kind == ActionKind::I) {
      --held_[f];
      ++held_[i];
    } else {
      --held_[action.kind == ActionKind::B ? f : i];
      return;  // less than before
    }
    rank_.moments.front().add(held_);
  }

  const bool in_actions_;
  const std::vector<Cell>& list_;
  const std::vector<VersionChange> versions_;
  Rank rank_;
  std::vector<int> local_;  // of a stage, its place among the rank's
  Held held_;
};

OrderPeaks::OrderPeaks(const Order& order, Sizes sizes) {
  for (int r = 0; r < order.rank_count(); ++r)
    ranks_.push_back(Walk(order, RankId(r), sizes).run());
}

Bytes OrderPeaks::peak(int rank, std::span<const StageMemory> memory) const {
  const Rank& of = at(rank);
  std::int64_t constant = 0, copied = 0;
  std::vector<std::int64_t> size;
  for (std::size_t s = 0; s < of.stages.size(); ++s) {
    const StageMemory& each = memory[static_cast<std::size_t>(of.stages[s])];
    constant += each.constant.value;
    copied += of.reductions[s] * each.copied_gradients.value + each.copied_weights.value;
    size.push_back(each.f.value);
    size.push_back(each.f.value + each.i.value);
    if (of.versioned) size.push_back(each.version.value);
  }
  std::int64_t most = copied;
  for (const Moments& moments : of.moments) {
    const auto stage = static_cast<std::size_t>(of.stages[static_cast<std::size_t>(moments.stage)]);
    const std::int64_t more = memory[stage].within(moments.kind).value;
    if (more == 0 && moments.kind != ActionKind::Idle) continue;
    for (const Held& held : moments.most) {
      std::int64_t bytes = more;
      for (std::size_t k = 0; k < size.size(); ++k) bytes += held[k] * size[k];
      most = std::max(most, bytes);
    }
  }
  return Bytes(constant + most);
}

}  // namespace pipewright::planner
