#include "traces/analysis/compare.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>

#include "traces/analysis/matched_spans.hpp"

namespace pipewright::traces {
namespace {

/// Rows of the table by kind: the kinds of actions, and pairs behind them.
constexpr std::size_t kPairRow = kActionKinds;
constexpr std::size_t kRows = kActionKinds + 1;

class Comparer {
 public:
  void rank(int number, const TraceRank* predicted, const TraceRank* measured) {
    result_.ranks.push_back({number,
                             {predicted == nullptr ? 0 : busy_ns(*predicted),
                              measured == nullptr ? 0 : busy_ns(*measured)}});
  }

  void span(const MatchedSpan& matched) {
    if (matched.predicted != nullptr && matched.measured != nullptr) return add(matched);
    if (matched.either().kind != SpanKind::Compute) return;
    ++(matched.predicted != nullptr ? result_.only_predicted : result_.only_measured);
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
    compare_bubbles();
    return std::move(result_);
  }

  ComparedTimes& step() { return result_.step; }

 private:
  void compare_bubbles() {
    const ComparedTimes& step = result_.step;
    const auto idle = [](std::int64_t busy_ns, std::int64_t step_ns, std::size_t ranks) {
      if (step_ns == 0 || ranks == 0) return 0.0;
      return 1 - static_cast<double>(busy_ns) /
                     (static_cast<double>(step_ns) * static_cast<double>(ranks));
    };
    ComparedTimes all;
    for (const ComparedRank& rank : result_.ranks) {
      all.predicted_ns += rank.busy.predicted_ns;
      all.measured_ns += rank.busy.measured_ns;
      result_.bubble_of.push_back({idle(rank.busy.predicted_ns, step.predicted_ns, 1),
                                   idle(rank.busy.measured_ns, step.measured_ns, 1)});
    }
    result_.bubble = {idle(all.predicted_ns, step.predicted_ns, result_.ranks.size()),
                      idle(all.measured_ns, step.measured_ns, result_.ranks.size())};
  }

  static std::string name_of(std::size_t row) {
    if (row == kPairRow) return "pair";
    const auto kind = static_cast<ActionKind>(row);
    if (kind == ActionKind::RecvF) return std::string(to_string(ActionKind::SendF));
    if (kind == ActionKind::RecvB) return std::string(to_string(ActionKind::SendB));
    return std::string(to_string(kind));
  }

  void add(const MatchedSpan& matched) {
    const TraceSpan& predicted = *matched.predicted;
    const ComparedTimes times{matched_ns(predicted), matched_ns(*matched.measured)};
    const std::int64_t error = std::llabs(times.error_ns());
    const Cell& cell = predicted.cell;
    ComparedKind& row = rows_[cell.partner ? kPairRow : static_cast<std::size_t>(cell.action.kind)];
    ++row.count;
    row.sum.predicted_ns += times.predicted_ns;
    row.sum.measured_ns += times.measured_ns;
    row.absolute_error_ns += error;
    if (predicted.kind != SpanKind::Compute) return;
    ++result_.compared_actions;
    absolute_ += error;
    measured_ += times.measured_ns;
    // Items come sorted by name, ties go to the one that ran first.
    const bool worse = result_.worst.action.empty() || error > worst_error_;
    const bool earlier = !worse && error == worst_error_ && matched.rank == result_.worst.rank &&
                         predicted.start_ns < worst_start_;
    if (!worse && !earlier) return;
    worst_error_ = error;
    worst_start_ = predicted.start_ns;
    result_.worst = {to_string(cell), matched.rank, times};
  }

  Comparison result_;
  std::array<ComparedKind, kRows> rows_;
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
  for (const MatchedSpan& matched : match_spans(predicted, measured)) comparer.span(matched);
  return comparer.finish();
}

Comparison compare(const Program& program, const Timeline& predicted, const Timeline& measured) {
  return compare(trace_timeline(program, predicted), trace_timeline(program, measured));
}

}  // namespace pipewright::traces
