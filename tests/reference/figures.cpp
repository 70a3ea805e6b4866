#include "tests/reference/figures.hpp"

#include <algorithm>

namespace pipewright::reference {
namespace {

int peak_activations(const Row& list, bool forward_only) {
  int live = 0, peak = 0;
  for (const Cell& cell : list) {
    for (const Action& action : cell) live += action.kind == "F" ? 1 : 0;
    peak = std::max(peak, live);
    for (const Action& action : cell) live -= action.kind == "W" || action.kind == "B" ? 1 : 0;
    if (forward_only) live = 0;
  }
  return peak;
}

void write_times_of(const Row& list, RankResult& rank) {
  std::optional<std::int64_t> first, last;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Timed& timed = rank.instructions[i];
    const bool waits = list[i].size() == 1 && (is_wait(list[i][0]) || is_call(list[i][0]));
    if (is_transfer(list[i]) || rank.collective[i] || waits || !timed.end) continue;
    rank.busy += *timed.end - *timed.start;
    first = std::min(first.value_or(*timed.start), *timed.start);
    last = std::max(last.value_or(*timed.end), *timed.end);
  }
  rank.span = first ? *last - *first : 0;
}

/// A step that takes no time has no bubble.
double idle_share(std::int64_t busy, std::int64_t whole) {
  return whole == 0 ? 0 : 1 - static_cast<double>(busy) / static_cast<double>(whole);
}

}  // namespace

void write_figures(const Order& lists, Result& result) {
  const bool forward_only = is_forward_only(lists);
  std::int64_t busy = 0;
  const RankResult* longest = nullptr;
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    RankResult& figures = result.ranks[rank];
    write_times_of(lists[rank], figures);
    figures.peak_activations = peak_activations(lists[rank], forward_only);
    for (const Timed& timed : figures.instructions)
      result.makespan = std::max(result.makespan, timed.end.value_or(0));
    busy += figures.busy;
    if (longest == nullptr || figures.span > longest->span) longest = &figures;
  }
  result.bubble_ratio = idle_share(busy, result.makespan * static_cast<std::int64_t>(lists.size()));
  if (longest != nullptr) result.span_bubble_ratio = idle_share(longest->busy, longest->span);
}

}  // namespace pipewright::reference
