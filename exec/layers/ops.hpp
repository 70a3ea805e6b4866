// The operators that a model is made of, as plain functions on float arrays, with the forward (F),
// the gradient of the inputs (I) and the gradient of the weights (W) apart, so that a schedule may
// run W long after I.
//
// Every array is row major and belongs to the caller; x[rows][in] means rows times in floats. Row
// r of a batch of sequences is token r % sequence of sample r / sequence. Outputs may not overlap
// inputs unless the function says so. W adds to the gradient it is given; F and I overwrite.
// The functions keep no state, so any number of threads may call them at once. Each sums in an
// order that its code fixes: the same arguments give the same bits on one machine, and a
// micro-batch's result does not depend on when it is computed. With Numerics::Exact matrix products
// give the same bits on every machine too. Sizes are checked by the callers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/model/context_split.hpp"
#include "exec/base/numerics.hpp"

namespace pipewright::exec {

// --- Linear: y[rows][out] = x[rows][in] · w[in][out] ------------------------------------------

struct LinearShape {
  int rows = 0, in = 0, out = 0;
};
void linear_forward(const LinearShape& shape, const float* x, const float* w, float* y,
                    Numerics numerics = Numerics::Fast);
void linear_backward_input(const LinearShape& shape, const float* dy, const float* w, float* dx,
                           Numerics numerics = Numerics::Fast);
void linear_backward_weight(const LinearShape& shape, const float* x, const float* dy, float* dw,
                            Numerics numerics = Numerics::Fast);

// --- Bias: y[rows][width] += bias[width]; its I is the identity --------------------------------

void bias_forward(int rows, int width, const float* bias, float* y);
void bias_backward_weight(int rows, int width, const float* dy, float* dbias);

// --- Element by element, n elements ------------------------------------------------------------

void relu_forward(std::size_t n, const float* x, float* y);
/// From the output, which the next layer keeps anyway. dx may be dy.
void relu_backward_input(std::size_t n, const float* y, const float* dy, float* dx);

/// The tanh form: x/2 · (1 + tanh(sqrt(2/pi) · (x + 0.044715 x^3))).
void gelu_forward(std::size_t n, const float* x, float* y);
/// dx may be dy.
void gelu_backward_input(std::size_t n, const float* x, const float* dy, float* dx);

/// y[r][j] = silu(x[r][j]) · x[r][width + j], silu(v) = v / (1 + e^-v); x[rows][2 · width],
/// y[rows][width] (Shazeer, arXiv 2002.05202).
void swiglu_forward(int rows, int width, const float* x, float* y);
/// dx[rows][2 · width].
void swiglu_backward_input(int rows, int width, const float* x, const float* dy, float* dx);

/// y += x: the sum of a residual connection, forward and backward.
void add_to(std::size_t n, const float* x, float* y);

// --- Layer norm over the last dimension ---------------------------------------------------------

inline constexpr float kLayerNormEpsilon = 1e-5F;

struct NormShape {
  int rows = 0, width = 0;
};
/// y = (x - mean) · inverse_deviation · scale + shift, with mean[rows] and inverse_deviation[rows]
/// (1 / sqrt(variance + epsilon)) kept for I and W; scale[width], shift[width].
void layer_norm_forward(const NormShape& shape, const float* x, const float* scale,
                        const float* shift, float* y, float* mean, float* inverse_deviation);
void layer_norm_backward_input(const NormShape& shape, const float* x, const float* mean,
                               const float* inverse_deviation, const float* scale, const float* dy,
                               float* dx);
void layer_norm_backward_weight(const NormShape& shape, const float* x, const float* mean,
                                const float* inverse_deviation, const float* dy, float* dscale,
                                float* dshift);

/// y = x · inverse_root · scale, with inverse_root[rows] = 1 / sqrt(mean(x²) + epsilon) kept for I
/// and W (Zhang and Sennrich, arXiv 1910.07467); epsilon is that of layer norms.
void rms_norm_forward(const NormShape& shape, const float* x, const float* scale, float* y,
                      float* inverse_root);
void rms_norm_backward_input(const NormShape& shape, const float* x, const float* inverse_root,
                             const float* scale, const float* dy, float* dx);
void rms_norm_backward_weight(const NormShape& shape, const float* x, const float* inverse_root,
                              const float* dy, float* dscale);

// --- Rotary positions ----------------------------------------------------------------------------

/// Heads at the beginning of rows that are `stride` floats apart.
struct RotaryShape {
  int samples = 0, sequence = 0, heads = 0, head_width = 0, stride = 0;
  double base = 0;
  int head_stride = 0;        // from one head to the next; 0: they lie side by side
  bool neighbours = false;    // which numbers are a pair: (2j, 2j + 1) instead of halves
  ContextPlace context = {};  // of a sample's rows, where a rank has some of them

  std::size_t scratch() const {
    return static_cast<std::size_t>(sequence) * static_cast<std::size_t>(head_width);
  }
};
/// Turns pair j, (j, j + head_width/2) or neighbours, of a head by its row's place in the sequence
/// times base^(-2j/head_width) (Su and others, arXiv 2104.09864, with the halves that Llama pairs,
/// or the neighbours of DeepSeek). `back`: by the negative, which is the gradient.
/// scratch[sequence][head_width].
void rotate(const RotaryShape& shape, bool back, float* rows, float* scratch);

// --- Causal multi-head self-attention, without its projections ----------------------------------

/// `heads` divides `width`; a head is width / heads wide. Each of `kv_heads` heads of keys and
/// values (0: `heads`) serves heads / kv_heads heads of queries, one after the other.
struct AttentionShape {
  int samples = 0, sequence = 0, width = 0, heads = 0, kv_heads = 0;

  int key_heads() const { return kv_heads > 0 ? kv_heads : heads; }
  int queries_a_key() const { return heads / key_heads(); }
  int key_width() const { return key_heads() * head_width(); }
  int qkv_width() const { return width + 2 * key_width(); }
  int rows() const { return static_cast<int>(std::int64_t{samples} * sequence); }
  int head_width() const { return width / heads; }
  std::size_t probabilities() const {
    const auto side = static_cast<std::size_t>(sequence);
    return static_cast<std::size_t>(samples) * side * static_cast<std::size_t>(heads) * side;
  }
  std::size_t scratch() const {
    return static_cast<std::size_t>(sequence) * static_cast<std::size_t>(sequence);
  }
  /// [samples][heads][sequence]: of each row of scores the logarithm of its sum of exponentials.
  std::size_t log_sums() const {
    return static_cast<std::size_t>(rows()) * static_cast<std::size_t>(heads);
  }
  /// Whether a device with numbers of 16 bits needs no squares for it (docs/gpu.md).
  bool is_fusable() const { return head_width() % 8 == 0 && head_width() <= 128; }
};
/// qkv[rows][qkv_width] holds queries, keys and values side by side, each head by head.
/// probabilities[samples][heads][sequence][sequence] is kept for I; context[rows][width].
/// There are no weights in it, so there is no W.
void attention_forward(const AttentionShape& shape, const float* qkv, float* probabilities,
                       float* context, Numerics numerics = Numerics::Fast);
/// dqkv[rows][qkv_width]; scratch[sequence][sequence].
void attention_backward_input(const AttentionShape& shape, const float* qkv,
                              const float* probabilities, const float* dcontext, float* dqkv,
                              float* scratch, Numerics numerics = Numerics::Fast);

// --- Embedding: y[r] = tokens[ids[r]] + positions[position(r)] ---------------------------------

/// `first_row`: of all rows of the micro-batch that the rank has, where not all are there.
struct EmbeddingShape {
  int rows = 0, sequence = 1, width = 0, first_row = 0;
  ContextPlace context = {};  // of a sample's rows, where a rank has some of them

  int position(int row) const { return context.position(sequence, (first_row + row) % sequence); }
};
/// tokens[vocabulary][width]; positions[>= tokens of a sample][width], or null for none. Ids must
/// lie within the vocabulary. Ids have no gradient, so there is no I.
void embedding_forward(const EmbeddingShape& shape, const std::int32_t* ids, const float* tokens,
                       const float* positions, float* y);
/// dpositions may be null.
void embedding_backward_weight(const EmbeddingShape& shape, const std::int32_t* ids,
                               const float* dy, float* dtokens, float* dpositions);

/// Rows [first, first + count) of a token table of `vocabulary`, of which a rank has these alone.
struct TokenRange {
  int first = 0, count = 0, vocabulary = 0;

  bool has(std::int32_t id) const { return first <= id && id < first + count; }
};
/// y[r] = tokens[ids[r] - first], for ids in the range. `alone`: other rows become 0, else they
/// stay.
void look_up(const EmbeddingShape& shape, const TokenRange& own, bool alone,
             const std::int32_t* ids, const float* tokens, float* y);
/// y[r] += positions[position(r)].
void add_positions(const EmbeddingShape& shape, const float* positions, float* y);
/// Of the tokens in the range, and of all positions; dpositions may be null.
void look_up_backward_weight(const EmbeddingShape& shape, const TokenRange& own,
                             const std::int32_t* ids, const float* dy, float* dtokens,
                             float* dpositions);

// --- Losses -------------------------------------------------------------------------------------
// F returns the sum over the micro-batch, and, where somebody wants them, each row's part of it;
// the caller divides by the rows (mse: the elements) of the whole step, and passes the same factor
// to I as `scale`, so that it is applied exactly once.

struct LossShape {
  int rows = 0, width = 0;
};
/// Sum over rows of -log softmax(logits[rows][width])[label]; probabilities may be logits.
double softmax_cross_entropy_forward(const LossShape& shape, const float* logits,
                                     const std::int32_t* labels, float* probabilities,
                                     double* of_rows = nullptr);
/// dlogits = scale · (probabilities - one_hot(label)); dlogits may be probabilities.
void softmax_cross_entropy_backward_input(const LossShape& shape, const float* probabilities,
                                          const std::int32_t* labels, float scale, float* dlogits);

/// The columns [first, first + own.width) of rows of logits, where each of `members` ranks has
/// some. What they tell one another says exec/layers/divided/divided_loss.hpp.
struct LogitsPart {
  LossShape own;
  int first = 0, member = 0, members = 1;
};
/// A sum of exponentials is taken in so many parts; column j goes to part j % kLossLanes.
inline constexpr int kLossLanes = 16;
/// facts[rows][members + 1]: writes its own largest logit into its column, and the target's into
/// the last one where it has it.
void tell_logits(const LogitsPart& part, const float* logits, const std::int32_t* labels,
                 float* facts);
/// exponentials = e^(logits - largest), which may be logits; added to sums[rows][kLossLanes].
void add_exponentials(const LogitsPart& part, const float* logits, const float* facts,
                      float* exponentials, float* sums);
/// Exponentials to probabilities; returns the loss, summed over rows.
double finish_cross_entropy(const LogitsPart& part, const float* facts, const float* sums,
                            float* probabilities, double* of_rows = nullptr);
/// As softmax_cross_entropy_backward_input(), of its own columns.
void divided_cross_entropy_backward_input(const LogitsPart& part, const float* probabilities,
                                          const std::int32_t* labels, float scale, float* dlogits);

/// Sum over all elements of (y - target)^2.
double mse_forward(const LossShape& shape, const float* y, const float* target,
                   double* of_rows = nullptr);
/// dy = 2 · scale · (y - target); dy may be y.
void mse_backward_input(const LossShape& shape, const float* y, const float* target, float scale,
                        float* dy);

}  // namespace pipewright::exec
