#include "traces/analysis/fit.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "traces/analysis/least_squares.hpp"
#include "traces/analysis/matched_spans.hpp"

namespace pipewright::traces {
namespace {

/// How many ranks compute, as a function of time: its integral at the moments where it changes.
class Concurrency {
 public:
  explicit Concurrency(const TraceTimeline& timeline) {
    std::vector<std::pair<std::int64_t, int>> changes;
    for (const TraceRank& rank : timeline.ranks) {
      for (const TraceSpan& span : rank.spans) {
        if (span.kind != SpanKind::Compute) continue;
        changes.emplace_back(span.start_ns, 1);
        changes.emplace_back(span.end_ns, -1);
      }
    }
    std::sort(changes.begin(), changes.end());
    double area = 0;
    int ranks = 0;
    std::int64_t before = 0;
    for (const auto& [time, change] : changes) {
      area += static_cast<double>(ranks) * static_cast<double>(time - before);
      ranks += change;
      before = time;
      points_.push_back({time, area, ranks});
    }
  }

  /// Mean number of ranks that compute besides the one whose span this is.
  double others(const TraceSpan& span) const {
    if (span.duration_ns() <= 0) return 0;
    const double all = area_to(span.end_ns) - area_to(span.start_ns);
    return std::max(0.0, all / static_cast<double>(span.duration_ns()) - 1);
  }

 private:
  struct Point {
    std::int64_t time;
    double area;  // up to it
    int ranks;    // after it
  };

  double area_to(std::int64_t time) const {
    const auto above =
        std::upper_bound(points_.begin(), points_.end(), time,
                         [](std::int64_t t, const Point& point) { return t < point.time; });
    if (above == points_.begin()) return 0;
    const Point& point = *(above - 1);
    return point.area + static_cast<double>(point.ranks) * static_cast<double>(time - point.time);
  }

  std::vector<Point> points_;
};

struct Row {
  std::size_t kind = 0;
  double predicted = 0, measured = 0, others = 0;
};

struct Rows {
  std::vector<std::string> kinds;
  std::vector<Row> rows;
};

Rows rows_of(const TraceTimeline& predicted, const TraceTimeline& measured) {
  const Concurrency concurrency(measured);
  std::map<std::string, std::size_t> place;
  Rows result;
  for (const MatchedSpan& one : match_spans(predicted, measured)) {
    if (!one.is_pair_of_computations() || one.predicted->duration_ns() <= 0) continue;
    const Cell& cell = one.predicted->cell;
    const std::string kind = cell.partner ? "pair" : std::string(to_string(cell.action.kind));
    const auto [found, is_new] = place.try_emplace(kind, result.kinds.size());
    if (is_new) result.kinds.push_back(kind);
    result.rows.push_back({found->second, static_cast<double>(one.predicted->duration_ns()),
                           static_cast<double>(one.measured->duration_ns()),
                           concurrency.others(*one.measured)});
  }
  return result;
}

/// Columns: the kinds, contention, overhead. The first win where columns say the same.
std::vector<double> columns_of(const Row& row, std::size_t kinds) {
  std::vector<double> columns(kinds + 2, 0);
  columns[row.kind] = row.predicted;
  columns[kinds] = row.predicted * row.others;
  columns[kinds + 1] = 1;
  return columns;
}

/// With so many of the columns.
std::vector<std::optional<double>> solve_with(const Rows& data, const std::vector<char>& kept,
                                              bool contention, bool overhead) {
  const std::size_t kinds = data.kinds.size();
  LeastSquares squares(kinds + 2);
  for (std::size_t i = 0; i < data.rows.size(); ++i) {
    if (kept[i] == 0) continue;
    std::vector<double> columns = columns_of(data.rows[i], kinds);
    if (!contention) columns[kinds] = 0;
    if (!overhead) columns[kinds + 1] = 0;
    squares.add(columns, data.rows[i].measured);
  }
  auto solution = squares.solve();
  if (!contention) solution[kinds] = 0;
  if (!overhead) solution[kinds + 1] = 0;
  return solution;
}

/// Neither an overhead nor contention makes anything faster: one that comes out below 0 is 0.
std::vector<std::optional<double>> solve(const Rows& data, const std::vector<char>& kept) {
  const std::size_t kinds = data.kinds.size();
  auto solution = solve_with(data, kept, true, true);
  const bool contention = solution[kinds].value_or(0) >= 0;
  const bool overhead = solution[kinds + 1].value_or(0) >= 0;
  if (contention && overhead) return solution;
  solution = solve_with(data, kept, contention, overhead);
  if (solution[kinds].value_or(0) < 0 || solution[kinds + 1].value_or(0) < 0)
    solution = solve_with(data, kept, false, false);
  return solution;
}

double fitted(const Row& row, const std::vector<std::optional<double>>& solution) {
  const std::vector<double> columns = columns_of(row, solution.size() - 2);
  double sum = 0;
  for (std::size_t c = 0; c < columns.size(); ++c) sum += columns[c] * solution[c].value_or(0);
  return sum;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// 0 where the residual is beyond eight median ones. (For residuals that are spread normally, one
/// in ten million.)
std::vector<char> without_outliers(const Rows& data,
                                   const std::vector<std::optional<double>>& solution) {
  std::vector<double> residuals;
  for (const Row& row : data.rows)
    residuals.push_back(std::abs(row.measured - fitted(row, solution)));
  const double limit = std::max(8 * median(residuals), 1.0);
  std::vector<char> kept;
  for (const double residual : residuals) kept.push_back(residual <= limit ? 1 : 0);
  return kept;
}

/// A start that no outlier bends: the median ratio of each kind.
std::vector<std::optional<double>> median_ratios(const Rows& data) {
  std::vector<std::vector<double>> ratios(data.kinds.size());
  for (const Row& row : data.rows) ratios[row.kind].push_back(row.measured / row.predicted);
  std::vector<std::optional<double>> solution;
  for (auto& of_kind : ratios) solution.emplace_back(median(std::move(of_kind)));
  solution.resize(data.kinds.size() + 2);
  return solution;
}

}  // namespace

double Fit::factor_of(const std::string& kind) const {
  for (const KindScale& one : scales) {
    if (one.kind == kind) return one.scale + contention.value_or(0) * mean_others;
  }
  return 1;
}

std::optional<Fit> fit(const TraceTimeline& predicted, const TraceTimeline& measured) {
  const Rows data = rows_of(predicted, measured);
  if (data.rows.empty()) return std::nullopt;
  std::vector<char> kept;
  auto solution = median_ratios(data);
  for (int pass = 0; pass < 2; ++pass) {
    kept = without_outliers(data, solution);
    solution = solve(data, kept);
  }
  const std::size_t kinds = data.kinds.size();
  Fit result;
  for (std::size_t k = 0; k < kinds; ++k)
    result.scales.push_back({data.kinds[k], solution[k].value_or(1)});
  result.contention = solution[kinds];
  result.overhead_ns = solution[kinds + 1];
  double total = 0, before = 0, after = 0;
  for (std::size_t i = 0; i < data.rows.size(); ++i) {
    const Row& row = data.rows[i];
    result.mean_others += row.others / static_cast<double>(data.rows.size());
    ++result.actions;
    if (kept[i] == 0) {
      ++result.left_out;
      continue;
    }
    total += row.measured;
    before += std::abs(row.measured - row.predicted);
    after += std::abs(row.measured - fitted(row, solution));
  }
  if (total > 0) {
    result.error_percent_before = 100 * before / total;
    result.error_percent_after = 100 * after / total;
  }
  return result;
}

}  // namespace pipewright::traces
