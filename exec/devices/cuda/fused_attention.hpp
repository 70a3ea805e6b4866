// Attention of a queue's computing stream that keeps no squares of scores: the table's
// (exec/devices/cuda/module_api.h), made for each shape when it is first asked for. One thread at a
// time.
#pragma once

#include <cstdint>
#include <vector>

#include "exec/devices/cuda/module.hpp"
#include "exec/layers/latent_ops.hpp"
#include "exec/layers/ops.hpp"

namespace pipewright::exec::cuda {

class FusedAttention {
 public:
  struct Made {
    pipewright_cuda_attention shape;
    void* attention = nullptr;  // null: the table has none for the shape
    void* workspace = nullptr;
  };

  /// `stream` must outlive it. `sms`: those that the stream has, 0: all of the GPU's.
  FusedAttention(const pipewright_cuda& cuda, void* stream, int sms)
      : cuda_(cuda), stream_(stream), sms_(sms) {}
  ~FusedAttention();
  FusedAttention(const FusedAttention&) = delete;
  FusedAttention& operator=(const FusedAttention&) = delete;

  /// Null where there is none. Of rows of bfloat16: queries, keys and values side by side; of
  /// latent attention queries, keys put together, and values beside keys. Takes memory of the
  /// entered GPU.
  const Made* of(const AttentionShape& shape);
  const Made* of(const LatentShape& shape);
  /// Of all that were made.
  std::int64_t workspace_bytes() const { return workspace_bytes_; }

 private:
  const Made* of(const pipewright_cuda_attention& shape);
  Made make(const pipewright_cuda_attention& shape);

  const pipewright_cuda& cuda_;
  void* const stream_;
  const int sms_;
  std::vector<Made> made_;
  std::int64_t workspace_bytes_ = 0;
};

}  // namespace pipewright::exec::cuda
