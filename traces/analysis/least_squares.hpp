// Least squares with a few columns and any number of rows, by the normal equations. Columns that
// say nearly the same as those before them get no coefficient.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace pipewright::traces {

class LeastSquares {
 public:
  explicit LeastSquares(std::size_t columns);
  /// `columns` has the size given at construction.
  void add(const std::vector<double>& columns, double value);
  /// By column: the coefficient that makes the sum of squared residuals least, or nullopt if less
  /// than a ten-thousandth of the column (of its square) is not explained by the columns before it.
  std::vector<std::optional<double>> solve() const;

 private:
  std::size_t columns_;
  std::vector<double> products_;  // columns_ * columns_, symmetric
  std::vector<double> values_;    // products with the value
};

}  // namespace pipewright::traces
