// The losses. Sums over rows are kept in double: they are printed and compared to six digits, and
// there is one addition a row.
#include <cmath>

#include "exec/devices/cpu/kernels/reduce.hpp"
#include "exec/devices/cpu/kernels/softmax.hpp"
#include "exec/layers/ops.hpp"

namespace pipewright::exec {

double softmax_cross_entropy_forward(const LossShape& shape, const float* logits,
                                     const std::int32_t* labels, float* probabilities,
                                     double* of_rows) {
  double total = 0;
  const int width = shape.width;
  for (int r = 0; r < shape.rows; ++r, logits += width, probabilities += width) {
    const float of_label = logits[labels[r]];  // before it is overwritten, if in place
    const cpu::SoftmaxSums sums = cpu::softmax(width, logits, probabilities);
    const double loss = std::log(static_cast<double>(sums.sum)) +
                        (static_cast<double>(sums.maximum) - static_cast<double>(of_label));
    if (of_rows != nullptr) of_rows[r] = loss;
    total += loss;
  }
  return total;
}

void softmax_cross_entropy_backward_input(const LossShape& shape, const float* probabilities,
                                          const std::int32_t* labels, float scale, float* dlogits) {
  const int width = shape.width;
  for (int r = 0; r < shape.rows; ++r, probabilities += width, dlogits += width) {
    const float of_label = probabilities[labels[r]];
    for (int j = 0; j < width; ++j) dlogits[j] = probabilities[j] * scale;
    dlogits[labels[r]] = (of_label - 1.0F) * scale;
  }
}

double mse_forward(const LossShape& shape, const float* y, const float* target, double* of_rows) {
  double total = 0;
  const int width = shape.width;
  for (int r = 0; r < shape.rows; ++r, y += width, target += width) {
    const auto loss = static_cast<double>(cpu::sum(width, [y, target](int j) {
      const float difference = y[j] - target[j];
      return difference * difference;
    }));
    if (of_rows != nullptr) of_rows[r] = loss;
    total += loss;
  }
  return total;
}

void mse_backward_input(const LossShape& shape, const float* y, const float* target, float scale,
                        float* dy) {
  const std::size_t n =
      static_cast<std::size_t>(shape.rows) * static_cast<std::size_t>(shape.width);
  const float factor = 2.0F * scale;
  for (std::size_t i = 0; i < n; ++i) dy[i] = factor * (y[i] - target[i]);
}

}  // namespace pipewright::exec
