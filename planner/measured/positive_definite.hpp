// Positive definite matrices of a few rows.
#pragma once

#include <array>
#include <cstddef>

namespace pipewright::planner {

template <std::size_t kRows>
using SquareMatrix = std::array<std::array<double, kRows>, kRows>;

/// The inverse of a positive definite matrix, by Gauss and Jordan.
template <std::size_t kRows>
SquareMatrix<kRows> inverse(SquareMatrix<kRows> matrix) {
  SquareMatrix<kRows> result{};
  for (std::size_t i = 0; i < kRows; ++i) result[i][i] = 1;
  for (std::size_t i = 0; i < kRows; ++i) {
    const double pivot = matrix[i][i];
    for (std::size_t j = 0; j < kRows; ++j) {
      matrix[i][j] /= pivot;
      result[i][j] /= pivot;
    }
    for (std::size_t row = 0; row < kRows; ++row) {
      if (row == i) continue;
      const double factor = matrix[row][i];
      for (std::size_t j = 0; j < kRows; ++j) {
        matrix[row][j] -= factor * matrix[i][j];
        result[row][j] -= factor * result[i][j];
      }
    }
  }
  return result;
}

}  // namespace pipewright::planner
