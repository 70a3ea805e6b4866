#include "traces/analysis/matched_spans.hpp"

#include <algorithm>
#include <array>
#include <map>

namespace pipewright::traces {
namespace {

/// What identifies an action of a rank; cheap to compare.
using Key = std::array<std::int64_t, 8>;

Key key_of(const Cell& cell) {
  Key key{static_cast<std::int64_t>(cell.action.kind),
          cell.action.stage.value,
          cell.action.micro_batch.value,
          cell.action.version,
          -1,
          0,
          0,
          0};
  if (cell.partner) {
    key[4] = static_cast<std::int64_t>(cell.partner->kind);
    key[5] = cell.partner->stage.value;
    key[6] = cell.partner->micro_batch.value;
    key[7] = cell.partner->version;
  }
  return key;
}

struct Item {
  Key key;
  const TraceSpan* span = nullptr;
};

std::vector<Item> items_of(const TraceRank* rank) {
  std::vector<Item> items;
  if (rank == nullptr) return items;
  for (const TraceSpan& span : rank->spans) {
    const bool is_receive = span.kind == SpanKind::Transfer && is_recv(span.cell.action.kind);
    if (span.kind == SpanKind::Compute || is_receive) items.push_back({key_of(span.cell), &span});
  }
  std::stable_sort(items.begin(), items.end(),
                   [](const Item& a, const Item& b) { return a.key < b.key; });
  return items;
}

void match_rank(int rank, const TraceRank* predicted, const TraceRank* measured,
                std::vector<MatchedSpan>& matched) {
  const std::vector<Item> a = items_of(predicted), b = items_of(measured);
  std::size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    if (j == b.size() || (i < a.size() && a[i].key < b[j].key)) {
      matched.push_back({rank, a[i++].span, nullptr});
    } else if (i == a.size() || b[j].key < a[i].key) {
      matched.push_back({rank, nullptr, b[j++].span});
    } else {
      matched.push_back({rank, a[i++].span, b[j++].span});
    }
  }
}

}  // namespace

std::vector<MatchedSpan> match_spans(const TraceTimeline& predicted,
                                     const TraceTimeline& measured) {
  std::map<int, std::pair<const TraceRank*, const TraceRank*>> ranks;
  for (const TraceRank& rank : predicted.ranks) ranks[rank.rank].first = &rank;
  for (const TraceRank& rank : measured.ranks) ranks[rank.rank].second = &rank;
  std::vector<MatchedSpan> matched;
  for (const auto& [number, pair] : ranks) match_rank(number, pair.first, pair.second, matched);
  return matched;
}

std::int64_t matched_ns(const TraceSpan& span) {
  return span.kind == SpanKind::Compute ? span.duration_ns() : span.end_ns - span.moving_ns;
}

}  // namespace pipewright::traces
