#include "sim/steady/listing_period.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace pipewright::sim {
namespace {

/// The passes, without what they list.
class Passes {
 public:
  explicit Passes(const Order& order)
      : order_(order),
        micro_batches_(static_cast<std::size_t>(order.micro_batches)),
        made_(2 * static_cast<std::size_t>(order.stages()) * micro_batches_, 0),
        next_(order.ranks.size(), 0) {}

  /// False: nothing is left that can be taken.
  bool pass() {
    bool some = false;
    for (std::size_t r = 0; r < next_.size(); ++r) {
      const auto& cells = order_.ranks[r];
      if (next_[r] == cells.size()) continue;
      const Cell& cell = cells[next_[r]];
      if (!can_take(cell.action) || (cell.partner && !can_take(*cell.partner))) continue;
      make(cell.action);
      if (cell.partner) make(*cell.partner);
      ++next_[r];
      some = true;
    }
    return some;
  }
  /// By rank: the place of its next cell.
  const std::vector<std::size_t>& next() const { return next_; }

 private:
  std::uint8_t& made(bool forward, std::int32_t stage, const Action& action) {
    const std::size_t row = 2 * static_cast<std::size_t>(stage) + (forward ? 1 : 0);
    return made_[row * micro_batches_ + static_cast<std::size_t>(action.micro_batch.value)];
  }
  bool can_take(const Action& a) {
    const std::int32_t stage = a.stage.value;
    if (a.kind == ActionKind::F) return stage == 0 || made(true, stage - 1, a) != 0;
    if (a.kind == ActionKind::I || a.kind == ActionKind::B)
      return stage + 1 == order_.stages() || made(false, stage + 1, a) != 0;
    return true;
  }
  void make(const Action& a) {
    if (a.kind == ActionKind::F) made(true, a.stage.value, a) = 1;
    if (a.kind == ActionKind::I || a.kind == ActionKind::B) made(false, a.stage.value, a) = 1;
  }

  const Order& order_;
  const std::size_t micro_batches_;
  std::vector<std::uint8_t> made_;
  std::vector<std::size_t> next_;
};

/// The periods between two moments, if each rank goes on by as many.
std::optional<std::size_t> periods_between(const OrderMiddle& middle,
                                           const std::vector<std::size_t>& from,
                                           const std::vector<std::size_t>& to) {
  const std::size_t period = middle.ranks.front().period;
  const std::size_t count = (to.front() - from.front()) / period;
  for (std::size_t r = 0; r < from.size(); ++r) {
    if (to[r] - from[r] != count * middle.ranks[r].period) return std::nullopt;
  }
  return count;
}

}  // namespace

std::optional<int> listing_period(const Order& order, const OrderMiddle& middle) {
  Passes passes(order);
  std::vector<std::vector<std::size_t>> moments;  // with all ranks in the middle
  while (passes.pass()) {
    const auto& next = passes.next();
    bool before = false, behind = false;
    for (std::size_t r = 0; r < next.size(); ++r) {
      before |= next[r] < middle.ranks[r].begin;
      behind |= next[r] >= middle.ranks[r].end;
    }
    if (behind) break;
    if (!before) moments.push_back(next);
  }
  // Towards the end of the middle the drain may be felt already.
  for (const std::size_t quarters : {3U, 2U, 4U}) {
    const std::size_t to = moments.size() * quarters / 4;
    for (std::size_t from = to; from-- > 1;) {
      const auto count = periods_between(middle, moments[from - 1], moments[to - 1]);
      if (count && *count > 0) return static_cast<int>(*count);
    }
  }
  return std::nullopt;
}

}  // namespace pipewright::sim
