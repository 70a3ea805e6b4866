// The operators of exec/layers/tensor_ops.hpp on this machine's CPU: done when the call returns.
#pragma once

#include "exec/layers/tensor_ops.hpp"

namespace pipewright::exec::cpu {

class HostOps final : public TensorOps,
                      public ImageOps,
                      public LlamaOps,
                      public ExpertOps,
                      public LatentOps,
                      public ContextOps {
 public:
  /// The pool must outlive it.
  HostOps(BufferPool& pool, Numerics numerics) : pool_(pool), numerics_(numerics) {}

  Buffer take(std::size_t words) override { return pool_.take(words); }
  void copy(std::size_t words, const float* from, float* to) override;
  void add_to(std::size_t n, const float* x, float* y) override;
  void linear_forward(const LinearShape& shape, const float* x, const float* w, float* y) override;
  void linear_backward_input(const LinearShape& shape, const float* dy, const float* w,
                             float* dx) override;
  void linear_backward_weight(const LinearShape& shape, const float* x, const float* dy,
                              float* dw) override;
  void linear_forward_on(const LinearShape& shape, const float* x, const float* w,
                         float* y) override;
  void linear_backward_input_on(const LinearShape& shape, const Range& columns, const float* dy,
                                const float* w, float* dx) override;
  void clear(std::size_t n, float* x) override;
  void bias_forward(int rows, int width, const float* bias, float* y) override;
  void bias_backward_weight(int rows, int width, const float* dy, float* dbias) override;
  void relu_forward(std::size_t n, const float* x, float* y) override;
  void relu_backward_input(std::size_t n, const float* y, const float* dy, float* dx) override;
  void gelu_forward(std::size_t n, const float* x, float* y) override;
  void gelu_backward_input(std::size_t n, const float* x, const float* dy, float* dx) override;
  void layer_norm_forward(const NormShape& shape, const float* x, const float* scale,
                          const float* shift, float* y, float* mean,
                          float* inverse_deviation) override;
  void layer_norm_backward_input(const NormShape& shape, const float* x, const float* mean,
                                 const float* inverse_deviation, const float* scale,
                                 const float* dy, float* dx) override;
  void layer_norm_backward_weight(const NormShape& shape, const float* x, const float* mean,
                                  const float* inverse_deviation, const float* dy, float* dscale,
                                  float* dshift) override;
  void rms_norm_forward(const NormShape& shape, const float* x, const float* scale, float* y,
                        float* inverse_root) override;
  void rms_norm_backward_input(const NormShape& shape, const float* x, const float* inverse_root,
                               const float* scale, const float* dy, float* dx) override;
  void rms_norm_backward_weight(const NormShape& shape, const float* x, const float* inverse_root,
                                const float* dy, float* dscale) override;
  void swiglu_forward(int rows, int width, const float* x, float* y) override;
  void swiglu_backward_input(int rows, int width, const float* x, const float* dy,
                             float* dx) override;
  void rotate(const RotaryShape& shape, bool back, float* rows) override;
  void attention_forward(const AttentionShape& shape, const float* qkv, float* probabilities,
                         float* context) override;
  void attention_backward_input(const AttentionShape& shape, const float* qkv,
                                const float* probabilities, const float* context,
                                const float* dcontext, float* dqkv) override;
  void embedding_forward(const EmbeddingShape& shape, const std::int32_t* ids, const float* tokens,
                         const float* positions, float* y) override;
  void embedding_backward_weight(const EmbeddingShape& shape, const std::int32_t* ids,
                                 const float* dy, float* dtokens, float* dpositions) override;
  void look_up(const EmbeddingShape& shape, const TokenRange& own, bool alone,
               const std::int32_t* ids, const float* tokens, float* y) override;
  void add_positions(const EmbeddingShape& shape, const float* positions, float* y) override;
  void look_up_backward_weight(const EmbeddingShape& shape, const TokenRange& own,
                               const std::int32_t* ids, const float* dy, float* dtokens,
                               float* dpositions) override;

  ImageOps& images() override { return *this; }
  LlamaOps& llama() override { return *this; }
  void copy_columns(int rows, int width, const float* from, int from_stride, float* to,
                    int to_stride) override;
  void add_scaled(std::size_t n, float factor, const float* x, float* y) override;
  void add_one(float* y) override { y[0] += 1; }
  void move_statistics(const StatisticsMove& move) override { exec::move_statistics(move); }
  void conv2d_forward(const ConvShape& shape, const float* x, const float* w, float* y) override;
  void conv2d_backward_input(const ConvShape& shape, const float* dy, const float* w,
                             float* dx) override;
  void conv2d_backward_weight(const ConvShape& shape, const float* x, const float* dy,
                              float* dw) override;
  void channel_bias_forward(const ChannelShape& shape, const float* bias, float* y) override;
  void channel_bias_backward_weight(const ChannelShape& shape, const float* dy,
                                    float* dbias) override;
  void batch_statistics(const ChannelShape& shape, const float* x, float* mean,
                        float* variance) override;
  void batch_norm_forward(const ChannelShape& shape, const float* x, const float* mean,
                          const float* variance, const float* scale, const float* shift,
                          float* y) override;
  void batch_norm_backward_input(const ChannelShape& shape, const float* x, const float* mean,
                                 const float* variance, const float* scale, const float* dy,
                                 float* dx, float* dscale, float* dshift) override;
  void max_pool_forward(const PoolShape& shape, const float* x, float* y,
                        std::int32_t* places) override;
  void max_pool_backward_input(const PoolShape& shape, const std::int32_t* places, const float* dy,
                               float* dx) override;
  void average_pool_forward(const PoolShape& shape, const float* x, float* y) override;
  void average_pool_backward_input(const PoolShape& shape, const float* dy, float* dx) override;
  void global_average_pool_forward(const ChannelShape& shape, const float* x, float* y) override;
  void global_average_pool_backward_input(const ChannelShape& shape, const float* dy,
                                          float* dx) override;

  LatentOps& latent() override { return *this; }
  Buffer take_of_latent_attention(const LatentShape& shape) override {
    return take(shape.probabilities());
  }
  void latent_attention_forward(const LatentShape& shape, const LatentInputs& inputs,
                                float* probabilities, float* context) override;
  void latent_attention_backward_input(const LatentShape& shape, const LatentInputs& inputs,
                                       const float* probabilities, const float* context,
                                       const float* dcontext,
                                       const LatentGradients& gradients) override;
  void add_heads(int rows, int heads, int width, const float* by_head, float* y) override;

  ContextOps& context() override { return *this; }
  void copy_keys(const ContextShape& shape, const float* qkv, float* keys) override;
  void context_attention_forward(const ContextShape& shape, const float* qkv, const float* keys,
                                 float* probabilities, float* context) override;
  void context_attention_backward(const ContextShape& shape, const ContextQueries& queries,
                                  const float* qkv, const float* keys, const float* probabilities,
                                  const float* dcontext, float* dqkv, float* dkeys) override;
  void take_key_gradients(const ContextShape& shape, const float* dkeys, float* dqkv) override;
  void context_latent_forward(const ContextLatentShape& shape, const float* queries,
                              const float* keys, float* probabilities, float* context) override;
  void context_latent_backward(const ContextLatentShape& shape, int which, const float* queries,
                               const float* keys, const float* probabilities, const float* dcontext,
                               float* dqueries, float* dkeys) override;
  void ring_attention_forward(const RingShape& shape, const float* qkv, const float* keys,
                              const RingSums& sums) override;
  void finish_ring_attention(const ContextShape& shape, const RingSums& sums) override;
  void context_products(const ContextShape& shape, const float* context, const float* dcontext,
                        float* products) override;
  void ring_attention_backward(const RingShape& shape, const float* qkv, const float* keys,
                               const RingRows& rows, float* dqkv, float* dkeys) override;

  ExpertOps& experts() override { return *this; }
  void router_forward(const LinearShape& shape, const float* x, const float* w, const float* bias,
                      float* logits) override;
  void router_backward_input(const LinearShape& shape, const float* dlogits, const float* w,
                             float* dx) override;
  void router_backward_weight(const LinearShape& shape, const float* x, const float* dlogits,
                              float* dw, float* dbias) override;
  void route(const RouterShape& shape, const float* logits, const float* bias, float* weights,
             const Routes& routes) override;
  void place_rows(const RouterShape& shape, const float* earlier, const Routes& routes) override;
  void count_choices(const RouterShape& shape, const Routes& routes, float* counts) override;
  void balance(int experts, float rate, const float* counts, float* bias) override;
  void count_choices_of_chunks(const RouterShape& shape, const Routes& routes,
                               float* counts) override;
  void sum_choices(const RouterShape& shape, const float* counts, const ChoiceSums& sums) override;
  void route_backward(const RouterShape& shape, float share, const float* logits,
                      const float* weights, const Routes& routes, const float* choices,
                      const float* dweights, float* dlogits) override;
  void gather_rows(const RouterShape& shape, int width, const Routes& routes, const float* x,
                   float* gathered) override;
  void sum_rows(const RouterShape& shape, int width, const Routes& routes, const float* gathered,
                float* x) override;
  void weigh_rows(const RouterShape& shape, int width, const Routes& routes, const float* weights,
                  const float* z, float* y) override;
  void weigh_rows_backward(const RouterShape& shape, int width, const Routes& routes,
                           const float* weights, const float* dy, const float* z, float* dz,
                           float* dweights) override;
  RunBegins fetch_begins(const std::int32_t* begin, std::size_t runs, int even) override;
  void expert_linear_forward(const ExpertLinearShape& shape, const std::int32_t* begin,
                             const float* x, const float* w, float* y) override;
  void expert_linear_backward_input(const ExpertLinearShape& shape, const std::int32_t* begin,
                                    const float* dy, const float* w, float* dx) override;
  void expert_linear_backward_weight(const ExpertLinearShape& shape, const RunsOfMember& runs,
                                     const std::int32_t* begin, const float* x, const float* dy,
                                     float* dw) override;
  void expert_bias_forward(const ExpertLinearShape& shape, const std::int32_t* begin,
                           const float* bias, float* y) override;
  void expert_bias_backward_weight(const ExpertLinearShape& shape, const RunsOfMember& runs,
                                   const std::int32_t* begin, const float* dy,
                                   float* dbias) override;

 private:
  ConvShape in_own_numerics(ConvShape shape) const;

  BufferPool& pool_;
  const Numerics numerics_;
};

}  // namespace pipewright::exec::cpu
