// The operators of exec/layers/tensor_ops.hpp on a GPU: work on a queue's computing stream, in the
// queue's precision. In exact numerics the results have the CPU's bits.
#pragma once

#include <functional>
#include <utility>

#include "exec/devices/cuda/context_ops.hpp"
#include "exec/devices/cuda/image_ops.hpp"
#include "exec/devices/cuda/pinned.hpp"
#include "exec/devices/cuda/queue.hpp"
#include "exec/devices/cuda/unwritten_gradients.hpp"
#include "exec/layers/tensor_ops.hpp"

namespace pipewright::exec::cuda {

class QueueOps final : public TensorOps, public LlamaOps, public ExpertOps, public LatentOps {
 public:
  /// Both must outlive it. `between` as Queue::finish() has it, for what waits.
  QueueOps(Queue& queue, UnwrittenGradients& unwritten, std::function<void()> between = {})
      : queue_(queue),
        unwritten_(unwritten),
        images_(queue, unwritten),
        context_(queue, *this),
        between_(std::move(between)) {}

  Buffer take(std::size_t words) override {
    return queue_.memory().take(words * queue_.number_bytes());
  }
  Buffer take_floats(std::size_t words) override { return queue_.memory().take_floats(words); }
  Buffer take_ids(std::size_t words) override { return take_floats(words); }
  using TensorOps::at;
  const float* at(const float* numbers, std::size_t words) const override {
    return reinterpret_cast<const float*>(reinterpret_cast<const std::byte*>(numbers) +
                                          words * queue_.number_bytes());
  }
  void copy(std::size_t words, const float* from, float* to) override;
  void copy_columns(int rows, int width, const float* from, int from_stride, float* to,
                    int to_stride) override;
  void add_to(std::size_t n, const float* x, float* y) override;
  void linear_forward(const LinearShape& shape, const float* x, const float* w, float* y) override;
  void linear_backward_input(const LinearShape& shape, const float* dy, const float* w,
                             float* dx) override;
  void linear_backward_weight(const LinearShape& shape, const float* x, const float* dy,
                              float* dw) override;
  void bias_forward(int rows, int width, const float* bias, float* y) override;
  void bias_backward_weight(int rows, int width, const float* dy, float* dbias) override;
  void biased_linear_forward(const LinearShape& shape, const float* x, const float* w,
                             const float* bias, float* y) override;
  void biased_linear_backward_weight(const LinearShape& shape, const float* x, const float* dy,
                                     float* dw, float* dbias) override;
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
  Buffer take_of_attention(const AttentionShape& shape) override;
  void attention_forward(const AttentionShape& shape, const float* qkv, float* kept,
                         float* context) override;
  void attention_backward_input(const AttentionShape& shape, const float* qkv, const float* kept,
                                const float* context, const float* dcontext, float* dqkv) override;
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
  LlamaOps& llama() override { return *this; }
  ImageOps& images() override { return images_; }
  void embedding_forward(const EmbeddingShape& shape, const std::int32_t* ids, const float* tokens,
                         const float* positions, float* y) override;
  void embedding_backward_weight(const EmbeddingShape& shape, const std::int32_t* ids,
                                 const float* dy, float* dtokens, float* dpositions) override;
  void linear_forward_on(const LinearShape& shape, const float* x, const float* w,
                         float* y) override;
  void linear_backward_input_on(const LinearShape& shape, const Range& columns, const float* dy,
                                const float* w, float* dx) override;
  void add_to_gradient(std::size_t n, const float* x, float* gradient) override;
  void clear(std::size_t n, float* x) override;
  void clear_floats(std::size_t n, float* x) override;
  void look_up(const EmbeddingShape& shape, const TokenRange& own, bool alone,
               const std::int32_t* ids, const float* tokens, float* y) override;
  void add_positions(const EmbeddingShape& shape, const float* positions, float* y) override;
  void look_up_backward_weight(const EmbeddingShape& shape, const TokenRange& own,
                               const std::int32_t* ids, const float* dy, float* dtokens,
                               float* dpositions) override;
  ContextOps& context() override { return context_; }

  LatentOps& latent() override { return *this; }
  Buffer take_of_latent_attention(const LatentShape& shape) override;
  void latent_attention_forward(const LatentShape& shape, const LatentInputs& inputs, float* kept,
                                float* context) override;
  void latent_attention_backward_input(const LatentShape& shape, const LatentInputs& inputs,
                                       const float* kept, const float* context,
                                       const float* dcontext,
                                       const LatentGradients& gradients) override;
  void add_heads(int rows, int heads, int width, const float* by_head, float* y) override;

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
  Buffer rounded_logits(const LinearShape& shape, const float* dlogits);
  Buffer take_counts(const RouterShape& shape, int chunks);
  void count_choices(const RouterShape& shape, const Routes& routes, int chunks, bool adds,
                     float* counts);
  void clear_behind_runs(const ExpertLinearShape& shape, const std::int32_t* begin, int width,
                         float* rows);
  /// y = x · w.
  static pipewright_cuda_gemm forward_product(const LinearShape& shape, const float* x,
                                              const float* w, float* y);
  /// dx = dy · w, transposed.
  static pipewright_cuda_gemm input_product(const LinearShape& shape, const float* dy,
                                            const float* w, float* dx);
  /// Adds x · dy to dw.
  pipewright_cuda_gemm weight_product(const LinearShape& shape, const float* x, const float* dy,
                                      float* dw);
  bool begins(float* gradient, std::size_t words);

  Queue& queue_;
  UnwrittenGradients& unwritten_;
  QueueImageOps images_;
  QueueContextOps context_;
  const std::function<void()> between_;
  Pinned<std::int32_t> fetched_;  // of fetch_begins()
};

/// For kernels of positions.
pipewright_cuda_places places_of(const EmbeddingShape& shape);

}  // namespace pipewright::exec::cuda
