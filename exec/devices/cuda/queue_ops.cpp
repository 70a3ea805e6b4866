#include "exec/devices/cuda/queue_ops.hpp"

#include <cmath>

#include "exec/devices/cuda/head_products.hpp"

namespace pipewright::exec::cuda {
namespace {

pipewright_cuda_gemm one_product(int m, int n, int k, const float* a, int a_stride,
                                 bool a_transposed, const float* b, int b_stride, bool b_transposed,
                                 float beta, float* c) {
  pipewright_cuda_gemm product{};
  product.m = m;
  product.n = n;
  product.k = k;
  product.outer = product.inner = 1;
  product.alpha = 1.0F;
  product.beta = beta;
  product.a = {a, a_stride, a_transposed ? 1 : 0, 0, 0};
  product.b = {b, b_stride, b_transposed ? 1 : 0, 0, 0};
  product.c = c;
  product.c_stride = n;
  return product;
}

/// Where the matrices lie of the heads that meet different keys: of all heads, where each has keys
/// of its own, and else the `turn`-th of those that share some. exec/layers/ops.hpp has the
/// layouts.
class Heads {
 public:
  Heads(const AttentionShape& shape, std::size_t number_bytes, int turn)
      : s_(shape),
        number_bytes_(static_cast<std::ptrdiff_t>(number_bytes)),
        turn_(turn),
        sharing_(shape.queries_a_key()) {}

  pipewright_cuda_matrix query(const float* qkv) const {
    return {at(qkv, turn_ * s_.head_width()), s_.qkv_width(), 0, of_sample(s_.qkv_width()),
            sharing_ * s_.head_width()};
  }
  pipewright_cuda_matrix key(const float* qkv) const { return shared(qkv, s_.width); }
  pipewright_cuda_matrix value(const float* qkv) const {
    return shared(qkv, s_.width + s_.key_width());
  }
  pipewright_cuda_matrix square(const float* scores) const {
    return {at(scores, turn_ * of_square()), s_.sequence, 0, s_.heads * of_square(),
            sharing_ * of_square()};
  }
  pipewright_cuda_matrix context(const float* rows) const {
    return {at(rows, turn_ * s_.head_width()), s_.width, 0, of_sample(s_.width),
            sharing_ * s_.head_width()};
  }
  /// c = alpha · a · b + beta · c.
  pipewright_cuda_gemm product(int n, int k, float alpha, const pipewright_cuda_matrix& a,
                               const pipewright_cuda_matrix& b, float beta,
                               const pipewright_cuda_matrix& c) const {
    return product_of_heads({s_.samples, s_.key_heads()}, s_.sequence, n, k, alpha, a, b, beta, c);
  }
  /// Of what is added up over the heads that share it.
  float before() const { return turn_ == 0 ? 0.0F : 1.0F; }

 private:
  const void* at(const float* numbers, std::int64_t place) const {
    return reinterpret_cast<const std::byte*>(numbers) + place * number_bytes_;
  }
  pipewright_cuda_matrix shared(const float* qkv, int column) const {
    return {at(qkv, column), s_.qkv_width(), 0, of_sample(s_.qkv_width()), s_.head_width()};
  }
  std::int64_t of_sample(int width) const { return std::int64_t{s_.sequence} * width; }
  std::int64_t of_square() const { return std::int64_t{s_.sequence} * s_.sequence; }

  const AttentionShape s_;
  const std::ptrdiff_t number_bytes_;
  const int turn_, sharing_;
};

/// Calls with(heads) for each batch of them.
template <class With>
void for_heads(const AttentionShape& shape, std::size_t number_bytes, With with) {
  for (int turn = 0; turn < shape.queries_a_key(); ++turn) with(Heads(shape, number_bytes, turn));
}

/// The squares of all heads and samples, one after another.
pipewright_cuda_causal squares(const AttentionShape& shape) {
  const int t = shape.sequence;
  const std::int64_t step = std::int64_t{t} * t;
  return {shape.samples * shape.heads, t, 0, t, step, step};
}

/// Where keys and values begin in rows of queries, keys and values.
std::size_t first_key(const AttentionShape& shape) { return static_cast<std::size_t>(shape.width); }
std::size_t first_value(const AttentionShape& shape) {
  return static_cast<std::size_t>(shape.width + shape.key_width());
}

float scale(const AttentionShape& shape) {
  return 1.0F / std::sqrt(static_cast<float>(shape.head_width()));
}

}  // namespace

void QueueOps::copy(std::size_t words, const float* from, float* to) {
  queue_.copy(to, from, words * queue_.number_bytes());
}

void QueueOps::copy_columns(int rows, int width, const float* from, int from_stride, float* to,
                            int to_stride) {
  queue_.run(queue_.kernels().copy_columns, rows, width, 1.0F, from, from_stride, to, to_stride);
}

void QueueOps::add_to(std::size_t n, const float* x, float* y) {
  queue_.run(queue_.kernels().add_to, n, x, y);
}

bool QueueOps::begins(float* gradient, std::size_t words) {
  return unwritten_.begins(gradient, words, queue_);
}

// --- Linear ---

pipewright_cuda_gemm QueueOps::forward_product(const LinearShape& s, const float* x, const float* w,
                                               float* y) {
  return one_product(s.rows, s.out, s.in, x, s.in, false, w, s.out, false, 0.0F, y);
}

void QueueOps::linear_forward(const LinearShape& s, const float* x, const float* w, float* y) {
  queue_.multiply(forward_product(s, x, w, y));
}

pipewright_cuda_gemm QueueOps::input_product(const LinearShape& s, const float* dy, const float* w,
                                             float* dx) {
  return one_product(s.rows, s.in, s.out, dy, s.out, false, w, s.out, true, 0.0F, dx);
}

void QueueOps::linear_backward_input(const LinearShape& s, const float* dy, const float* w,
                                     float* dx) {
  queue_.multiply(input_product(s, dy, w, dx));
}

pipewright_cuda_gemm QueueOps::weight_product(const LinearShape& s, const float* x, const float* dy,
                                              float* dw) {
  const std::size_t words = static_cast<std::size_t>(s.in) * static_cast<std::size_t>(s.out);
  const float beta = begins(dw, words) ? 0.0F : 1.0F;
  pipewright_cuda_gemm product =
      one_product(s.in, s.out, s.rows, x, s.in, true, dy, s.out, false, beta, dw);
  product.c_is_float = 1;
  return product;
}

void QueueOps::linear_backward_weight(const LinearShape& s, const float* x, const float* dy,
                                      float* dw) {
  queue_.multiply(weight_product(s, x, dy, dw));
}

void QueueOps::biased_linear_forward(const LinearShape& s, const float* x, const float* w,
                                     const float* bias, float* y) {
  pipewright_cuda_gemm product = forward_product(s, x, w, y);
  product.bias = bias;
  if (queue_.fuses(product)) return queue_.multiply(product);
  TensorOps::biased_linear_forward(s, x, w, bias, y);
}

/// Sums of columns are written and not added: where there are some, they are added behind.
void QueueOps::biased_linear_backward_weight(const LinearShape& s, const float* x, const float* dy,
                                             float* dw, float* dbias) {
  pipewright_cuda_gemm product = weight_product(s, x, dy, dw);
  product.column_sums = queue_.column_scratch();
  if (product.column_sums == nullptr || !queue_.fuses(product)) {
    product.column_sums = nullptr;
    queue_.multiply(product);
    return bias_backward_weight(s.rows, s.out, dy, dbias);
  }
  const auto width = static_cast<std::size_t>(s.out);
  const bool is_first = begins(dbias, width);
  if (is_first) product.column_sums = dbias;
  queue_.multiply(product);
  if (!is_first) queue_.run(queue_.cuda().fast.add_to, width, queue_.column_scratch(), dbias);
}

void QueueOps::bias_forward(int rows, int width, const float* bias, float* y) {
  queue_.run(queue_.kernels().bias_forward, rows, width, bias, y);
}

void QueueOps::bias_backward_weight(int rows, int width, const float* dy, float* dbias) {
  const int adds = begins(dbias, static_cast<std::size_t>(width)) ? 0 : 1;
  queue_.run(queue_.kernels().bias_backward_weight, rows, width, dy, queue_.column_scratch(), adds,
             dbias);
}

// --- Element by element ---

void QueueOps::relu_forward(std::size_t n, const float* x, float* y) {
  queue_.run(queue_.kernels().relu_forward, n, x, y);
}

void QueueOps::relu_backward_input(std::size_t n, const float* y, const float* dy, float* dx) {
  queue_.run(queue_.kernels().relu_backward_input, n, y, dy, dx);
}

void QueueOps::gelu_forward(std::size_t n, const float* x, float* y) {
  queue_.run(queue_.kernels().gelu_forward, n, x, y);
}

void QueueOps::gelu_backward_input(std::size_t n, const float* x, const float* dy, float* dx) {
  queue_.run(queue_.kernels().gelu_backward_input, n, x, dy, dx);
}

// --- Layer norm ---

void QueueOps::layer_norm_forward(const NormShape& s, const float* x, const float* scale,
                                  const float* shift, float* y, float* mean,
                                  float* inverse_deviation) {
  queue_.run(queue_.kernels().layer_norm_forward, s.rows, s.width, x, scale, shift, y, mean,
             inverse_deviation);
}

void QueueOps::layer_norm_backward_input(const NormShape& s, const float* x, const float* mean,
                                         const float* inverse_deviation, const float* scale,
                                         const float* dy, float* dx) {
  queue_.run(queue_.kernels().layer_norm_backward_input, s.rows, s.width, x, mean,
             inverse_deviation, scale, dy, dx);
}

void QueueOps::layer_norm_backward_weight(const NormShape& s, const float* x, const float* mean,
                                          const float* inverse_deviation, const float* dy,
                                          float* dscale, float* dshift) {
  const auto width = static_cast<std::size_t>(s.width);
  const bool begins_scale = begins(dscale, width), begins_shift = begins(dshift, width);
  const int adds = begins_scale && begins_shift ? 0 : 1;
  if (begins_scale != begins_shift)
    queue_.clear(begins_scale ? dscale : dshift, width * sizeof(float));
  queue_.run(queue_.kernels().layer_norm_backward_weight, s.rows, s.width, x, mean,
             inverse_deviation, dy, queue_.column_scratch(), adds, dscale, dshift);
}

// --- Attention: all heads of all samples in one batch of products, or as many batches as heads
// share their keys; the same products as exec/devices/cpu/kernels/attention.cpp, with the same
// chains in exact numerics ---

Buffer QueueOps::take_of_attention(const AttentionShape& shape) {
  return queue_.fused_attention(shape) != nullptr ? take_floats(shape.log_sums())
                                                  : take(shape.probabilities());
}

void QueueOps::attention_forward(const AttentionShape& shape, const float* qkv, float* kept,
                                 float* context) {
  if (const auto* fused = queue_.fused_attention(shape)) {
    return require(
        queue_.cuda(),
        queue_.cuda().attend(fused->attention, qkv, at(qkv, first_key(shape)),
                             at(qkv, first_value(shape)), context, kept, fused->workspace));
  }
  const int t = shape.sequence, d = shape.head_width();
  for_heads(shape, queue_.number_bytes(), [&](const Heads& of) {
    queue_.multiply(of.product(t, d, scale(shape), of.query(qkv), transposed(of.key(qkv)), 0.0F,
                               of.square(kept)));
  });
  const pipewright_cuda_causal scores = squares(shape);
  queue_.run(queue_.kernels().causal_softmax_forward, &scores, kept);
  for_heads(shape, queue_.number_bytes(), [&](const Heads& of) {
    queue_.multiply(
        of.product(d, t, 1.0F, of.square(kept), of.value(qkv), 0.0F, of.context(context)));
  });
}

void QueueOps::attention_backward_input(const AttentionShape& shape, const float* qkv,
                                        const float* kept, const float* context,
                                        const float* dcontext, float* dqkv) {
  if (const auto* fused = queue_.fused_attention(shape)) {
    const std::size_t key = first_key(shape), value = first_value(shape);
    return require(queue_.cuda(),
                   queue_.cuda().attend_backward(fused->attention, qkv, at(qkv, key),
                                                 at(qkv, value), context, kept, dcontext, dqkv,
                                                 at(dqkv, key), at(dqkv, value), fused->workspace));
  }
  const Buffer scores = take(shape.probabilities());
  float* const d_scores = scores.floats();
  const int t = shape.sequence, d = shape.head_width();
  for_heads(shape, queue_.number_bytes(), [&](const Heads& of) {
    queue_.multiply(of.product(d, t, 1.0F, transposed(of.square(kept)), of.context(dcontext),
                               of.before(), of.value(dqkv)));
    queue_.multiply(of.product(t, d, 1.0F, of.context(dcontext), transposed(of.value(qkv)), 0.0F,
                               of.square(d_scores)));
  });
  // A canonical product that goes on from what is there cannot scale: then the scores are scaled.
  const bool is_shared = shape.queries_a_key() > 1;
  const float of_scores = is_shared ? scale(shape) : 1.0F;
  const float of_product = is_shared ? 1.0F : scale(shape);
  const pipewright_cuda_causal of_heads = squares(shape);
  queue_.run(queue_.kernels().causal_softmax_backward_input, &of_heads, of_scores, kept, d_scores);
  for_heads(shape, queue_.number_bytes(), [&](const Heads& of) {
    queue_.multiply(
        of.product(d, t, of_product, of.square(d_scores), of.key(qkv), 0.0F, of.query(dqkv)));
    queue_.multiply(of.product(d, t, of_product, transposed(of.square(d_scores)), of.query(qkv),
                               of.before(), of.key(dqkv)));
  });
}

// --- Embedding ---

pipewright_cuda_places places_of(const EmbeddingShape& s) {
  return {s.first_row,
          s.sequence,
          {s.context.position(s.sequence, 0), s.context.position(s.sequence, s.sequence / 2)}};
}

void QueueOps::embedding_forward(const EmbeddingShape& s, const std::int32_t* ids,
                                 const float* tokens, const float* positions, float* y) {
  const pipewright_cuda_places places = places_of(s);
  queue_.run(queue_.kernels().embedding_forward, s.rows, s.width, &places, ids, tokens, positions,
             y);
}

void QueueOps::embedding_backward_weight(const EmbeddingShape& s, const std::int32_t* ids,
                                         const float* dy, float* dtokens, float* dpositions) {
  static_cast<void>(begins(dtokens, 0));  // it adds to the rows of tokens that occur
  if (dpositions != nullptr) static_cast<void>(begins(dpositions, 0));
  const Buffer links = take_ids(2 * static_cast<std::size_t>(s.rows));
  const pipewright_cuda_places places = places_of(s);
  queue_.run(queue_.kernels().embedding_backward_weight, s.rows, s.width, &places, ids, dy,
             links.ids(), dtokens, dpositions);
}

}  // namespace pipewright::exec::cuda
