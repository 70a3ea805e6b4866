// A device without memory that computes nothing and counts: what layers ask of a device shows what
// they keep, what they hold while they run, and how many operations that takes. Layers on top of it
// need no memory for their parameters either. Scratch memory is counted as a CPU takes it
// (exec/devices/cpu/host_ops.hpp), and where ranks divide sequences also as a GPU does.
//
// Bytes of buffers; operations as docs/metrics.md counts them, "Layer footprints". The object
// outlives its Buffers. One thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>

#include "exec/layers/tensor_ops.hpp"

namespace pipewright::exec {

class MeteredOps final : public TensorOps,
                         public ImageOps,
                         public LlamaOps,
                         public ExpertOps,
                         public LatentOps,
                         public ContextOps {
 public:
  explicit MeteredOps(int bytes_per_element)
      : element_(static_cast<std::size_t>(bytes_per_element)) {}

  /// Of the buffers that somebody holds.
  std::int64_t live_bytes() const { return meter_.live_bytes; }
  /// The most since forget_peak().
  std::int64_t peak_bytes() const { return meter_.peak_bytes; }
  void forget_peak() { meter_.peak_bytes = meter_.live_bytes; }
  /// So far.
  double operations() const { return operations_; }
  void count(double operations) { operations_ += operations; }
  std::size_t bytes_per_element() const { return element_; }

  Buffer take(std::size_t words) override { return hold(words * element_); }
  Buffer take_floats(std::size_t words) override {
    return hold(words * std::max(element_, sizeof(float)));
  }
  Buffer take_ids(std::size_t words) override { return hold(words * sizeof(std::int32_t)); }
  void copy(std::size_t, const float*, float*) override {}
  void add_to(std::size_t n, const float*, float*) override { count(n, 1); }

  void linear_forward(const LinearShape& shape, const float*, const float*, float*) override;
  void linear_backward_input(const LinearShape& shape, const float*, const float*, float*) override;
  void linear_backward_weight(const LinearShape& shape, const float*, const float*,
                              float*) override;
  void clear(std::size_t, float*) override {}
  void bias_forward(int rows, int width, const float*, float*) override;
  void bias_backward_weight(int rows, int width, const float*, float*) override;
  void relu_forward(std::size_t n, const float*, float*) override { count(n, 1); }
  void relu_backward_input(std::size_t n, const float*, const float*, float*) override;
  void gelu_forward(std::size_t n, const float*, float*) override { count(n, 8); }
  void gelu_backward_input(std::size_t n, const float*, const float*, float*) override;
  void layer_norm_forward(const NormShape& shape, const float*, const float*, const float*, float*,
                          float*, float*) override;
  void layer_norm_backward_input(const NormShape& shape, const float*, const float*, const float*,
                                 const float*, const float*, float*) override;
  void layer_norm_backward_weight(const NormShape& shape, const float*, const float*, const float*,
                                  const float*, float*, float*) override;
  void rms_norm_forward(const NormShape& shape, const float*, const float*, float*,
                        float*) override;
  void rms_norm_backward_input(const NormShape& shape, const float*, const float*, const float*,
                               const float*, float*) override;
  void rms_norm_backward_weight(const NormShape& shape, const float*, const float*, const float*,
                                float*) override;
  void swiglu_forward(int rows, int width, const float*, float*) override;
  void swiglu_backward_input(int rows, int width, const float*, const float*, float*) override;
  void rotate(const RotaryShape& shape, bool, float*) override;
  Buffer take_of_attention(const AttentionShape& shape) override;
  void attention_forward(const AttentionShape& shape, const float*, float*, float*) override;
  void attention_backward_input(const AttentionShape& shape, const float*, const float*,
                                const float*, const float*, float*) override;
  void embedding_forward(const EmbeddingShape& shape, const std::int32_t*, const float*,
                         const float* positions, float*) override;
  void embedding_backward_weight(const EmbeddingShape& shape, const std::int32_t*, const float*,
                                 float*, float* positions) override;
  void look_up(const EmbeddingShape&, const TokenRange&, bool, const std::int32_t*, const float*,
               float*) override {}
  void add_positions(const EmbeddingShape& shape, const float*, float*) override;
  void look_up_backward_weight(const EmbeddingShape& shape, const TokenRange& own,
                               const std::int32_t*, const float*, float*,
                               float* positions) override;

  ImageOps& images() override { return *this; }
  LlamaOps& llama() override { return *this; }
  void copy_columns(int, int, const float*, int, float*, int) override {}
  void add_scaled(std::size_t n, float, const float*, float*) override { count(n, 1); }
  void add_one(float*) override {}
  void move_statistics(const StatisticsMove&) override {}
  void conv2d_forward(const ConvShape& shape, const float*, const float*, float*) override;
  void conv2d_backward_input(const ConvShape& shape, const float*, const float*, float*) override;
  void conv2d_backward_weight(const ConvShape& shape, const float*, const float*, float*) override;
  void channel_bias_forward(const ChannelShape& shape, const float*, float*) override;
  void channel_bias_backward_weight(const ChannelShape& shape, const float*, float*) override;
  void batch_statistics(const ChannelShape& shape, const float*, float*, float*) override;
  void batch_norm_forward(const ChannelShape& shape, const float*, const float*, const float*,
                          const float*, const float*, float*) override;
  void batch_norm_backward_input(const ChannelShape& shape, const float*, const float*,
                                 const float*, const float*, const float*, float*, float*,
                                 float*) override;
  void max_pool_forward(const PoolShape& shape, const float*, float*, std::int32_t*) override;
  void max_pool_backward_input(const PoolShape& shape, const std::int32_t*, const float*,
                               float*) override;
  void average_pool_forward(const PoolShape& shape, const float*, float*) override;
  void average_pool_backward_input(const PoolShape& shape, const float*, float*) override;
  void global_average_pool_forward(const ChannelShape& shape, const float*, float*) override;
  void global_average_pool_backward_input(const ChannelShape& shape, const float*, float*) override;

  LatentOps& latent() override { return *this; }
  Buffer take_of_latent_attention(const LatentShape& shape) override;
  void latent_attention_forward(const LatentShape& shape, const LatentInputs&, float*,
                                float*) override;
  void latent_attention_backward_input(const LatentShape& shape, const LatentInputs&, const float*,
                                       const float*, const float*, const LatentGradients&) override;
  void add_heads(int rows, int heads, int width, const float*, float*) override;

  ContextOps& context() override { return *this; }
  void copy_keys(const ContextShape&, const float*, float*) override {}
  Buffer in_order(const ContextShape& shape, Buffer keys) override;
  Buffer in_order(const ContextLatentShape& shape, Buffer keys) override;
  void context_attention_forward(const ContextShape& shape, const float*, const float*, float*,
                                 float*) override;
  void context_attention_backward(const ContextShape& shape, const ContextQueries& queries,
                                  const float*, const float*, const float*, const float*, float*,
                                  float*) override;
  void take_key_gradients(const ContextShape& shape, const float*, float*) override;
  void context_latent_forward(const ContextLatentShape& shape, const float*, const float*, float*,
                              float*) override;
  void context_latent_backward(const ContextLatentShape& shape, int which, const float*,
                               const float*, const float*, const float*, float*, float*) override;
  void ring_attention_forward(const RingShape& shape, const float*, const float*,
                              const RingSums&) override;
  void finish_ring_attention(const ContextShape& shape, const RingSums&) override;
  void context_products(const ContextShape& shape, const float*, const float*, float*) override;
  void ring_attention_backward(const RingShape& shape, const float*, const float*, const RingRows&,
                               float*, float*) override;

  ExpertOps& experts() override { return *this; }
  void router_forward(const LinearShape& shape, const float*, const float*, const float* bias,
                      float*) override;
  void router_backward_input(const LinearShape& shape, const float*, const float*, float*) override;
  void router_backward_weight(const LinearShape& shape, const float*, const float*, float*,
                              float* dbias) override;
  void route(const RouterShape& shape, const float*, const float*, float*, const Routes&) override;
  void place_rows(const RouterShape&, const float*, const Routes&) override {}
  void count_choices(const RouterShape&, const Routes&, float*) override {}
  void balance(int, float, const float*, float*) override {}
  void count_choices_of_chunks(const RouterShape&, const Routes&, float*) override {}
  void sum_choices(const RouterShape&, const float*, const ChoiceSums&) override {}
  void route_backward(const RouterShape& shape, float, const float*, const float*, const Routes&,
                      const float*, const float*, float*) override;
  void gather_rows(const RouterShape&, int, const Routes&, const float*, float*) override {}
  void sum_rows(const RouterShape& shape, int width, const Routes&, const float*, float*) override;
  void weigh_rows(const RouterShape& shape, int width, const Routes&, const float*, const float*,
                  float*) override;
  void weigh_rows_backward(const RouterShape& shape, int width, const Routes&, const float*,
                           const float*, const float*, float*, float*) override;
  RunBegins fetch_begins(const std::int32_t*, std::size_t runs, int even) override;
  void expert_linear_forward(const ExpertLinearShape& shape, const std::int32_t*, const float*,
                             const float*, float*) override;
  void expert_linear_backward_input(const ExpertLinearShape& shape, const std::int32_t*,
                                    const float*, const float*, float*) override;
  void expert_linear_backward_weight(const ExpertLinearShape& shape, const RunsOfMember& runs,
                                     const std::int32_t*, const float*, const float*,
                                     float*) override;
  void expert_bias_forward(const ExpertLinearShape& shape, const std::int32_t*, const float*,
                           float*) override;
  void expert_bias_backward_weight(const ExpertLinearShape& shape, const RunsOfMember& runs,
                                   const std::int32_t*, const float*, float*) override;

 private:
  struct Held;

  /// Numbers of 16 bits are a GPU's, and what it takes (exec/devices/cuda/fused_attention.hpp,
  /// exec/devices/cuda/ops/context_ops.cpp, exec/devices/cuda/ops/latent_ops.cpp).
  bool is_gpus() const { return element_ == sizeof(std::uint16_t); }
  template <class Shape>
  bool is_fused(const Shape& shape) const {
    return is_gpus() && shape.is_fusable();
  }
  /// Scratch memory for scores, of which a CPU takes those of a head, a GPU those of so many.
  Buffer take_scores(std::size_t of_head, int samples, int heads) {
    return take(of_head * (is_gpus() ? words(samples) * words(heads) : 1));
  }
  /// A GPU puts each head's keys together.
  Buffer take_keys(const LatentShape& shape) {
    return is_gpus() ? take(words(shape.rows()) * words(shape.query_width())) : Buffer();
  }
  static std::size_t words(int count) { return static_cast<std::size_t>(count); }
  Buffer hold(std::size_t bytes);
  void count(std::size_t n, double operations_each);
  void convolve(const ConvShape& shape);
  Buffer rounded_logits(const LinearShape& shape);

  const std::size_t element_;
  MemoryMeter meter_;
  double operations_ = 0;
};

}  // namespace pipewright::exec
