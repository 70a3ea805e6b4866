#include "traces/analysis/least_squares.hpp"

namespace pipewright::traces {

LeastSquares::LeastSquares(std::size_t columns)
    : columns_(columns), products_(columns * columns, 0), values_(columns, 0) {}

void LeastSquares::add(const std::vector<double>& columns, double value) {
  for (std::size_t i = 0; i < columns_; ++i) {
    if (columns[i] == 0) continue;
    for (std::size_t j = 0; j < columns_; ++j)
      products_[i * columns_ + j] += columns[i] * columns[j];
    values_[i] += columns[i] * value;
  }
}

/// Gauss-Jordan elimination on the normal equations, column by column: the diagonal that is left of
/// a column is the squared length of its part that the columns before it do not explain.
std::vector<std::optional<double>> LeastSquares::solve() const {
  constexpr double kLeastShare = 1e-4;
  std::vector<double> left = products_, right = values_;
  std::vector<bool> used(columns_, false);
  for (std::size_t c = 0; c < columns_; ++c) {
    const double whole = products_[c * columns_ + c], rest = left[c * columns_ + c];
    if (!(rest > kLeastShare * whole)) continue;
    used[c] = true;
    for (std::size_t i = 0; i < columns_; ++i) {
      if (i == c) continue;
      const double factor = left[i * columns_ + c] / rest;
      for (std::size_t j = 0; j < columns_; ++j)
        left[i * columns_ + j] -= factor * left[c * columns_ + j];
      right[i] -= factor * right[c];
    }
  }
  std::vector<std::optional<double>> solution(columns_);
  for (std::size_t c = 0; c < columns_; ++c) {
    if (used[c]) solution[c] = right[c] / left[c * columns_ + c];
  }
  return solution;
}

}  // namespace pipewright::traces
