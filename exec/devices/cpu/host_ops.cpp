#include "exec/devices/cpu/host_ops.hpp"

#include <algorithm>

#include "exec/devices/cpu/kernels/gemm.hpp"

namespace pipewright::exec::cpu {

void HostOps::copy(std::size_t words, const float* from, float* to) {
  std::copy_n(from, words, to);
}

void HostOps::add_to(std::size_t n, const float* x, float* y) { exec::add_to(n, x, y); }

void HostOps::linear_forward(const LinearShape& shape, const float* x, const float* w, float* y) {
  exec::linear_forward(shape, x, w, y, numerics_);
}

void HostOps::linear_backward_input(const LinearShape& shape, const float* dy, const float* w,
                                    float* dx) {
  exec::linear_backward_input(shape, dy, w, dx, numerics_);
}

void HostOps::linear_backward_weight(const LinearShape& shape, const float* x, const float* dy,
                                     float* dw) {
  exec::linear_backward_weight(shape, x, dy, dw, numerics_);
}

void HostOps::linear_forward_on(const LinearShape& s, const float* x, const float* w, float* y) {
  gemm({s.rows, s.out, s.in}, 1.0F, {x, s.in}, {w, s.out}, 1.0F, y, s.out, numerics_);
}

void HostOps::linear_backward_input_on(const LinearShape& s, const Range& columns, const float* dy,
                                       const float* w, float* dx) {
  gemm({s.rows, s.in, static_cast<int>(columns.count)}, 1.0F, {dy + columns.begin, s.out},
       {w + columns.begin, s.out, true}, 1.0F, dx, s.in, numerics_);
}

void HostOps::clear(std::size_t n, float* x) { std::fill_n(x, n, 0.0F); }

void HostOps::bias_forward(int rows, int width, const float* bias, float* y) {
  exec::bias_forward(rows, width, bias, y);
}

void HostOps::bias_backward_weight(int rows, int width, const float* dy, float* dbias) {
  exec::bias_backward_weight(rows, width, dy, dbias);
}

void HostOps::relu_forward(std::size_t n, const float* x, float* y) { exec::relu_forward(n, x, y); }

void HostOps::relu_backward_input(std::size_t n, const float* y, const float* dy, float* dx) {
  exec::relu_backward_input(n, y, dy, dx);
}

void HostOps::gelu_forward(std::size_t n, const float* x, float* y) { exec::gelu_forward(n, x, y); }

void HostOps::gelu_backward_input(std::size_t n, const float* x, const float* dy, float* dx) {
  exec::gelu_backward_input(n, x, dy, dx);
}

void HostOps::layer_norm_forward(const NormShape& shape, const float* x, const float* scale,
                                 const float* shift, float* y, float* mean,
                                 float* inverse_deviation) {
  exec::layer_norm_forward(shape, x, scale, shift, y, mean, inverse_deviation);
}

void HostOps::layer_norm_backward_input(const NormShape& shape, const float* x, const float* mean,
                                        const float* inverse_deviation, const float* scale,
                                        const float* dy, float* dx) {
  exec::layer_norm_backward_input(shape, x, mean, inverse_deviation, scale, dy, dx);
}

void HostOps::layer_norm_backward_weight(const NormShape& shape, const float* x, const float* mean,
                                         const float* inverse_deviation, const float* dy,
                                         float* dscale, float* dshift) {
  exec::layer_norm_backward_weight(shape, x, mean, inverse_deviation, dy, dscale, dshift);
}

void HostOps::rms_norm_forward(const NormShape& shape, const float* x, const float* scale, float* y,
                               float* inverse_root) {
  exec::rms_norm_forward(shape, x, scale, y, inverse_root);
}

void HostOps::rms_norm_backward_input(const NormShape& shape, const float* x,
                                      const float* inverse_root, const float* scale,
                                      const float* dy, float* dx) {
  exec::rms_norm_backward_input(shape, x, inverse_root, scale, dy, dx);
}

void HostOps::rms_norm_backward_weight(const NormShape& shape, const float* x,
                                       const float* inverse_root, const float* dy, float* dscale) {
  exec::rms_norm_backward_weight(shape, x, inverse_root, dy, dscale);
}

void HostOps::swiglu_forward(int rows, int width, const float* x, float* y) {
  exec::swiglu_forward(rows, width, x, y);
}

void HostOps::swiglu_backward_input(int rows, int width, const float* x, const float* dy,
                                    float* dx) {
  exec::swiglu_backward_input(rows, width, x, dy, dx);
}

void HostOps::rotate(const RotaryShape& shape, bool back, float* rows) {
  const Buffer scratch = pool_.take(shape.scratch());
  exec::rotate(shape, back, rows, scratch.floats());
}

void HostOps::latent_attention_forward(const LatentShape& shape, const LatentInputs& inputs,
                                       float* probabilities, float* context) {
  exec::latent_attention_forward(shape, inputs, probabilities, context, numerics_);
}
void HostOps::latent_attention_backward_input(const LatentShape& shape, const LatentInputs& inputs,
                                              const float* probabilities, const float*,
                                              const float* dcontext,
                                              const LatentGradients& gradients) {
  const Buffer scratch = pool_.take(shape.scratch());
  exec::latent_attention_backward_input(shape, inputs, probabilities, dcontext, gradients,
                                        scratch.floats(), numerics_);
}
void HostOps::add_heads(int rows, int heads, int width, const float* by_head, float* y) {
  exec::add_heads(rows, heads, width, by_head, y);
}

void HostOps::copy_keys(const ContextShape& shape, const float* qkv, float* keys) {
  exec::copy_keys(shape, qkv, keys);
}
void HostOps::context_attention_forward(const ContextShape& shape, const float* qkv,
                                        const float* keys, float* probabilities, float* context) {
  exec::context_attention_forward(shape, qkv, keys, probabilities, context, numerics_);
}
void HostOps::context_attention_backward(const ContextShape& shape, const ContextQueries& queries,
                                         const float* qkv, const float* keys,
                                         const float* probabilities, const float* dcontext,
                                         float* dqkv, float* dkeys) {
  const Buffer scratch = pool_.take(shape.scratch());
  exec::context_attention_backward(shape, queries, qkv, keys, probabilities, dcontext, dqkv, dkeys,
                                   scratch.floats(), numerics_);
}
void HostOps::take_key_gradients(const ContextShape& shape, const float* dkeys, float* dqkv) {
  exec::take_key_gradients(shape, dkeys, dqkv);
}

void HostOps::attention_forward(const AttentionShape& shape, const float* qkv, float* probabilities,
                                float* context) {
  exec::attention_forward(shape, qkv, probabilities, context, numerics_);
}

void HostOps::attention_backward_input(const AttentionShape& shape, const float* qkv,
                                       const float* probabilities, const float* /*context*/,
                                       const float* dcontext, float* dqkv) {
  const Buffer scratch = pool_.take(shape.scratch());
  exec::attention_backward_input(shape, qkv, probabilities, dcontext, dqkv, scratch.floats(),
                                 numerics_);
}

void HostOps::embedding_forward(const EmbeddingShape& shape, const std::int32_t* ids,
                                const float* tokens, const float* positions, float* y) {
  exec::embedding_forward(shape, ids, tokens, positions, y);
}

void HostOps::embedding_backward_weight(const EmbeddingShape& shape, const std::int32_t* ids,
                                        const float* dy, float* dtokens, float* dpositions) {
  exec::embedding_backward_weight(shape, ids, dy, dtokens, dpositions);
}

void HostOps::look_up(const EmbeddingShape& shape, const TokenRange& own, bool alone,
                      const std::int32_t* ids, const float* tokens, float* y) {
  exec::look_up(shape, own, alone, ids, tokens, y);
}

void HostOps::add_positions(const EmbeddingShape& shape, const float* positions, float* y) {
  exec::add_positions(shape, positions, y);
}

void HostOps::look_up_backward_weight(const EmbeddingShape& shape, const TokenRange& own,
                                      const std::int32_t* ids, const float* dy, float* dtokens,
                                      float* dpositions) {
  exec::look_up_backward_weight(shape, own, ids, dy, dtokens, dpositions);
}

void HostOps::copy_columns(int rows, int width, const float* from, int from_stride, float* to,
                           int to_stride) {
  for (int r = 0; r < rows; ++r)
    std::copy_n(from + static_cast<std::ptrdiff_t>(r) * from_stride, width,
                to + static_cast<std::ptrdiff_t>(r) * to_stride);
}

void HostOps::add_scaled(std::size_t n, float factor, const float* x, float* y) {
  for (std::size_t i = 0; i < n; ++i) y[i] += x[i] * factor;
}

ConvShape HostOps::in_own_numerics(ConvShape shape) const {
  shape.numerics = numerics_;
  return shape;
}

void HostOps::conv2d_forward(const ConvShape& shape, const float* x, const float* w, float* y) {
  const ConvShape with = in_own_numerics(shape);
  const Buffer scratch = pool_.take(conv2d_scratch(with));
  exec::conv2d_forward(with, x, w, y, scratch.floats());
}

void HostOps::conv2d_backward_input(const ConvShape& shape, const float* dy, const float* w,
                                    float* dx) {
  const ConvShape with = in_own_numerics(shape);
  const Buffer scratch = pool_.take(conv2d_scratch(with));
  exec::conv2d_backward_input(with, dy, w, dx, scratch.floats());
}

void HostOps::conv2d_backward_weight(const ConvShape& shape, const float* x, const float* dy,
                                     float* dw) {
  const ConvShape with = in_own_numerics(shape);
  const Buffer scratch = pool_.take(conv2d_scratch(with));
  exec::conv2d_backward_weight(with, x, dy, dw, scratch.floats());
}

void HostOps::channel_bias_forward(const ChannelShape& shape, const float* bias, float* y) {
  exec::channel_bias_forward(shape, bias, y);
}

void HostOps::channel_bias_backward_weight(const ChannelShape& shape, const float* dy,
                                           float* dbias) {
  exec::channel_bias_backward_weight(shape, dy, dbias);
}

void HostOps::batch_statistics(const ChannelShape& shape, const float* x, float* mean,
                               float* variance) {
  exec::batch_statistics(shape, x, mean, variance);
}

void HostOps::batch_norm_forward(const ChannelShape& shape, const float* x, const float* mean,
                                 const float* variance, const float* scale, const float* shift,
                                 float* y) {
  exec::batch_norm_forward(shape, x, mean, variance, scale, shift, y);
}

void HostOps::batch_norm_backward_input(const ChannelShape& shape, const float* x,
                                        const float* mean, const float* variance,
                                        const float* scale, const float* dy, float* dx,
                                        float* dscale, float* dshift) {
  exec::batch_norm_backward_input(shape, x, mean, variance, scale, dy, dx, dscale, dshift);
}

void HostOps::max_pool_forward(const PoolShape& shape, const float* x, float* y,
                               std::int32_t* places) {
  exec::max_pool_forward(shape, x, y, places);
}

void HostOps::max_pool_backward_input(const PoolShape& shape, const std::int32_t* places,
                                      const float* dy, float* dx) {
  exec::max_pool_backward_input(shape, places, dy, dx);
}

void HostOps::average_pool_forward(const PoolShape& shape, const float* x, float* y) {
  exec::average_pool_forward(shape, x, y);
}

void HostOps::average_pool_backward_input(const PoolShape& shape, const float* dy, float* dx) {
  exec::average_pool_backward_input(shape, dy, dx);
}

void HostOps::global_average_pool_forward(const ChannelShape& shape, const float* x, float* y) {
  exec::global_average_pool_forward(shape, x, y);
}

void HostOps::global_average_pool_backward_input(const ChannelShape& shape, const float* dy,
                                                 float* dx) {
  exec::global_average_pool_backward_input(shape, dy, dx);
}

void HostOps::router_forward(const LinearShape& shape, const float* x, const float* w,
                             const float* bias, float* logits) {
  linear_forward(shape, x, w, logits);
  if (bias != nullptr) bias_forward(shape.rows, shape.out, bias, logits);
}

void HostOps::router_backward_input(const LinearShape& shape, const float* dlogits, const float* w,
                                    float* dx) {
  linear_backward_input(shape, dlogits, w, dx);
}

void HostOps::router_backward_weight(const LinearShape& shape, const float* x, const float* dlogits,
                                     float* dw, float* dbias) {
  linear_backward_weight(shape, x, dlogits, dw);
  if (dbias != nullptr) bias_backward_weight(shape.rows, shape.out, dlogits, dbias);
}

void HostOps::route(const RouterShape& shape, const float* logits, const float* bias,
                    float* weights, const Routes& routes) {
  const Buffer scratch = pool_.take(shape.scratch());
  exec::route(shape, logits, bias, weights, routes, scratch.floats());
}

void HostOps::context_latent_forward(const ContextLatentShape& shape, const float* queries,
                                     const float* keys, float* probabilities, float* context) {
  exec::context_latent_forward(shape, queries, keys, probabilities, context, numerics_);
}
void HostOps::context_latent_backward(const ContextLatentShape& shape, int which,
                                      const float* queries, const float* keys,
                                      const float* probabilities, const float* dcontext,
                                      float* dqueries, float* dkeys) {
  const Buffer scratch = pool_.take(shape.chunks().scratch());
  exec::context_latent_backward(shape, which, queries, keys, probabilities, dcontext, dqueries,
                                dkeys, scratch.floats(), numerics_);
}

void HostOps::ring_attention_forward(const RingShape& shape, const float* qkv, const float* keys,
                                     const RingSums& sums) {
  const Buffer scratch = pool_.take(shape.scores());
  exec::ring_attention_forward(shape, qkv, keys, sums, scratch.floats());
}
void HostOps::finish_ring_attention(const ContextShape& shape, const RingSums& sums) {
  exec::finish_ring_attention(shape, sums);
}
void HostOps::context_products(const ContextShape& shape, const float* context,
                               const float* dcontext, float* products) {
  exec::context_products(shape, context, dcontext, products);
}
void HostOps::ring_attention_backward(const RingShape& shape, const float* qkv, const float* keys,
                                      const RingRows& rows, float* dqkv, float* dkeys) {
  const Buffer scratch = pool_.take(shape.scratch());
  exec::ring_attention_backward(shape, qkv, keys, rows, dqkv, dkeys, scratch.floats());
}

void HostOps::place_rows(const RouterShape& shape, const float* earlier, const Routes& routes) {
  exec::place_rows(shape, earlier, routes);
}

void HostOps::count_choices(const RouterShape& shape, const Routes& routes, float* counts) {
  exec::count_choices(shape, routes, counts);
}

void HostOps::balance(int experts, float rate, const float* counts, float* bias) {
  exec::balance(experts, rate, counts, bias);
}

void HostOps::count_choices_of_chunks(const RouterShape& shape, const Routes& routes,
                                      float* counts) {
  exec::count_choices_of_chunks(shape, routes, counts);
}

void HostOps::sum_choices(const RouterShape& shape, const float* counts, const ChoiceSums& sums) {
  exec::sum_choices(shape, counts, sums);
}

void HostOps::route_backward(const RouterShape& shape, float share, const float* logits,
                             const float* weights, const Routes& routes, const float* choices,
                             const float* dweights, float* dlogits) {
  const Buffer scratch = pool_.take(shape.scratch());
  exec::route_backward(shape, share, logits, weights, routes, choices, dweights, dlogits,
                       scratch.floats());
}

void HostOps::gather_rows(const RouterShape& shape, int width, const Routes& routes, const float* x,
                          float* gathered) {
  exec::gather_rows(shape, width, routes, x, gathered);
}

void HostOps::sum_rows(const RouterShape& shape, int width, const Routes& routes,
                       const float* gathered, float* x) {
  exec::sum_rows(shape, width, routes, gathered, x);
}

void HostOps::weigh_rows(const RouterShape& shape, int width, const Routes& routes,
                         const float* weights, const float* z, float* y) {
  exec::weigh_rows(shape, width, routes, weights, z, y);
}

void HostOps::weigh_rows_backward(const RouterShape& shape, int width, const Routes& routes,
                                  const float* weights, const float* dy, const float* z, float* dz,
                                  float* dweights) {
  exec::weigh_rows_backward(shape, width, routes, weights, dy, z, dz, dweights);
}

RunBegins HostOps::fetch_begins(const std::int32_t* begin, std::size_t runs, int) {
  return std::make_shared<const std::vector<std::int32_t>>(begin, begin + runs + 1);
}

void HostOps::expert_linear_forward(const ExpertLinearShape& shape, const std::int32_t* begin,
                                    const float* x, const float* w, float* y) {
  exec::expert_linear_forward(shape, begin, x, w, y, numerics_);
}

void HostOps::expert_linear_backward_input(const ExpertLinearShape& shape,
                                           const std::int32_t* begin, const float* dy,
                                           const float* w, float* dx) {
  exec::expert_linear_backward_input(shape, begin, dy, w, dx, numerics_);
}

void HostOps::expert_linear_backward_weight(const ExpertLinearShape& shape,
                                            const RunsOfMember& runs, const std::int32_t* begin,
                                            const float* x, const float* dy, float* dw) {
  exec::expert_linear_backward_weight(shape, runs, begin, x, dy, dw, numerics_);
}

void HostOps::expert_bias_forward(const ExpertLinearShape& shape, const std::int32_t* begin,
                                  const float* bias, float* y) {
  exec::expert_bias_forward(shape, begin, bias, y);
}

void HostOps::expert_bias_backward_weight(const ExpertLinearShape& shape, const RunsOfMember& runs,
                                          const std::int32_t* begin, const float* dy,
                                          float* dbias) {
  exec::expert_bias_backward_weight(shape, runs, begin, dy, dbias);
}

}  // namespace pipewright::exec::cpu
