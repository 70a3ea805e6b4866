// Causal self-attention with its projections on a GPU: all heads of all samples in one batch of
// products. The same products as exec/devices/cpu/kernels/attention.cpp, with the same chains in
// exact numerics.
#include <cmath>
#include <utility>

#include "exec/devices/cuda/layer.hpp"
#include "exec/layers/ops.hpp"

namespace pipewright::exec::cuda {
namespace {

/// Where the heads' matrices lie; exec/layers/ops.hpp has the layouts.
class Heads {
 public:
  explicit Heads(const AttentionShape& shape) : s_(shape) {}

  /// Queries (0), keys (1) or values (2) in rows of 3 · width.
  pipewright_cuda_matrix projected(const float* qkv, int which, bool transposed = false) const {
    return {qkv + which * s_.width, 3 * s_.width, transposed ? 1 : 0, 3 * of_sample(),
            s_.head_width()};
  }
  pipewright_cuda_matrix square(const float* scores, bool transposed = false) const {
    return {scores, s_.sequence, transposed ? 1 : 0, s_.heads * of_square(), of_square()};
  }
  pipewright_cuda_matrix context(const float* rows) const {
    return {rows, s_.width, 0, of_sample(), s_.head_width()};
  }
  /// c lies like `like`, whose own pointer says where.
  pipewright_cuda_gemm product(int n, int k, float alpha, const pipewright_cuda_matrix& a,
                               const pipewright_cuda_matrix& b, float* c,
                               const pipewright_cuda_matrix& like) const {
    return {s_.sequence, n, k, s_.samples,  s_.heads,        alpha,          0.0F,
            a,           b, c, like.stride, like.outer_step, like.inner_step};
  }

 private:
  std::int64_t of_sample() const { return static_cast<std::int64_t>(s_.sequence) * s_.width; }
  std::int64_t of_square() const { return static_cast<std::int64_t>(s_.sequence) * s_.sequence; }

  const AttentionShape s_;
};

class AttentionLayer final : public DeviceLayer {
 public:
  AttentionLayer(const Layer& layer, const DeviceSite& site)
      : shape_{site.extent.samples, site.extent.sequence, site.width, layer.heads},
        heads_(shape_),
        words_(site.extent.words(site.width)),
        queue_(*site.queue),
        recomputes_(site.recomputes_attention),
        qkv_(site, "qkv_", site.width, 3 * site.width, true),
        output_(site, "output_", site.width, site.width, true) {}

  Saved new_saved() const override { return {std::vector<Buffer>(kSlots), {}}; }

  Buffer forward(Buffer x, Saved& saved) override {
    Buffer qkv = queue_.memory().take_floats(3 * words_);
    qkv_.forward(shape_.rows(), x.floats(), qkv.floats());
    saved.buffers[kQkv] = std::move(qkv);
    attend(saved);
    Buffer y = queue_.memory().take_floats(words_);
    output_.forward(shape_.rows(), saved.buffers[kContext].floats(), y.floats());
    saved.buffers[kX] = std::move(x);
    if (recomputes_) {
      saved.buffers[kProbabilities].reset();
      saved.buffers[kContext].reset();
    }
    return y;
  }

  Buffer backward_input(Buffer dy, Saved& saved, bool wanted) override {
    if (recomputes_) attend(saved);
    Buffer dcontext = queue_.memory().take_floats(words_);
    output_.backward_input(shape_.rows(), dy.floats(), dcontext.floats());
    Buffer dqkv = queue_.memory().take_floats(3 * words_);
    attend_backward(saved, dcontext.floats(), dqkv.floats());
    saved.buffers[kQkv].reset();
    saved.buffers[kProbabilities].reset();
    Buffer dx;
    if (wanted) {
      dx = std::move(dcontext);
      qkv_.backward_input(shape_.rows(), dqkv.floats(), dx.floats());
    }
    saved.buffers[kDqkv] = std::move(dqkv);
    saved.buffers[kDy] = std::move(dy);
    return dx;
  }

  void backward_weight(Saved& saved) override {
    qkv_.backward_weight(shape_.rows(), saved.buffers[kX].floats(), saved.buffers[kDqkv].floats());
    output_.backward_weight(shape_.rows(), saved.buffers[kContext].floats(),
                            saved.buffers[kDy].floats());
    for (Buffer& buffer : saved.buffers) buffer.reset();
  }

 private:
  int squares() const { return shape_.samples * shape_.heads; }
  float scale() const { return 1.0F / std::sqrt(static_cast<float>(shape_.head_width())); }

  void attend(Saved& saved) {
    saved.buffers[kProbabilities] = queue_.memory().take_floats(shape_.probabilities());
    saved.buffers[kContext] = queue_.memory().take_floats(words_);
    const float* qkv = saved.buffers[kQkv].floats();
    float* p = saved.buffers[kProbabilities].floats();
    float* context = saved.buffers[kContext].floats();
    const int t = shape_.sequence, d = shape_.head_width();
    queue_.multiply(heads_.product(t, d, scale(), heads_.projected(qkv, 0),
                                   heads_.projected(qkv, 1, true), p, heads_.square(p)));
    queue_.run(queue_.kernels().causal_softmax_forward, squares(), t, p);
    queue_.multiply(heads_.product(d, t, 1.0F, heads_.square(p), heads_.projected(qkv, 2), context,
                                   heads_.context(context)));
  }

  void attend_backward(const Saved& saved, const float* dcontext, float* dqkv) {
    const float* qkv = saved.buffers[kQkv].floats();
    const float* p = saved.buffers[kProbabilities].floats();
    const Buffer scores = queue_.memory().take_floats(shape_.probabilities());
    float* const d_scores = scores.floats();
    const int t = shape_.sequence, d = shape_.head_width();
    const auto into = [&](int which, float alpha, const pipewright_cuda_matrix& a,
                          const pipewright_cuda_matrix& b) {
      queue_.multiply(heads_.product(d, t, alpha, a, b, dqkv + which * shape_.width,
                                     heads_.projected(dqkv, which)));
    };
    into(2, 1.0F, heads_.square(p, true), heads_.context(dcontext));
    queue_.multiply(heads_.product(t, d, 1.0F, heads_.context(dcontext),
                                   heads_.projected(qkv, 2, true), d_scores,
                                   heads_.square(d_scores)));
    queue_.run(queue_.kernels().causal_softmax_backward_input, squares(), t, p, d_scores);
    into(0, scale(), heads_.square(d_scores), heads_.projected(qkv, 1));
    into(1, scale(), heads_.square(d_scores, true), heads_.projected(qkv, 0));
  }

  enum Slot { kX, kQkv, kProbabilities, kContext, kDqkv, kDy, kSlots };

  AttentionShape shape_;
  Heads heads_;
  std::size_t words_;
  Queue& queue_;
  bool recomputes_;
  DeviceProjection qkv_, output_;
};

}  // namespace

std::unique_ptr<DeviceLayer> make_device_attention(const Layer& layer, const DeviceSite& site) {
  return std::make_unique<AttentionLayer>(layer, site);
}

}  // namespace pipewright::exec::cuda
