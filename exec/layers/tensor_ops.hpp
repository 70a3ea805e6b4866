// The seam between layers and devices: where the arrays of a layer lie, and what computes on them.
// The layers are written once on top of it; each device has its own (exec/devices/cpu/host_ops.hpp,
// exec/devices/cuda/queue_ops.hpp). The operators are those of exec/layers/ops.hpp,
// exec/layers/image_ops.hpp, exec/layers/expert_ops.hpp, exec/layers/latent_ops.hpp and
// exec/layers/context_ops.hpp and exec/layers/ring_ops.hpp, which say what each computes, and by
// what layouts; how exactly, and with which scratch memory, is the device's affair. All pointers
// are the device's own: float* of activations leads to the numbers that it keeps these in, which
// may be narrower (exec/devices/cuda). A call may only enqueue the work: whoever calls sees results
// in the order of the calls, and reads none of them (but for a user's own layers, which are the
// CPU's alone so far). One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/model/tensor_split.hpp"
#include "exec/base/buffer.hpp"
#include "exec/layers/context_ops.hpp"
#include "exec/layers/expert_ops.hpp"
#include "exec/layers/image_ops.hpp"
#include "exec/layers/latent_ops.hpp"
#include "exec/layers/ops.hpp"
#include "exec/layers/ring_ops.hpp"

namespace pipewright::exec {

/// What graphs and the layers of images need besides.
class ImageOps {
 public:
  virtual ~ImageOps() = default;

  /// y += factor · x, rounded twice; and y[0] += 1.
  virtual void add_scaled(std::size_t n, float factor, const float* x, float* y) = 0;
  virtual void add_one(float* y) = 0;
  virtual void move_statistics(const StatisticsMove& move) = 0;
  virtual void conv2d_forward(const ConvShape& shape, const float* x, const float* w, float* y) = 0;
  virtual void conv2d_backward_input(const ConvShape& shape, const float* dy, const float* w,
                                     float* dx) = 0;
  virtual void conv2d_backward_weight(const ConvShape& shape, const float* x, const float* dy,
                                      float* dw) = 0;
  virtual void channel_bias_forward(const ChannelShape& shape, const float* bias, float* y) = 0;
  virtual void channel_bias_backward_weight(const ChannelShape& shape, const float* dy,
                                            float* dbias) = 0;
  virtual void batch_statistics(const ChannelShape& shape, const float* x, float* mean,
                                float* variance) = 0;
  virtual void batch_norm_forward(const ChannelShape& shape, const float* x, const float* mean,
                                  const float* variance, const float* scale, const float* shift,
                                  float* y) = 0;
  virtual void batch_norm_backward_input(const ChannelShape& shape, const float* x,
                                         const float* mean, const float* variance,
                                         const float* scale, const float* dy, float* dx,
                                         float* dscale, float* dshift) = 0;
  virtual void max_pool_forward(const PoolShape& shape, const float* x, float* y,
                                std::int32_t* places) = 0;
  virtual void max_pool_backward_input(const PoolShape& shape, const std::int32_t* places,
                                       const float* dy, float* dx) = 0;
  virtual void average_pool_forward(const PoolShape& shape, const float* x, float* y) = 0;
  virtual void average_pool_backward_input(const PoolShape& shape, const float* dy, float* dx) = 0;
  virtual void global_average_pool_forward(const ChannelShape& shape, const float* x, float* y) = 0;
  virtual void global_average_pool_backward_input(const ChannelShape& shape, const float* dy,
                                                  float* dx) = 0;
};

/// What layers of Llama's style need besides.
class LlamaOps {
 public:
  virtual ~LlamaOps() = default;

  virtual void rms_norm_forward(const NormShape& shape, const float* x, const float* scale,
                                float* y, float* inverse_root) = 0;
  virtual void rms_norm_backward_input(const NormShape& shape, const float* x,
                                       const float* inverse_root, const float* scale,
                                       const float* dy, float* dx) = 0;
  virtual void rms_norm_backward_weight(const NormShape& shape, const float* x,
                                        const float* inverse_root, const float* dy,
                                        float* dscale) = 0;
  virtual void swiglu_forward(int rows, int width, const float* x, float* y) = 0;
  virtual void swiglu_backward_input(int rows, int width, const float* x, const float* dy,
                                     float* dx) = 0;
  virtual void rotate(const RotaryShape& shape, bool back, float* rows) = 0;
};

/// What mixtures of experts need besides.
class ExpertOps {
 public:
  virtual ~ExpertOps() = default;

  /// Logits, and their gradient, are floats of 4 bytes (TensorOps::take_floats()), as are counts
  /// and the weights of chosen experts: rounded any more, too many logits would be equal. bias and
  /// dbias may be null.
  virtual void router_forward(const LinearShape& shape, const float* x, const float* w,
                              const float* bias, float* logits) = 0;
  virtual void router_backward_input(const LinearShape& shape, const float* dlogits, const float* w,
                                     float* dx) = 0;
  virtual void router_backward_weight(const LinearShape& shape, const float* x,
                                      const float* dlogits, float* dw, float* dbias) = 0;
  virtual void route(const RouterShape& shape, const float* logits, const float* bias,
                     float* weights, const Routes& routes) = 0;
  virtual void place_rows(const RouterShape& shape, const float* earlier, const Routes& routes) = 0;
  virtual void count_choices(const RouterShape& shape, const Routes& routes, float* counts) = 0;
  virtual void balance(int experts, float rate, const float* counts, float* bias) = 0;
  virtual void count_choices_of_chunks(const RouterShape& shape, const Routes& routes,
                                       float* counts) = 0;
  virtual void sum_choices(const RouterShape& shape, const float* counts,
                           const ChoiceSums& sums) = 0;
  virtual void route_backward(const RouterShape& shape, float share, const float* logits,
                              const float* weights, const Routes& routes, const float* choices,
                              const float* dweights, float* dlogits) = 0;
  virtual void gather_rows(const RouterShape& shape, int width, const Routes& routes,
                           const float* x, float* gathered) = 0;
  virtual void sum_rows(const RouterShape& shape, int width, const Routes& routes,
                        const float* gathered, float* x) = 0;
  virtual void weigh_rows(const RouterShape& shape, int width, const Routes& routes,
                          const float* weights, const float* z, float* y) = 0;
  virtual void weigh_rows_backward(const RouterShape& shape, int width, const Routes& routes,
                                   const float* weights, const float* dy, const float* z, float* dz,
                                   float* dweights) = 0;
  /// Routes::begin, brought to the host, which waits for it: so many runs. `even`: the rows of all
  /// together, for a device that only counts: it divides them evenly.
  virtual RunBegins fetch_begins(const std::int32_t* begin, std::size_t runs, int even) = 0;
  /// `begin` of these: on the host (RunBegins).
  virtual void expert_linear_forward(const ExpertLinearShape& shape, const std::int32_t* begin,
                                     const float* x, const float* w, float* y) = 0;
  virtual void expert_linear_backward_input(const ExpertLinearShape& shape,
                                            const std::int32_t* begin, const float* dy,
                                            const float* w, float* dx) = 0;
  virtual void expert_linear_backward_weight(const ExpertLinearShape& shape,
                                             const RunsOfMember& runs, const std::int32_t* begin,
                                             const float* x, const float* dy, float* dw) = 0;
  virtual void expert_bias_forward(const ExpertLinearShape& shape, const std::int32_t* begin,
                                   const float* bias, float* y) = 0;
  virtual void expert_bias_backward_weight(const ExpertLinearShape& shape, const RunsOfMember& runs,
                                           const std::int32_t* begin, const float* dy,
                                           float* dbias) = 0;
};

/// What latent attention needs besides.
class LatentOps {
 public:
  virtual ~LatentOps() = default;

  /// As TensorOps::take_of_attention().
  virtual Buffer take_of_latent_attention(const LatentShape& shape) = 0;
  virtual void latent_attention_forward(const LatentShape& shape, const LatentInputs& inputs,
                                        float* kept, float* context) = 0;
  virtual void latent_attention_backward_input(const LatentShape& shape, const LatentInputs& inputs,
                                               const float* kept, const float* context,
                                               const float* dcontext,
                                               const LatentGradients& gradients) = 0;
  virtual void add_heads(int rows, int heads, int width, const float* by_head, float* y) = 0;
};

/// What attention needs besides where ranks have a part of every sequence each.
class ContextOps {
 public:
  virtual ~ContextOps() = default;

  virtual void copy_keys(const ContextShape& shape, const float* qkv, float* keys) = 0;
  /// Those of all ranks, [parts][own rows][keys_width], as this device's attention takes them: so,
  /// or in whatever order it likes better.
  virtual Buffer in_order(const ContextShape&, Buffer keys) { return keys; }
  /// The same of latent attention's.
  virtual Buffer in_order(const ContextLatentShape&, Buffer keys) { return keys; }
  virtual void context_attention_forward(const ContextShape& shape, const float* qkv,
                                         const float* keys, float* probabilities,
                                         float* context) = 0;
  virtual void context_attention_backward(const ContextShape& shape, const ContextQueries& queries,
                                          const float* qkv, const float* keys,
                                          const float* probabilities, const float* dcontext,
                                          float* dqkv, float* dkeys) = 0;
  virtual void take_key_gradients(const ContextShape& shape, const float* dkeys, float* dqkv) = 0;
  virtual void context_latent_forward(const ContextLatentShape& shape, const float* queries,
                                      const float* keys, float* probabilities, float* context) = 0;
  virtual void context_latent_backward(const ContextLatentShape& shape, int which,
                                       const float* queries, const float* keys,
                                       const float* probabilities, const float* dcontext,
                                       float* dqueries, float* dkeys) = 0;
  virtual void ring_attention_forward(const RingShape& shape, const float* qkv, const float* keys,
                                      const RingSums& sums) = 0;
  virtual void finish_ring_attention(const ContextShape& shape, const RingSums& sums) = 0;
  virtual void context_products(const ContextShape& shape, const float* context,
                                const float* dcontext, float* products) = 0;
  virtual void ring_attention_backward(const RingShape& shape, const float* qkv, const float* keys,
                                       const RingRows& rows, float* dqkv, float* dkeys) = 0;
};

class TensorOps {
 public:
  virtual ~TensorOps() = default;

  /// `words` numbers with undefined content, each as wide as the device keeps activations.
  virtual Buffer take(std::size_t words) = 0;
  /// The same of 4 bytes each, where a device makes a difference: what a norm keeps of its rows.
  virtual Buffer take_floats(std::size_t words) { return take(words); }
  /// `words` 4-byte whole numbers, likewise.
  virtual Buffer take_ids(std::size_t words) { return take(words); }
  /// Where number `words` of such an array lies.
  virtual const float* at(const float* numbers, std::size_t words) const { return numbers + words; }
  float* at(float* numbers, std::size_t words) const {
    return const_cast<float*>(at(static_cast<const float*>(numbers), words));
  }
  virtual void copy(std::size_t words, const float* from, float* to) = 0;
  /// Of `rows` rows the first `width` numbers; rows begin so many numbers apart.
  virtual void copy_columns(int rows, int width, const float* from, int from_stride, float* to,
                            int to_stride) = 0;
  /// y += x.
  virtual void add_to(std::size_t n, const float* x, float* y) = 0;

  // x[rows][in], w[in][out], y[rows][out].
  virtual void linear_forward(const LinearShape& shape, const float* x, const float* w,
                              float* y) = 0;
  virtual void linear_backward_input(const LinearShape& shape, const float* dy, const float* w,
                                     float* dx) = 0;
  virtual void linear_backward_weight(const LinearShape& shape, const float* x, const float* dy,
                                      float* dw) = 0;
  /// Go on with the chains of multiply-adds that another rank has begun, y and dx, in exact
  /// numerics: over x and w, or over these columns of dy and w. Bug where a device does not.
  virtual void linear_forward_on(const LinearShape& shape, const float* x, const float* w,
                                 float* y);
  virtual void linear_backward_input_on(const LinearShape& shape, const Range& columns,
                                        const float* dy, const float* w, float* dx);
  /// Zeros, in an array that others only add to. Bug where a device does not.
  virtual void clear(std::size_t n, float* x);
  /// The same of take_floats().
  virtual void clear_floats(std::size_t n, float* x) { clear(n, x); }
  /// gradient += x, both floats of 4 bytes.
  virtual void add_to_gradient(std::size_t n, const float* x, float* gradient) {
    add_to(n, x, gradient);
  }
  virtual void bias_forward(int rows, int width, const float* bias, float* y) = 0;
  virtual void bias_backward_weight(int rows, int width, const float* dy, float* dbias) = 0;

  /// linear_forward() and bias_forward(); linear_backward_weight() and bias_backward_weight().
  virtual void biased_linear_forward(const LinearShape& shape, const float* x, const float* w,
                                     const float* bias, float* y);
  virtual void biased_linear_backward_weight(const LinearShape& shape, const float* x,
                                             const float* dy, float* dw, float* dbias);

  virtual void relu_forward(std::size_t n, const float* x, float* y) = 0;
  virtual void relu_backward_input(std::size_t n, const float* y, const float* dy, float* dx) = 0;
  virtual void gelu_forward(std::size_t n, const float* x, float* y) = 0;
  virtual void gelu_backward_input(std::size_t n, const float* x, const float* dy, float* dx) = 0;

  virtual void layer_norm_forward(const NormShape& shape, const float* x, const float* scale,
                                  const float* shift, float* y, float* mean,
                                  float* inverse_deviation) = 0;
  virtual void layer_norm_backward_input(const NormShape& shape, const float* x, const float* mean,
                                         const float* inverse_deviation, const float* scale,
                                         const float* dy, float* dx) = 0;
  virtual void layer_norm_backward_weight(const NormShape& shape, const float* x, const float* mean,
                                          const float* inverse_deviation, const float* dy,
                                          float* dscale, float* dshift) = 0;

  /// For what F of attention keeps: probabilities, or where a device needs no squares, log sums.
  virtual Buffer take_of_attention(const AttentionShape& shape) {
    return take(shape.probabilities());
  }
  virtual void attention_forward(const AttentionShape& shape, const float* qkv, float* kept,
                                 float* context) = 0;
  virtual void attention_backward_input(const AttentionShape& shape, const float* qkv,
                                        const float* kept, const float* context,
                                        const float* dcontext, float* dqkv) = 0;

  virtual void embedding_forward(const EmbeddingShape& shape, const std::int32_t* ids,
                                 const float* tokens, const float* positions, float* y) = 0;
  virtual void embedding_backward_weight(const EmbeddingShape& shape, const std::int32_t* ids,
                                         const float* dy, float* dtokens, float* dpositions) = 0;
  /// Where ranks divide the table. Bug where a device does not.
  virtual void look_up(const EmbeddingShape& shape, const TokenRange& own, bool alone,
                       const std::int32_t* ids, const float* tokens, float* y);
  virtual void add_positions(const EmbeddingShape& shape, const float* positions, float* y);
  virtual void look_up_backward_weight(const EmbeddingShape& shape, const TokenRange& own,
                                       const std::int32_t* ids, const float* dy, float* dtokens,
                                       float* dpositions);

  /// Each throws Bug where the device has none: it refuses such models before it makes their
  /// layers.
  virtual ImageOps& images();
  virtual LlamaOps& llama();
  virtual ExpertOps& experts();
  virtual LatentOps& latent();
  virtual ContextOps& context();
};

}  // namespace pipewright::exec
