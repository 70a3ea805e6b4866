#include "traces/compare.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <tuple>

namespace pipewright::traces {
namespace {

/// Rows of the table by kind: the kinds of actions, and pairs behind them.
constexpr std::size_t kPairRow = kActionKinds;
constexpr std::size_t kRows = kActionKinds + 1;

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

/// A span that counts: a computation, or the receive of a transfer.
struct Item {
  Key key;
  std::int64_t duration_ns = 0;
  const TraceSpan* span = nullptr;
};

std::vector<Item> items_of(const TraceRank* rank) {
  std::vector<Item> items;
  if (rank == nullptr) return items;
  for (const TraceSpan& span : rank->spans) {
    if (span.kind == SpanKind::Compute) {
      items.push_back({key_of(span.cell), span.duration_ns(), &span});
    } else if (span.kind == SpanKind::Transfer && is_recv(span.cell.action.kind)) {
      items.push_back({key_of(span.cell), span.end_ns - span.moving_ns, &span});
    }
  }
  std::stable_sort(items.begin(), items.end(),
                   [](const Item& a, const Item& b) { return a.key < b.key; });
  return items;
}

class Comparer {
 public:
  void rank(int number, const TraceRank* predicted, const TraceRank* measured) {
    number_ = number;
    const std::vector<Item> a = items_of(predicted);
    const std::vector<Item> b = items_of(measured);
    result_.ranks.push_back({number,
                             {predicted == nullptr ? 0 : busy_ns(*predicted),
                              measured == nullptr ? 0 : busy_ns(*measured)}});
    std::size_t i = 0, j = 0;
    while (i < a.size() || j < b.size()) {
      if (j == b.size() || (i < a.size() && a[i].key < b[j].key)) {
        if (a[i++].span->kind == SpanKind::Compute) ++result_.only_predicted;
      } else if (i == a.size() || b[j].key < a[i].key) {
        if (b[j++].span->kind == SpanKind::Compute) ++result_.only_measured;
      } else {
        add(a[i++], b[j++]);
      }
    }
  }

  Comparison finish() {
    for (std::size_t row = 0; row < kRows; ++row) {
      if (rows_[row].count == 0) continue;
      rows_[row].kind = name_of(row);
      result_.kinds.push_back(rows_[row]);
    }
    if (result_.compared_actions > 0) {
      result_.mean_absolute_error_ns =
          static_cast<double>(absolute_) / static_cast<double>(result_.compared_actions);
    }
    if (measured_ > 0) {
      result_.mean_absolute_error_percent =
          100.0 * static_cast<double>(absolute_) / static_cast<double>(measured_);
    }
    return std::move(result_);
  }

  ComparedTimes& step() { return result_.step; }

 private:
  static std::string name_of(std::size_t row) {
    if (row == kPairRow) return "pair";
    const auto kind = static_cast<ActionKind>(row);
    if (kind == ActionKind::RecvF) return std::string(to_string(ActionKind::SendF));
    if (kind == ActionKind::RecvB) return std::string(to_string(ActionKind::SendB));
    return std::string(to_string(kind));
  }

  void add(const Item& predicted, const Item& measured) {
    const ComparedTimes times{predicted.duration_ns, measured.duration_ns};
    const std::int64_t error = std::llabs(times.error_ns());
    const Cell& cell = predicted.span->cell;
    ComparedKind& row = rows_[cell.partner ? kPairRow : static_cast<std::size_t>(cell.action.kind)];
    ++row.count;
    row.sum.predicted_ns += times.predicted_ns;
    row.sum.measured_ns += times.measured_ns;
    row.absolute_error_ns += error;
    if (predicted.span->kind != SpanKind::Compute) return;
    ++result_.compared_actions;
    absolute_ += error;
    measured_ += times.measured_ns;
    // Items come sorted by name, ties go to the one that ran first.
    const bool worse = result_.worst.action.empty() || error > worst_error_;
    const bool earlier = !worse && error == worst_error_ && number_ == result_.worst.rank &&
                         predicted.span->start_ns < worst_start_;
    if (!worse && !earlier) return;
    worst_error_ = error;
    worst_start_ = predicted.span->start_ns;
    result_.worst = {to_string(cell), number_, times};
  }

  Comparison result_;
  std::array<ComparedKind, kRows> rows_;
  int number_ = 0;
  std::int64_t absolute_ = 0, measured_ = 0;
  std::int64_t worst_error_ = 0, worst_start_ = 0;
};

}  // namespace

double ComparedTimes::error_percent() const {
  if (measured_ns != 0) {
    return 100.0 * static_cast<double>(error_ns()) / static_cast<double>(measured_ns);
  }
  return predicted_ns == 0 ? 0.0 : 100.0;
}

Comparison compare(const TraceTimeline& predicted, const TraceTimeline& measured) {
  std::map<int, std::pair<const TraceRank*, const TraceRank*>> ranks;
  for (const TraceRank& rank : predicted.ranks) ranks[rank.rank].first = &rank;
  for (const TraceRank& rank : measured.ranks) ranks[rank.rank].second = &rank;
  Comparer comparer;
  comparer.step() = {predicted.makespan_ns, measured.makespan_ns};
  for (const auto& [number, pair] : ranks) comparer.rank(number, pair.first, pair.second);
  return comparer.finish();
}

Comparison compare(const Program& program, const Timeline& predicted, const Timeline& measured) {
  return compare(trace_timeline(program, predicted), trace_timeline(program, measured));
}

}  // namespace pipewright::traces
