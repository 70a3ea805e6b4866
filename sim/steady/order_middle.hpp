// Where an order repeats itself: of each rank the cells that come again and again, in one stretch
// of its list or in several, one after another (all forwards, then all backwards).
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "core/order/order.hpp"

namespace pipewright::sim {

/// Of a rank's list the places [begin, end): each of them, but for the last `period`, holds what
/// stands `period` places later, for another micro-batch.
struct Middle {
  std::size_t begin = 0, end = 0, period = 0;

  std::size_t size() const { return end - begin; }
};

/// The one around a place that repeats, as far as `repeats(at)` holds on both sides; the list is
/// [first, behind).
template <class Repeats>
Middle grown(std::size_t from, std::size_t period, std::size_t first, std::size_t behind,
             Repeats repeats) {
  Middle middle{from, from, period};
  while (middle.begin > first && repeats(middle.begin - 1)) --middle.begin;
  while (middle.end + period < behind && repeats(middle.end)) ++middle.end;
  middle.end += period;
  return middle;
}

/// A stretch of the step in which every rank repeats itself, by rank.
using Phase = std::vector<Middle>;

struct OrderMiddle {
  int micro_batches = 0;      // of one period
  std::vector<Phase> phases;  // as every rank goes through them
};

/// `longer` is the same rule's order for more micro-batches. Its middle, if on each rank `longer`
/// is `order` with one period put in in each phase, and if, inside a phase, what a cell takes from
/// other stages is made one period later for the cell one period later; nullopt: it is not, or a
/// phase has fewer than two periods.
std::optional<OrderMiddle> middle_of(const Order& order, const Order& longer);

}  // namespace pipewright::sim
