// The rows of published tables by the kind of job, and how far the estimate is from each kind.
#pragma once

#include <string>
#include <vector>

#include "tests/support/left_out.hpp"

namespace pipewright::test {

/// A kind of job with what is asked of its rows, in percent, where their source was left out.
struct RowKind {
  std::string name;
  double most_error = 0, most_bias = 0;  // of the mean; 0: nothing is asked
  bool (*has)(const MeasuredCase& row) = nullptr;
};

/// Dense models in 16 bits by device, mixtures of experts, weights or gradients shared out (ZeRO 2
/// and 3), products of 8 bits, and devices of before 2020. A row can be of several kinds, but the
/// dense ones have none of the others' traits.
std::vector<RowKind> row_kinds();

/// Over the rows of a kind, each file counted once; in percent.
struct KindErrors {
  int rows = 0, files = 0;
  double mean = 0, bias = 0;
  double mean_of_rows = 0;  // each row counted once
};
KindErrors errors_of_kind(const std::vector<LeftOutTable>& tables, const RowKind& kind);

}  // namespace pipewright::test
