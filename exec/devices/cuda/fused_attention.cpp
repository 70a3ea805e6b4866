#include "exec/devices/cuda/fused_attention.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace pipewright::exec::cuda {
namespace {

bool are_alike(const pipewright_cuda_attention& a, const pipewright_cuda_attention& b) {
  static_assert(std::has_unique_object_representations_v<pipewright_cuda_attention>);
  return std::memcmp(&a, &b, sizeof a) == 0;
}

}  // namespace

FusedAttention::~FusedAttention() {
  for (const Made& one : made_) {
    if (one.workspace != nullptr) cuda_.release(one.workspace);
    if (one.attention != nullptr) cuda_.release_attention(one.attention);
  }
}

const FusedAttention::Made* FusedAttention::of(const AttentionShape& s) {
  if (!s.is_fusable()) return nullptr;
  const int width = s.head_width();
  const pipewright_cuda_heads in_rows{s.qkv_width(), width};
  return of(pipewright_cuda_attention{s.samples, s.sequence, s.heads, s.key_heads(), width, width,
                                      in_rows, in_rows, in_rows});
}

const FusedAttention::Made* FusedAttention::of(const LatentShape& s) {
  if (!s.is_fusable()) return nullptr;
  const int query = s.widths.query(), value = s.widths.value;
  const pipewright_cuda_heads in_queries{s.query_width(), query};
  return of(pipewright_cuda_attention{s.samples,
                                      s.sequence,
                                      s.heads,
                                      s.heads,
                                      query,
                                      value,
                                      in_queries,
                                      in_queries,
                                      {s.key_value_width(), s.widths.plain + value}});
}

const FusedAttention::Made* FusedAttention::of(const pipewright_cuda_attention& shape) {
  if (cuda_.attention_is_there == nullptr) return nullptr;
  auto found = std::find_if(made_.begin(), made_.end(),
                            [&](const Made& one) { return are_alike(one.shape, shape); });
  if (found == made_.end()) found = made_.insert(found, make(shape));
  return found->attention == nullptr ? nullptr : &*found;
}

FusedAttention::Made FusedAttention::make(const pipewright_cuda_attention& shape) {
  Made made{shape};
  if (cuda_.attention_is_there() != 0) return made;
  made.attention = cuda_.attention(stream_, sms_, &shape);
  if (made.attention == nullptr) return made;
  const std::size_t bytes = cuda_.attention_workspace(made.attention);
  if (bytes == 0) return made;
  made.workspace = cuda_.allocate(bytes);
  if (made.workspace == nullptr) {
    cuda_.release_attention(made.attention);
    require(cuda_, 1);
  }
  workspace_bytes_ += static_cast<std::int64_t>(bytes);
  return made;
}

}  // namespace pipewright::exec::cuda
