// Whether a parameter's gradient is the slope of the loss, by central differences.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "exec/data/data.hpp"
#include "exec/devices/cpu/serial.hpp"

namespace pipewright::exec {

struct SlopeTolerance {
  float step = 2e-3F;  // either way
  double absolute = 3e-4, relative = 0.01;
};

/// Of the element with the largest gradient, the one that matters most. The gradients of `serial`
/// are those of step 0, before and after.
inline void expect_slope_of_loss(SerialRun& serial, const DataSource& data,
                                 const ParameterView& view, const SlopeTolerance& tolerance) {
  const auto largest = std::max_element(view.gradient.begin(), view.gradient.end(),
                                        [](float a, float b) { return std::abs(a) < std::abs(b); });
  const double expected = *largest;
  // The views are looks at the stage's own memory.
  auto& weight = const_cast<float&>(view.value[largest - view.gradient.begin()]);
  const float middle = weight;
  weight = middle + tolerance.step;
  const double above = serial.gradients(data, 0);
  weight = middle - tolerance.step;
  const double below = serial.gradients(data, 0);
  weight = middle;
  serial.gradients(data, 0);
  EXPECT_NEAR((above - below) / (2 * static_cast<double>(tolerance.step)), expected,
              tolerance.absolute + tolerance.relative * std::abs(expected))
      << view.name;
}

}  // namespace pipewright::exec
