// What layers need besides whose weights ranks divide (exec/layers/tensor_group.hpp).
#include "exec/devices/cuda/queue_ops.hpp"

namespace pipewright::exec::cuda {
namespace {

/// c[m][n] += a · b, or a · b transposed.
pipewright_cuda_gemm product_on(int m, int n, int k, const float* a, int a_stride, const float* b,
                                int b_stride, bool b_transposed, float* c) {
  pipewright_cuda_gemm product{};
  product.m = m;
  product.n = n;
  product.k = k;
  product.outer = product.inner = 1;
  product.alpha = product.beta = 1.0F;
  product.a = {a, a_stride, 0, 0, 0};
  product.b = {b, b_stride, b_transposed ? 1 : 0, 0, 0};
  product.c = c;
  product.c_stride = n;
  return product;
}

}  // namespace

void QueueOps::linear_forward_on(const LinearShape& s, const float* x, const float* w, float* y) {
  queue_.multiply(product_on(s.rows, s.out, s.in, x, s.in, w, s.out, false, y));
}

/// Only exact numerics go on with a chain, whose numbers are floats.
void QueueOps::linear_backward_input_on(const LinearShape& s, const Range& columns, const float* dy,
                                        const float* w, float* dx) {
  queue_.multiply(product_on(s.rows, s.in, static_cast<int>(columns.count), dy + columns.begin,
                             s.out, w + columns.begin, s.out, true, dx));
}

void QueueOps::add_to_gradient(std::size_t n, const float* x, float* gradient) {
  if (begins(gradient, n)) return queue_.copy(gradient, x, n * sizeof(float));
  queue_.run(queue_.cuda().kernels.add_to, n, x, gradient);
}

void QueueOps::clear(std::size_t n, float* x) { queue_.clear(x, n * queue_.number_bytes()); }

void QueueOps::clear_floats(std::size_t n, float* x) { queue_.clear(x, n * sizeof(float)); }

void QueueOps::look_up(const EmbeddingShape& s, const TokenRange& own, bool alone,
                       const std::int32_t* ids, const float* tokens, float* y) {
  queue_.run(queue_.kernels().look_up, s.rows, s.width, own.first, own.count, alone ? 1 : 0, ids,
             tokens, y);
}

void QueueOps::add_positions(const EmbeddingShape& s, const float* positions, float* y) {
  const pipewright_cuda_places places = places_of(s);
  queue_.run(queue_.kernels().add_positions, s.rows, s.width, &places, positions, y);
}

void QueueOps::look_up_backward_weight(const EmbeddingShape& s, const TokenRange& own,
                                       const std::int32_t* ids, const float* dy, float* dtokens,
                                       float* dpositions) {
  static_cast<void>(begins(dtokens, 0));
  if (dpositions != nullptr) static_cast<void>(begins(dpositions, 0));
  const Buffer links = take_ids(2 * static_cast<std::size_t>(s.rows));
  const pipewright_cuda_places places = places_of(s);
  queue_.run(queue_.kernels().look_up_backward_weight, s.rows, s.width, &places, own.first,
             own.count, ids, dy, links.ids(), dtokens, dpositions);
}

}  // namespace pipewright::exec::cuda
