#include "sim/steady/order_middle.hpp"

#include <algorithm>
#include <cstdint>

namespace pipewright::sim {
namespace {

using Cells = std::vector<Cell>;

bool are_alike(const Action& a, const Action& b) { return a.kind == b.kind && a.stage == b.stage; }
/// But for the micro-batch.
bool are_alike(const Cell& a, const Cell& b) {
  return a.batched == b.batched && are_alike(a.action, b.action) &&
         a.partner.has_value() == b.partner.has_value() &&
         (!a.partner || are_alike(*a.partner, *b.partner));
}

/// Where what an action takes from another stage is made.
class Makers {
 public:
  struct Place {
    std::int64_t rank = -1, at = 0;  // -1: it takes nothing
  };

  explicit Makers(const Order& order)
      : stages_(order.stages()),
        micro_batches_(static_cast<std::size_t>(order.micro_batches)),
        places_(2 * static_cast<std::size_t>(stages_) * micro_batches_) {
    for (std::size_t r = 0; r < order.ranks.size(); ++r) {
      for (std::size_t at = 0; at < order.ranks[r].size(); ++at) {
        const Cell& cell = order.ranks[r][at];
        const Place here{static_cast<std::int64_t>(r), static_cast<std::int64_t>(at)};
        makes(cell.action, here);
        if (cell.partner) makes(*cell.partner, here);
      }
    }
  }

  Place of_input(const Action& a) const {
    const std::int32_t stage = a.stage.value;
    if (a.kind == ActionKind::F && stage > 0) return places_[index(true, stage - 1, a)];
    if ((a.kind == ActionKind::I || a.kind == ActionKind::B) && stage + 1 < stages_)
      return places_[index(false, stage + 1, a)];
    return {};
  }

 private:
  std::size_t index(bool forward, std::int32_t stage, const Action& a) const {
    const std::size_t row = 2 * static_cast<std::size_t>(stage) + (forward ? 1 : 0);
    return row * micro_batches_ + static_cast<std::size_t>(a.micro_batch.value);
  }
  void makes(const Action& a, Place here) {
    if (a.kind == ActionKind::F) places_[index(true, a.stage.value, a)] = here;
    if (a.kind == ActionKind::I || a.kind == ActionKind::B)
      places_[index(false, a.stage.value, a)] = here;
  }

  int stages_;
  std::size_t micro_batches_;
  std::vector<Place> places_;
};

/// One period more: behind the last cell up to which both lists are alike.
struct Cut {
  std::size_t at = 0, period = 0;
};

/// The places where `longer` has a period more than `cells`.
class Cutting {
 public:
  Cutting(const Cells& cells, const Cells& longer) : cells_(cells), longer_(longer) {}

  /// nullopt: the longer list is something else.
  std::optional<std::vector<Cut>> find() {
    if (longer_.size() <= cells_.size() || !cut_from(0, 0)) return std::nullopt;
    return std::move(cuts_);
  }

 private:
  /// From here on, `longer` being so many cells ahead. What is missing may come once more in one
  /// piece or in several; the fewest and longest are looked for first.
  bool cut_from(std::size_t at, std::size_t before) {
    while (at < cells_.size() && are_alike(cells_[at], longer_[at + before])) ++at;
    const std::size_t more = longer_.size() - cells_.size() - before;
    if (more == 0) return at == cells_.size();
    if (!cuts_.empty() && cuts_.back().at == at) return false;
    for (std::size_t period = std::min(more, at); period > 0; --period) {
      if (!comes_once_more(at + before, period)) continue;
      cuts_.push_back({at, period});
      if (cut_from(at, before + period)) return true;
      cuts_.pop_back();
    }
    return false;
  }

  /// What ends at this place of the longer list.
  bool comes_once_more(std::size_t at, std::size_t period) const {
    const auto end = longer_.begin() + static_cast<std::ptrdiff_t>(at);
    const auto length = static_cast<std::ptrdiff_t>(period);
    return std::equal(end - length, end, end, end + length,
                      [](const Cell& a, const Cell& b) { return are_alike(a, b); });
  }

  const Cells& cells_;
  const Cells& longer_;
  std::vector<Cut> cuts_;
};

class Search {
 public:
  Search(const Order& order, const Order& longer) : order_(order), longer_(longer) {}

  std::optional<std::vector<Phase>> find() {
    for (std::size_t r = 0; r < order_.ranks.size(); ++r) {
      const auto cuts = Cutting(order_.ranks[r], longer_.ranks[r]).find();
      if (!cuts || (r > 0 && cuts->size() != alike_.size())) return std::nullopt;
      alike_.resize(cuts->size());
      for (std::size_t q = 0; q < cuts->size(); ++q)
        alike_[q].push_back(alike_around(r, (*cuts)[q]));
    }
    const Makers makers(order_);
    std::vector<Phase> found = alike_;
    for (std::size_t q = 0; q < found.size(); ++q) {
      for (std::size_t r = 0; r < found[q].size(); ++r) {
        Middle& middle = found[q][r];
        if (middle.size() < 2 * middle.period) return std::nullopt;
        const std::size_t from = middle.begin + (middle.size() - middle.period) / 2;
        middle = grown(from, middle.period, 0, order_.ranks[r].size(),
                       [&](std::size_t at) { return repeats(makers, q, r, at); });
        if (middle.size() < 2 * middle.period) return std::nullopt;
      }
    }
    return found;
  }

 private:
  Middle alike_around(std::size_t rank, const Cut& cut) const {
    const Cells& cells = order_.ranks[rank];
    return grown(cut.at - cut.period, cut.period, 0, cells.size(),
                 [&](std::size_t at) { return are_alike(cells[at], cells[at + cut.period]); });
  }

  /// Made one period later in this phase, or in one before it.
  bool is_later(const Makers::Place& a, const Makers::Place& b, std::size_t phase) const {
    if (a.rank != b.rank) return false;
    if (a.rank < 0) return true;
    for (std::size_t q = 0; q <= phase; ++q) {
      const Middle& middle = alike_[q][static_cast<std::size_t>(a.rank)];
      if (b.at - a.at == static_cast<std::int64_t>(middle.period) &&
          static_cast<std::size_t>(a.at) >= middle.begin &&
          static_cast<std::size_t>(b.at) < middle.end)
        return true;
    }
    return false;
  }

  bool repeats(const Makers& makers, std::size_t phase, std::size_t rank, std::size_t at) const {
    const Cell& a = order_.ranks[rank][at];
    const Cell& b = order_.ranks[rank][at + alike_[phase][rank].period];
    if (!are_alike(a, b)) return false;
    if (!is_later(makers.of_input(a.action), makers.of_input(b.action), phase)) return false;
    return !a.partner || is_later(makers.of_input(*a.partner), makers.of_input(*b.partner), phase);
  }

  const Order& order_;
  const Order& longer_;
  std::vector<Phase> alike_;  // cells alone, whatever they take
};

}  // namespace

std::optional<OrderMiddle> middle_of(const Order& order, const Order& longer) {
  OrderMiddle middle;
  middle.micro_batches = longer.micro_batches - order.micro_batches;
  if (middle.micro_batches < 1 || order.ranks.size() != longer.ranks.size()) return std::nullopt;
  auto phases = Search(order, longer).find();
  if (!phases) return std::nullopt;
  middle.phases = *std::move(phases);
  return middle;
}

}  // namespace pipewright::sim
