#include "exec/layers/metered_ops.hpp"

namespace pipewright::exec {
namespace {

// Operations per element of what is not a matrix product (docs/metrics.md).
constexpr double kGeluBackward = 13;
constexpr double kNormForward = 8, kNormInputGradient = 9, kNormWeightGradient = 3;
constexpr double kRmsForward = 4, kRmsInputGradient = 7, kRmsWeightGradient = 3;
constexpr double kSwigluForward = 5, kSwigluBackward = 11;
constexpr double kRotation = 3;
constexpr double kBatchStatistics = 3, kBatchNormForward = 4, kBatchNormBackward = 10;
constexpr double kSoftmaxForward = 5, kSoftmaxBackward = 4;
constexpr double kRouterBackward = kSoftmaxForward + kSoftmaxBackward + 2;  // and its two losses

double product(double a, double b, double c = 1, double d = 1) { return a * b * c * d; }

/// A multiply-add for each weight and row.
double product_of(const LinearShape& shape) { return 2 * product(shape.rows, shape.in, shape.out); }

/// The scores of all pairs of rows of a sample, or their use: a multiply-add for each column.
double pairs_of(const AttentionShape& shape) {
  return 2 * product(shape.samples, shape.sequence, shape.sequence, shape.width);
}

double pairs_of(const LatentShape& shape) {
  return product(shape.samples, shape.sequence, shape.sequence,
                 shape.query_width() + shape.context_width());
}
/// Of all heads, in so many rows of scores.
double pairs_of(const ContextLatentShape& shape, double scores) {
  return product(shape.own.samples, shape.own.query_width() + shape.own.context_width(), scores);
}

/// Of all heads, in so many rows of scores.
double pairs_of(const ContextShape& shape, double scores) {
  return 2 * product(shape.own.samples, shape.own.width, scores);
}

/// The logits.
double elements_of(const RouterShape& shape) { return product(shape.rows, shape.choice.experts); }
/// Of the rows that experts take.
double elements_of(const RouterShape& shape, int width) {
  return product(even_rows(shape.choice, shape.rows, shape.place.parts()), width);
}
double product_of(const ExpertLinearShape& shape) {
  return 2 * product(shape.taken, shape.in, shape.out);
}
/// The part of an expert's rows that is in these runs.
double share_of(const ExpertLinearShape& shape, const RunsOfMember& runs) {
  return 1.0 /
         (runs.chunk == RunsOfMember::kAllChunks ? shape.members : shape.members * shape.chunks);
}
double elements_of(const NormShape& shape) { return product(shape.rows, shape.width); }
double elements_of(const EmbeddingShape& shape) { return product(shape.rows, shape.width); }
double elements_of(const ChannelShape& shape) {
  return product(shape.images, shape.channels, shape.pixels);
}
double elements_after(const PoolShape& shape) {
  return product(shape.images, shape.out().numbers());
}
double places_of(const PoolShape& shape) {
  return product(elements_after(shape), shape.window.size, shape.window.size);
}

}  // namespace

struct MeteredOps::Held final : Block {
  MemoryMeter* meter = nullptr;

  void come_back() noexcept override {
    meter->add(-static_cast<std::int64_t>(bytes));
    delete this;
  }
};

Buffer MeteredOps::hold(std::size_t bytes) {
  auto* const held = new Held;
  held->at = held;  // nobody reads it, but layers add to it
  held->bytes = bytes;
  held->meter = &meter_;
  meter_.add(static_cast<std::int64_t>(bytes));
  return Buffer(*held);
}

void MeteredOps::count(std::size_t n, double operations_each) {
  operations_ += static_cast<double>(n) * operations_each;
}

void MeteredOps::linear_forward(const LinearShape& shape, const float*, const float*, float*) {
  count(product_of(shape));
}
void MeteredOps::linear_backward_input(const LinearShape& shape, const float*, const float*,
                                       float*) {
  count(product_of(shape));
}
void MeteredOps::linear_backward_weight(const LinearShape& shape, const float*, const float*,
                                        float*) {
  count(product_of(shape));
}
void MeteredOps::bias_forward(int rows, int width, const float*, float*) {
  count(product(rows, width));
}
void MeteredOps::bias_backward_weight(int rows, int width, const float*, float*) {
  count(product(rows, width));
}

void MeteredOps::relu_backward_input(std::size_t n, const float*, const float*, float*) {
  count(n, 1);
}
void MeteredOps::gelu_backward_input(std::size_t n, const float*, const float*, float*) {
  count(n, kGeluBackward);
}

void MeteredOps::layer_norm_forward(const NormShape& shape, const float*, const float*,
                                    const float*, float*, float*, float*) {
  count(kNormForward * elements_of(shape));
}
void MeteredOps::layer_norm_backward_input(const NormShape& shape, const float*, const float*,
                                           const float*, const float*, const float*, float*) {
  count(kNormInputGradient * elements_of(shape));
}
void MeteredOps::layer_norm_backward_weight(const NormShape& shape, const float*, const float*,
                                            const float*, const float*, float*, float*) {
  count(kNormWeightGradient * elements_of(shape));
}

void MeteredOps::rms_norm_forward(const NormShape& shape, const float*, const float*, float*,
                                  float*) {
  count(kRmsForward * elements_of(shape));
}
void MeteredOps::rms_norm_backward_input(const NormShape& shape, const float*, const float*,
                                         const float*, const float*, float*) {
  count(kRmsInputGradient * elements_of(shape));
}
void MeteredOps::rms_norm_backward_weight(const NormShape& shape, const float*, const float*,
                                          const float*, float*) {
  count(kRmsWeightGradient * elements_of(shape));
}

void MeteredOps::swiglu_forward(int rows, int width, const float*, float*) {
  count(kSwigluForward * product(rows, width));
}
void MeteredOps::swiglu_backward_input(int rows, int width, const float*, const float*, float*) {
  count(kSwigluBackward * product(rows, width));
}

void MeteredOps::rotate(const RotaryShape& shape, bool, float*) {
  const Buffer scratch = take(shape.scratch());
  count(kRotation * product(shape.samples, shape.sequence, shape.heads, shape.head_width));
}

void MeteredOps::attention_forward(const AttentionShape& shape, const float*, float*, float*) {
  count(2 * pairs_of(shape) + kSoftmaxForward * static_cast<double>(shape.probabilities()));
}
Buffer MeteredOps::take_of_attention(const AttentionShape& shape) {
  return is_fused(shape) ? take_floats(shape.log_sums()) : take(shape.probabilities());
}
void MeteredOps::attention_backward_input(const AttentionShape& shape, const float*, const float*,
                                          const float*, const float*, float*) {
  const Buffer scratch = is_fused(shape) ? Buffer() : take(shape.scratch());
  count(4 * pairs_of(shape) + kSoftmaxBackward * static_cast<double>(shape.probabilities()));
}

Buffer MeteredOps::take_of_latent_attention(const LatentShape& shape) {
  return is_fused(shape) ? take_floats(shape.log_sums()) : take(shape.probabilities());
}
void MeteredOps::latent_attention_forward(const LatentShape& shape, const LatentInputs&, float*,
                                          float*) {
  const Buffer keys = take_keys(shape);
  const auto scores = static_cast<double>(shape.probabilities());
  count(2 * pairs_of(shape) + (1 + kSoftmaxForward) * scores);
}
void MeteredOps::latent_attention_backward_input(const LatentShape& shape, const LatentInputs&,
                                                 const float*, const float*, const float*,
                                                 const LatentGradients&) {
  const Buffer keys = take_keys(shape);
  const Buffer scratch =
      is_fused(shape) ? take_keys(shape) : take_scores(shape.scratch(), shape.samples, shape.heads);
  count(4 * pairs_of(shape) + kSoftmaxBackward * static_cast<double>(shape.probabilities()));
}
void MeteredOps::add_heads(int rows, int heads, int width, const float*, float*) {
  count(product(rows, heads, width));
}

void MeteredOps::context_attention_forward(const ContextShape& shape, const float*, const float*,
                                           float*, float*) {
  count(2 * pairs_of(shape, static_cast<double>(shape.of_head())) +
        kSoftmaxForward * static_cast<double>(shape.probabilities()));
}
/// A GPU makes a copy.
Buffer MeteredOps::in_order(const ContextShape& shape, Buffer keys) {
  return is_gpus() ? take(shape.all_keys()) : keys;
}
Buffer MeteredOps::in_order(const ContextLatentShape& shape, Buffer keys) {
  if (!is_gpus()) return keys;
  Buffer ordered = take(shape.of_all(shape.own.key_value_width() + shape.own.query_width()));
  const Buffer rotary = take(shape.of_all(shape.own.widths.rotary));
  return ordered;
}
/// Of a chunk's scores, and of one of those heads that share keys.
void MeteredOps::context_attention_backward(const ContextShape& shape,
                                            const ContextQueries& queries, const float*,
                                            const float*, const float*, const float*, float*,
                                            float*) {
  const std::size_t of_head = is_gpus() ? shape.chunks().scores(queries.which) : shape.scratch();
  const Buffer scratch = take_scores(of_head, shape.own.samples, shape.own.key_heads());
  const double scores = product(shape.chunk(), shape.visible(queries.which));
  count(4 * pairs_of(shape, scores) / shape.own.queries_a_key() +
        kSoftmaxBackward * product(shape.own.samples, shape.own.key_heads(), scores));
}
void MeteredOps::take_key_gradients(const ContextShape& shape, const float*, float*) {
  count(product(shape.own.rows(), shape.own.key_width()));
}

void MeteredOps::context_latent_forward(const ContextLatentShape& shape, const float*, const float*,
                                        float*, float*) {
  count(2 * pairs_of(shape, static_cast<double>(shape.chunks().scores())) +
        (1 + kSoftmaxForward) * static_cast<double>(shape.probabilities()));
}
void MeteredOps::context_latent_backward(const ContextLatentShape& shape, int which, const float*,
                                         const float*, const float*, const float*, float*, float*) {
  const ContextChunks chunks = shape.chunks();
  const Buffer scratch = take_scores(is_gpus() ? chunks.scores(which) : chunks.scratch(),
                                     shape.own.samples, shape.own.heads);
  const auto scores = static_cast<double>(chunks.scores(which));
  count(4 * pairs_of(shape, scores) +
        kSoftmaxBackward * product(shape.own.samples, shape.own.heads, scores));
}

void MeteredOps::ring_attention_forward(const RingShape& shape, const float*, const float*,
                                        const RingSums&) {
  const AttentionShape& own = shape.queries.own;
  const Buffer scratch = take_scores(shape.scores(), own.samples, own.heads);
  const double scores = product(shape.pairs(), shape.chunk(), shape.chunk());
  count(2 * pairs_of(shape.queries, scores) +
        kSoftmaxForward * product(own.samples, own.heads, scores));
}
void MeteredOps::finish_ring_attention(const ContextShape& shape, const RingSums&) {
  count(product(shape.own.rows(), shape.own.width + 2 * shape.own.heads));
}
void MeteredOps::context_products(const ContextShape& shape, const float*, const float*, float*) {
  count(2 * product(shape.own.rows(), shape.own.width));
}
/// With the scores and probabilities, which were not kept.
void MeteredOps::ring_attention_backward(const RingShape& shape, const float*, const float*,
                                         const RingRows&, float*, float*) {
  const AttentionShape& own = shape.queries.own;
  const Buffer scratch = take_scores(shape.scratch(), own.samples, own.heads);
  const double scores = product(shape.pairs(), shape.chunk(), shape.chunk());
  count(5 * pairs_of(shape.queries, scores) +
        (kSoftmaxForward + kSoftmaxBackward) * product(own.samples, own.heads, scores));
}

/// A look-up is free, as a copy is.
void MeteredOps::embedding_forward(const EmbeddingShape& shape, const std::int32_t*, const float*,
                                   const float* positions, float*) {
  count(positions != nullptr ? elements_of(shape) : 0);
}
void MeteredOps::embedding_backward_weight(const EmbeddingShape& shape, const std::int32_t*,
                                           const float*, float*, float* positions) {
  count((positions != nullptr ? 2 : 1) * elements_of(shape));
}

void MeteredOps::add_positions(const EmbeddingShape& shape, const float*, float*) {
  count(elements_of(shape));
}
/// As many tokens are its own as it has of the table.
void MeteredOps::look_up_backward_weight(const EmbeddingShape& shape, const TokenRange& own,
                                         const std::int32_t*, const float*, float*,
                                         float* positions) {
  count((positions != nullptr ? 1 : 0) * elements_of(shape));
  count(elements_of(shape) * own.count / own.vocabulary);
}

void MeteredOps::convolve(const ConvShape& shape) {
  const Buffer scratch = take(conv2d_scratch(shape));
  count(2 * product(shape.images, shape.out().numbers(), shape.patch()));
}
void MeteredOps::conv2d_forward(const ConvShape& shape, const float*, const float*, float*) {
  convolve(shape);
}
void MeteredOps::conv2d_backward_input(const ConvShape& shape, const float*, const float*, float*) {
  convolve(shape);
}
void MeteredOps::conv2d_backward_weight(const ConvShape& shape, const float*, const float*,
                                        float*) {
  convolve(shape);
}
void MeteredOps::channel_bias_forward(const ChannelShape& shape, const float*, float*) {
  count(elements_of(shape));
}
void MeteredOps::channel_bias_backward_weight(const ChannelShape& shape, const float*, float*) {
  count(elements_of(shape));
}

void MeteredOps::batch_statistics(const ChannelShape& shape, const float*, float*, float*) {
  count(kBatchStatistics * elements_of(shape));
}
void MeteredOps::batch_norm_forward(const ChannelShape& shape, const float*, const float*,
                                    const float*, const float*, const float*, float*) {
  count(kBatchNormForward * elements_of(shape));
}
void MeteredOps::batch_norm_backward_input(const ChannelShape& shape, const float*, const float*,
                                           const float*, const float*, const float*, float*, float*,
                                           float*) {
  count(kBatchNormBackward * elements_of(shape));
}

void MeteredOps::max_pool_forward(const PoolShape& shape, const float*, float*, std::int32_t*) {
  count(places_of(shape));
}
void MeteredOps::max_pool_backward_input(const PoolShape& shape, const std::int32_t*, const float*,
                                         float*) {
  count(elements_after(shape));
}
void MeteredOps::average_pool_forward(const PoolShape& shape, const float*, float*) {
  count(places_of(shape));
}
void MeteredOps::average_pool_backward_input(const PoolShape& shape, const float*, float*) {
  count(places_of(shape));
}
void MeteredOps::global_average_pool_forward(const ChannelShape& shape, const float*, float*) {
  count(elements_of(shape));
}
void MeteredOps::global_average_pool_backward_input(const ChannelShape& shape, const float*,
                                                    float*) {
  count(elements_of(shape));
}

/// Choosing and sorting are comparisons and copies, which are free.
/// In numbers narrower than floats a device rounds the gradient before it multiplies.
Buffer MeteredOps::rounded_logits(const LinearShape& shape) {
  return element_ < sizeof(float)
             ? take(static_cast<std::size_t>(shape.rows) * static_cast<std::size_t>(shape.out))
             : Buffer();
}
void MeteredOps::router_forward(const LinearShape& shape, const float*, const float*,
                                const float* bias, float*) {
  count(product_of(shape) + (bias != nullptr ? product(shape.rows, shape.out) : 0));
}
void MeteredOps::router_backward_input(const LinearShape& shape, const float*, const float*,
                                       float*) {
  const Buffer rounded = rounded_logits(shape);
  count(product_of(shape));
}
void MeteredOps::router_backward_weight(const LinearShape& shape, const float*, const float*,
                                        float*, float* dbias) {
  const Buffer rounded = rounded_logits(shape);
  count(product_of(shape) + (dbias != nullptr ? product(shape.rows, shape.out) : 0));
}
RunBegins MeteredOps::fetch_begins(const std::int32_t*, std::size_t runs, int even) {
  std::vector<std::int32_t> counts(runs);
  count_evenly(even, counts);
  return begins_of(counts);
}
void MeteredOps::route(const RouterShape& shape, const float*, const float*, float*,
                       const Routes&) {
  const Buffer scratch = take(shape.scratch());
  count(kSoftmaxForward * elements_of(shape));
}
void MeteredOps::route_backward(const RouterShape& shape, float, const float*, const float*,
                                const Routes&, const float*, const float*, float*) {
  const Buffer scratch = take(shape.scratch());
  count(kRouterBackward * elements_of(shape));
}
void MeteredOps::sum_rows(const RouterShape& shape, int width, const Routes&, const float*,
                          float*) {
  count(elements_of(shape, width));
}
void MeteredOps::weigh_rows(const RouterShape& shape, int width, const Routes&, const float*,
                            const float*, float*) {
  count(2 * elements_of(shape, width));
}
void MeteredOps::weigh_rows_backward(const RouterShape& shape, int width, const Routes&,
                                     const float*, const float*, const float*, float*, float*) {
  count(3 * elements_of(shape, width));
}
void MeteredOps::expert_linear_forward(const ExpertLinearShape& shape, const std::int32_t*,
                                       const float*, const float*, float*) {
  count(product_of(shape));
}
void MeteredOps::expert_linear_backward_input(const ExpertLinearShape& shape, const std::int32_t*,
                                              const float*, const float*, float*) {
  count(product_of(shape));
}
void MeteredOps::expert_linear_backward_weight(const ExpertLinearShape& shape,
                                               const RunsOfMember& runs, const std::int32_t*,
                                               const float*, const float*, float*) {
  count(product_of(shape) * share_of(shape, runs));
}
void MeteredOps::expert_bias_forward(const ExpertLinearShape& shape, const std::int32_t*,
                                     const float*, float*) {
  count(product(shape.taken, shape.out));
}
void MeteredOps::expert_bias_backward_weight(const ExpertLinearShape& shape,
                                             const RunsOfMember& runs, const std::int32_t*,
                                             const float*, float*) {
  count(product(shape.taken, shape.out) * share_of(shape, runs));
}

}  // namespace pipewright::exec
