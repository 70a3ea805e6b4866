// What QueueOps has for layers in Llama's style.
#include "core/base/error.hpp"
#include "exec/devices/cuda/queue_ops.hpp"

namespace pipewright::exec::cuda {

void QueueOps::rms_norm_forward(const NormShape& s, const float* x, const float* scale, float* y,
                                float* inverse_root) {
  queue_.run(queue_.kernels().rms_norm_forward, s.rows, s.width, x, scale, y, inverse_root);
}

void QueueOps::rms_norm_backward_input(const NormShape& s, const float* x,
                                       const float* inverse_root, const float* scale,
                                       const float* dy, float* dx) {
  queue_.run(queue_.kernels().rms_norm_backward_input, s.rows, s.width, x, inverse_root, scale, dy,
             dx);
}

void QueueOps::rms_norm_backward_weight(const NormShape& s, const float* x,
                                        const float* inverse_root, const float* dy, float* dscale) {
  const int adds = begins(dscale, static_cast<std::size_t>(s.width)) ? 0 : 1;
  queue_.run(queue_.kernels().rms_norm_backward_weight, s.rows, s.width, x, inverse_root, dy,
             queue_.column_scratch(), adds, dscale);
}

void QueueOps::swiglu_forward(int rows, int width, const float* x, float* y) {
  queue_.run(queue_.kernels().swiglu_forward, rows, width, x, y);
}

void QueueOps::swiglu_backward_input(int rows, int width, const float* x, const float* dy,
                                     float* dx) {
  queue_.run(queue_.kernels().swiglu_backward_input, rows, width, x, dy, dx);
}

void QueueOps::rotate(const RotaryShape& s, bool back, float* rows) {
  const int n = s.samples * s.sequence, by = back ? 1 : 0;
  if (s.neighbours) {
    const int apart = s.head_stride > 0 ? s.head_stride : s.head_width;
    return queue_.run(queue_.kernels().rotate_neighbours, n, s.sequence, s.heads, s.head_width,
                      s.stride, apart, by, queue_.rotary_turns(s), rows);
  }
  PIPEWRIGHT_ASSERT(s.head_stride == 0, "halves of heads that lie apart, on a GPU");
  queue_.run(queue_.kernels().rotate, n, s.sequence, s.heads, s.head_width, s.stride, by,
             queue_.rotary_turns(s), rows);
}

}  // namespace pipewright::exec::cuda
