#include "sim/steady/listing_period.hpp"

#include <cstdint>
#include <numeric>
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

/// By rank: the place of its next cell between two passes.
using Moment = std::vector<std::size_t>;

bool is_inside(const Phase& phase, const Moment& next) {
  for (std::size_t r = 0; r < next.size(); ++r) {
    if (next[r] < phase[r].begin || next[r] >= phase[r].end) return false;
  }
  return true;
}

/// The periods between two moments, if each rank goes on by as many.
std::optional<std::size_t> periods_between(const Phase& phase, const Moment& from,
                                           const Moment& to) {
  const std::size_t count = (to.front() - from.front()) / phase.front().period;
  for (std::size_t r = 0; r < from.size(); ++r) {
    if (to[r] - from[r] != count * phase[r].period) return std::nullopt;
  }
  return count;
}

/// Of one phase, from the moments in it.
std::optional<std::size_t> period_of(const Phase& phase, const std::vector<Moment>& moments) {
  // Towards the end of the phase what follows may be felt already.
  for (const std::size_t quarters : {3U, 2U, 4U}) {
    const std::size_t to = moments.size() * quarters / 4;
    for (std::size_t from = to; from-- > 1;) {
      const auto count = periods_between(phase, moments[from - 1], moments[to - 1]);
      if (count && *count > 0) return count;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<int> listing_period(const Order& order, const OrderMiddle& middle) {
  if (order.has_transfers()) return 1;
  Passes passes(order);
  std::vector<std::vector<Moment>> moments(middle.phases.size());
  while (passes.pass()) {
    for (std::size_t q = 0; q < moments.size(); ++q) {
      if (is_inside(middle.phases[q], passes.next())) moments[q].push_back(passes.next());
    }
  }
  std::size_t all = 1;
  for (std::size_t q = 0; q < moments.size(); ++q) {
    const auto count = period_of(middle.phases[q], moments[q]);
    if (!count) return std::nullopt;
    all = std::lcm(all, *count);
    if (all > static_cast<std::size_t>(order.micro_batches)) return std::nullopt;
  }
  return static_cast<int>(all);
}

}  // namespace pipewright::sim
