// For tests of numerics: random arrays, gradients by central differences in double, comparison.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "exec/base/random.hpp"

namespace pipewright::test {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;
using Function = std::function<Doubles(const Doubles&)>;

inline Floats random_floats(std::size_t n, std::uint64_t key, float size = 1.0F) {
  Floats values(n);
  for (std::size_t i = 0; i < n; ++i) {
    values[i] = size * exec::symmetric_uniform(exec::key_of(key, "test"), i);
  }
  return values;
}

inline Doubles widened(const Floats& x) { return {x.begin(), x.end()}; }

/// Gradient of sum_i weights[i] · f(x)[i] with respect to x. The step balances the error of the
/// formula (h^2) and that of rounding (2^-53 / h): both are below 1e-9 here, far below a float's.
inline Doubles numeric_gradient(const Function& f, Doubles x, const Floats& weights) {
  constexpr double kStep = 1e-5;
  const auto weighted = [&](const Doubles& at) {
    const Doubles y = f(at);
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * static_cast<double>(weights[i]);
    return sum;
  };
  Doubles gradient(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double middle = x[i];
    x[i] = middle + kStep;
    const double above = weighted(x);
    x[i] = middle - kStep;
    gradient[i] = (above - weighted(x)) / (2 * kStep);
    x[i] = middle;
  }
  return gradient;
}

/// Every element within `tolerance` of the largest expected one (or of 1, if that is larger).
inline void expect_close(const Floats& actual, const Doubles& expected, double tolerance,
                         const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double size = 1;
  for (const double e : expected) size = std::max(size, std::fabs(e));
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(actual[i]), expected[i], tolerance * size)
        << what << ", element " << i;
  }
}

}  // namespace pipewright::test
