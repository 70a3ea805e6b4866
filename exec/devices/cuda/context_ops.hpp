// The operators of attention on a GPU where ranks have a part of every sequence each
// (exec/layers/context_ops.hpp): work on a queue's computing stream, in the queue's precision. In
// exact numerics the results have the CPU's bits.
#pragma once

#include "exec/devices/cuda/queue.hpp"
#include "exec/layers/tensor_ops.hpp"

namespace pipewright::exec::cuda {

class QueueContextOps final : public ContextOps {
 public:
  /// Both must outlive it; `ops` are those of the queue.
  QueueContextOps(Queue& queue, TensorOps& ops) : queue_(queue), ops_(ops) {}

  void copy_keys(const ContextShape& shape, const float* qkv, float* keys) override;
  /// In the order of the sequences, [samples][tokens][keys_width]: then the keys that a chunk of
  /// queries sees are one matrix.
  Buffer in_order(const ContextShape& shape, Buffer keys) override;
  void context_attention_forward(const ContextShape& shape, const float* qkv, const float* keys,
                                 float* probabilities, float* context) override;
  void context_attention_backward(const ContextShape& shape, const ContextQueries& queries,
                                  const float* qkv, const float* keys, const float* probabilities,
                                  const float* dcontext, float* dqkv, float* dkeys) override;
  void take_key_gradients(const ContextShape& shape, const float* dkeys, float* dqkv) override;
  void ring_attention_forward(const RingShape& shape, const float* qkv, const float* keys,
                              const RingSums& sums) override;
  void finish_ring_attention(const ContextShape& shape, const RingSums& sums) override;
  void context_products(const ContextShape& shape, const float* context, const float* dcontext,
                        float* products) override;
  void ring_attention_backward(const RingShape& shape, const float* qkv, const float* keys,
                               const RingRows& rows, float* dqkv, float* dkeys) override;
  /// Two arrays in the order of the sequences, one after the other: [samples][tokens] keys and
  /// values, and [samples][tokens][heads] keys with their rotary part.
  Buffer in_order(const ContextLatentShape& shape, Buffer keys) override;
  void context_latent_forward(const ContextLatentShape& shape, const float* queries,
                              const float* keys, float* probabilities, float* context) override;
  void context_latent_backward(const ContextLatentShape& shape, int which, const float* queries,
                               const float* keys, const float* probabilities, const float* dcontext,
                               float* dqueries, float* dkeys) override;

 private:
  Queue& queue_;
  TensorOps& ops_;
};

}  // namespace pipewright::exec::cuda
