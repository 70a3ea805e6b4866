// Rotary positions: pairs of numbers turned by their row's place in the sequence.
#include "exec/devices/cpu/kernels/rotary.hpp"

#include <cmath>

namespace pipewright::exec {

void cpu::fill_turns(const RotaryShape& shape, float* turns) {
  const int half = shape.head_width / 2;
  for (int j = 0; j < half; ++j) {
    const double turn = std::pow(shape.base, -2.0 * j / shape.head_width);
    float* at = turns + j;
    for (int t = 0; t < shape.sequence; ++t, at += shape.head_width) {
      const int position = shape.context.position(shape.sequence, t);
      at[0] = static_cast<float>(std::cos(position * turn));
      at[half] = static_cast<float>(std::sin(position * turn));
    }
  }
}

void rotate(const RotaryShape& shape, bool back, float* rows, float* scratch) {
  cpu::fill_turns(shape, scratch);
  const int half = shape.head_width / 2;
  const int head_stride = shape.head_stride > 0 ? shape.head_stride : shape.head_width;
  // From one pair to the next, and from a pair's first number to its second.
  const int step = shape.neighbours ? 2 : 1, apart = shape.neighbours ? 1 : half;
  for (int sample = 0; sample < shape.samples; ++sample) {
    const float* cosine = scratch;
    for (int t = 0; t < shape.sequence; ++t, rows += shape.stride, cosine += shape.head_width) {
      const float* sine = cosine + half;
      float* head = rows;
      for (int h = 0; h < shape.heads; ++h, head += head_stride) {
        for (int j = 0; j < half; ++j) {
          const float turn = back ? -sine[j] : sine[j];
          float &first = head[j * step], &second = head[j * step + apart];
          const float a = first, b = second;
          first = a * cosine[j] - b * turn;
          second = b * cosine[j] + a * turn;
        }
      }
    }
  }
}

}  // namespace pipewright::exec
