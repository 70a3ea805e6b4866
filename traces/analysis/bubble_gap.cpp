#include "traces/analysis/bubble_gap.hpp"

#include <algorithm>

namespace pipewright::traces {
namespace {

/// Appends parts from `cursor` on, each up to a given moment, never beyond the end of the gap.
class Splitter {
 public:
  Splitter(std::int64_t from, std::int64_t to, std::vector<GapPart>& parts)
      : cursor_(from), end_(to), parts_(parts) {}

  void until(std::int64_t moment, BubbleCause cause, std::uint32_t waits_for) {
    const std::int64_t to = std::min(moment, end_);
    if (to <= cursor_) return;
    parts_.push_back({cursor_, to, cause, waits_for});
    cursor_ = to;
  }

  /// The wait for what `late` carries, then for the transfer that is `last` to arrive.
  void wait(const PendingTransfer& late, const PendingTransfer& last) {
    const std::int64_t made = std::min({late.made, last.to, end_});
    until(made - std::min(late.excess, std::max<std::int64_t>(0, made - cursor_)),
          BubbleCause::Data, late.producer);
    until(made, BubbleCause::Imbalance, late.producer);
    until(last.to, BubbleCause::Transfer, last.transfer);
  }

  void overhead(std::int64_t moment) { until(moment, BubbleCause::Overhead, kNoInstruction); }

 private:
  std::int64_t cursor_;
  const std::int64_t end_;
  std::vector<GapPart>& parts_;
};

}  // namespace

void split_gap(std::int64_t from, std::int64_t to, const std::vector<PendingTransfer>& pending,
               bool together, std::vector<GapPart>& parts) {
  Splitter splitter(from, to, parts);
  if (together && !pending.empty()) {
    // Of equals the first counts, so that the answer depends on the given order alone.
    const auto late =
        std::max_element(pending.begin(), pending.end(),
                         [](const auto& a, const auto& b) { return a.made < b.made; });
    const auto last = std::max_element(pending.begin(), pending.end(),
                                       [](const auto& a, const auto& b) { return a.to < b.to; });
    splitter.wait(*late, *last);
  } else {
    for (const PendingTransfer& transfer : pending) {
      splitter.overhead(transfer.from);
      splitter.wait(transfer, transfer);
    }
  }
  splitter.overhead(to);
}

}  // namespace pipewright::traces
