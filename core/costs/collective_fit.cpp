#include "core/costs/collective_fit.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "core/base/error.hpp"

namespace pipewright {
namespace {

/// Launch, step, a byte of the part (low-latency), bulk, a byte that is sent.
constexpr std::size_t kTerms = 5;
using Terms = std::array<double, kTerms>;

/// Where the largest rows are made of something else, their rate is a guess.
constexpr double kLeastMoving = 0.5;

std::vector<MeasuredCollective> inside_nodes(const std::vector<MeasuredCollective>& rows) {
  std::vector<MeasuredCollective> inside;
  for (const MeasuredCollective& row : rows) {
    if (row.group.nodes == 1) inside.push_back(row);
  }
  return inside;
}

std::set<int> sizes_of(const std::vector<MeasuredCollective>& rows) {
  std::set<int> sizes;
  for (const MeasuredCollective& row : rows) sizes.insert(row.group.members);
  return sizes;
}

/// How often the row pays each term, as a share of its time.
Terms coefficients(const MeasuredCollective& row, double bulk_from) {
  const double steps = 2.0 * (row.group.members - 1);
  const double part = static_cast<double>(row.bytes) / row.group.members;
  const bool bulk = part >= bulk_from;
  return {1 / row.ns, steps / row.ns, bulk ? 0 : part / row.ns, bulk ? 1 / row.ns : 0,
          steps * part / row.ns};
}

/// Normal equations of least squares against 1, columns scaled to a diagonal of 1.
struct Normal {
  std::array<Terms, kTerms> matrix{};
  Terms right{}, scale{};
};

Normal normal_of(const std::vector<MeasuredCollective>& rows, double bulk_from) {
  Normal normal;
  for (const MeasuredCollective& row : rows) {
    const Terms terms = coefficients(row, bulk_from);
    for (std::size_t i = 0; i < kTerms; ++i) {
      normal.right[i] += terms[i];
      for (std::size_t j = 0; j < kTerms; ++j) normal.matrix[i][j] += terms[i] * terms[j];
    }
  }
  for (std::size_t i = 0; i < kTerms; ++i) normal.scale[i] = std::sqrt(normal.matrix[i][i]);
  for (std::size_t i = 0; i < kTerms; ++i) {
    if (normal.scale[i] == 0) continue;
    normal.right[i] /= normal.scale[i];
    for (std::size_t j = 0; j < kTerms; ++j) {
      if (normal.scale[j] > 0) normal.matrix[i][j] /= normal.scale[i] * normal.scale[j];
    }
  }
  return normal;
}

/// The terms of the set `chosen` (a bit each), the others 0; nullopt if they cannot be told apart
/// or one is below 0. Gauss, pivots along the diagonal of what is positive definite.
std::optional<Terms> solved(Normal normal, unsigned chosen) {
  constexpr double kLeastPivot = 1e-10;
  const auto in = [&](std::size_t i) { return (chosen >> i & 1U) != 0; };
  for (std::size_t i = 0; i < kTerms; ++i) {
    if (!in(i)) continue;
    if (!(normal.matrix[i][i] > kLeastPivot)) return std::nullopt;
    for (std::size_t row = 0; row < kTerms; ++row) {
      if (row == i || !in(row)) continue;
      const double factor = normal.matrix[row][i] / normal.matrix[i][i];
      for (std::size_t j = 0; j < kTerms; ++j)
        normal.matrix[row][j] -= factor * normal.matrix[i][j];
      normal.right[row] -= factor * normal.right[i];
    }
  }
  Terms terms{};
  for (std::size_t i = 0; i < kTerms; ++i) {
    if (!in(i)) continue;
    terms[i] = normal.right[i] / normal.matrix[i][i] / normal.scale[i];
    if (terms[i] < 0) return std::nullopt;
  }
  return terms;
}

/// Section 5's price of an all-reduce inside a node, in nanoseconds not rounded.
double price(const Terms& terms, const MeasuredCollective& row) {
  const double steps = 2.0 * (row.group.members - 1);
  const double part = static_cast<double>(row.bytes) / row.group.members;
  return terms[0] + steps * terms[1] + std::min(part * terms[2], terms[3]) +
         steps * part * terms[4];
}

/// Of the price of the most bytes: what moving them over the links takes.
double moving_share(const Terms& terms, const std::vector<MeasuredCollective>& rows) {
  const auto largest =
      std::ranges::max_element(rows, {}, [](const auto& row) { return row.bytes; });
  Terms moving{};
  moving.back() = terms.back();
  return price(moving, *largest) / price(terms, *largest);
}

double squared_errors(const Terms& terms, const std::vector<MeasuredCollective>& rows) {
  double sum = 0;
  for (const MeasuredCollective& row : rows) {
    const double error = price(terms, row) / row.ns - 1;
    sum += error * error;
  }
  return sum;
}

}  // namespace

CollectiveModel fit_collectives(const MeasuredCollectives& measured) {
  const std::vector<MeasuredCollective> rows = inside_nodes(measured.rows);
  if (sizes_of(rows).size() < 2) {
    throw InputError(
        "a fit needs all-reduces of at least two sizes of groups inside a node (2 and 4 GPUs): one "
        "does not tell the launch from the steps");
  }
  constexpr int kLargestPart = 40;  // 1 TiB
  Terms best{};
  double least = std::numeric_limits<double>::infinity();
  for (int k = 0; k <= kLargestPart; ++k) {
    const Normal normal = normal_of(rows, std::ldexp(1.0, k));
    for (unsigned chosen = 1; chosen < 1U << kTerms; ++chosen) {
      const std::optional<Terms> terms = solved(normal, chosen);
      // Without a rate large sizes would be free.
      if (!terms || (*terms)[kTerms - 1] <= 0) continue;
      const double errors = squared_errors(*terms, rows);
      if (errors >= least) continue;
      least = errors;
      best = *terms;
    }
  }
  if (best.back() <= 0 || moving_share(best, rows) < kLeastMoving) {
    throw InputError(
        "these rows do not tell what a byte costs; measure sizes up to 1 GiB "
        "(all_reduce_perf -b 8 -e 1G -f 2)");
  }
  return {.launch_ns = best[0],
          .step_ns = best[1],
          .part_ns_per_byte = best[2],
          .bulk_ns = best[3],
          .bytes_per_second = 1e9 / best[4],
          .source = measured.source};
}

CollectiveErrors errors_of(const CollectiveModel& model,
                           const std::vector<MeasuredCollective>& rows) {
  CollectiveErrors errors;
  for (const MeasuredCollective& row : rows) {
    const auto ns = static_cast<double>(
        price_of(model, ActionKind::AllReduce, row.group, row.bytes).time.value);
    const double error = std::abs(ns / row.ns - 1);
    ++errors.rows;
    errors.mean += error;
    errors.worst = std::max(errors.worst, error);
  }
  if (errors.rows > 0) errors.mean /= errors.rows;
  return errors;
}

std::vector<LeftOutGroup> leave_each_size_out(const MeasuredCollectives& measured) {
  const std::vector<MeasuredCollective> inside = inside_nodes(measured.rows);
  const std::set<int> sizes = sizes_of(inside);
  std::vector<LeftOutGroup> groups;
  if (sizes.size() < 3) return groups;
  for (const int size : sizes) {
    MeasuredCollectives others{measured.source, {}};
    std::vector<MeasuredCollective> left_out;
    for (const MeasuredCollective& row : inside)
      (row.group.members == size ? left_out : others.rows).push_back(row);
    const CollectiveModel model = fit_collectives(others);
    groups.push_back({size, model, errors_of(model, left_out)});
  }
  return groups;
}

}  // namespace pipewright
