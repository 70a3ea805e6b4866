#include "exec/devices/cuda/fused_attention.hpp"

#include <algorithm>

namespace pipewright::exec::cuda {

FusedAttention::~FusedAttention() {
  for (const Made& one : made_) {
    if (one.workspace != nullptr) cuda_.release(one.workspace);
    if (one.attention != nullptr) cuda_.release_attention(one.attention);
  }
}

const FusedAttention::Made* FusedAttention::of(const AttentionShape& shape) {
  if (cuda_.attention_is_there == nullptr || !shape.is_fusable()) return nullptr;
  auto found =
      std::find_if(made_.begin(), made_.end(), [&](const Made& one) { return one.shape == shape; });
  if (found == made_.end()) found = made_.insert(found, make(shape));
  return found->attention == nullptr ? nullptr : &*found;
}

FusedAttention::Made FusedAttention::make(const AttentionShape& shape) {
  Made made{shape};
  if (cuda_.attention_is_there() != 0) return made;
  const pipewright_cuda_attention what{shape.samples, shape.sequence, shape.heads,
                                       shape.key_heads(), shape.head_width()};
  made.attention = cuda_.attention(stream_, sms_, &what);
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
