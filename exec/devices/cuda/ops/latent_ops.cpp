// Latent attention (exec/layers/latent_ops.hpp), of whole sequences and of chunks of them: keys are
// put together, so that scores are one product of heads and rounded once. In exact numerics its
// chains are the CPU's, which goes on from the plain part to the rotary one.
#include <cmath>

#include "exec/devices/cuda/head_products.hpp"
#include "exec/devices/cuda/queue_ops.hpp"

namespace pipewright::exec::cuda {
namespace {

/// Some queries of each sample, and the keys that they meet: the first ones of its sequence.
struct LatentQueries {
  int first_row = 0, rows = 0;  // of this rank's rows of a sample
  int place = 0;                // of the first one in its sequence
  int keys = 0, tokens = 0;     // of so many
  std::int64_t first_score = 0, of_head = 0;

  std::int64_t scores() const { return std::int64_t{rows} * keys; }
};

LatentQueries all_queries(const LatentShape& s) {
  const int t = s.sequence;
  return {.rows = t, .keys = t, .tokens = t, .of_head = std::int64_t{t} * t};
}

LatentQueries queries_of_chunk(const ContextLatentShape& s, int which) {
  const ContextChunks chunks = s.chunks();
  const int n = chunks.size();
  return {.first_row = which * n,
          .rows = n,
          .place = s.place.chunk(which) * n,
          .keys = chunks.visible(which),
          .tokens = s.place.parts * s.own.sequence,
          .first_score = which == 0 ? 0 : static_cast<std::int64_t>(chunks.scores(0)),
          .of_head = static_cast<std::int64_t>(chunks.scores())};
}

/// Where the matrices of all heads lie: outer are samples, inner heads.
class LatentHeads {
 public:
  LatentHeads(const LatentShape& shape, const LatentQueries& queries, const TensorOps& ops)
      : s_(shape), queries_(queries), ops_(ops) {}

  /// In this rank's rows: whole queries, or from a column of each head on.
  pipewright_cuda_matrix queries(const float* rows, int column = 0) const {
    return own(rows, s_.query_width(), s_.widths.query(), column);
  }
  pipewright_cuda_matrix context(const float* rows) const {
    return own(rows, s_.context_width(), s_.widths.value, 0);
  }
  /// In the order of the sequences.
  pipewright_cuda_matrix keys(const float* rows) const {
    return in_rows(rows, queries_.tokens, s_.query_width(), s_.widths.query());
  }
  pipewright_cuda_matrix values(const float* keys_values) const {
    return in_rows(at(keys_values, s_.widths.plain), queries_.tokens, s_.key_value_width(),
                   s_.widths.plain + s_.widths.value);
  }
  /// In so many rows of each sample, from there on: of all heads, each `width` wide.
  pipewright_cuda_matrix in_rows(const float* first, int of_sample, int width, int of_head) const {
    return {first, width, 0, std::int64_t{of_sample} * width, of_head};
  }
  pipewright_cuda_matrix scores(const float* all) const {
    return {at(all, queries_.first_score), queries_.keys, 0, s_.heads * queries_.of_head,
            queries_.of_head};
  }
  /// Of these queries alone, from a key on.
  pipewright_cuda_matrix scratch(const float* scores, int key = 0) const {
    return {at(scores, key), queries_.keys, 0, s_.heads * queries_.scores(), queries_.scores()};
  }
  pipewright_cuda_matrix from_key(pipewright_cuda_matrix scores, int key) const {
    scores.data = at(static_cast<const float*>(scores.data), key);
    return scores;
  }
  pipewright_cuda_causal causal() const {
    return {s_.samples * s_.heads, queries_.rows,    queries_.place,
            queries_.keys,         queries_.of_head, queries_.scores()};
  }
  /// c[m][n] = alpha · a · b + beta · c.
  pipewright_cuda_gemm product(int m, int n, int k, float alpha, const pipewright_cuda_matrix& a,
                               const pipewright_cuda_matrix& b, float beta,
                               const pipewright_cuda_matrix& c) const {
    return product_of_heads({s_.samples, s_.heads}, m, n, k, alpha, a, b, beta, c);
  }

 private:
  const float* at(const float* numbers, std::int64_t place) const {
    return ops_.at(numbers, static_cast<std::size_t>(place));
  }
  pipewright_cuda_matrix own(const float* rows, int width, int of_head, int column) const {
    return in_rows(at(rows, std::int64_t{queries_.first_row} * width + column), s_.sequence, width,
                   of_head);
  }

  const LatentShape s_;
  const LatentQueries queries_;
  const TensorOps& ops_;
};

float scale_of_scores(const LatentShape& s) {
  return 1.0F / std::sqrt(static_cast<float>(s.widths.query()));
}

std::size_t numbers(std::int64_t rows, int width) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(width);
}

void join_keys(const Queue& queue, const LatentShape& s, int rows, const float* keys_values,
               const float* rotary_key, float* keys) {
  queue.run(queue.kernels().join_keys, rows, s.heads, s.widths.plain, s.widths.rotary,
            s.widths.value, keys_values, rotary_key, keys);
}

Buffer joined_keys(const Queue& queue, TensorOps& ops, const LatentShape& s,
                   const LatentInputs& in) {
  Buffer keys = ops.take(numbers(s.rows(), s.query_width()));
  join_keys(queue, s, s.rows(), in.keys_values, in.rotary_key, keys.floats());
  return keys;
}

struct LatentKeys {
  const float *keys, *keys_values;
};

void attend(const Queue& queue, TensorOps& ops, const LatentShape& s, const LatentQueries& of,
            const float* queries, const LatentKeys& keys, float* probabilities, float* context) {
  const LatentHeads heads(s, of, ops);
  const pipewright_cuda_matrix p = heads.scores(probabilities);
  queue.multiply(heads.product(of.rows, of.keys, s.widths.query(), scale_of_scores(s),
                               heads.queries(queries), transposed(heads.keys(keys.keys)), 0.0F, p));
  const pipewright_cuda_causal rows = heads.causal();
  queue.run(queue.kernels().causal_softmax_forward, &rows, const_cast<void*>(p.data));
  queue.multiply(heads.product(of.rows, s.widths.value, of.keys, 1.0F, p,
                               heads.values(keys.keys_values), 0.0F, heads.context(context)));
}

/// The gradients of scores, which it returns, and of queries.
Buffer go_back_to_queries(const Queue& queue, TensorOps& ops, const LatentShape& s,
                          const LatentQueries& of, const LatentKeys& keys,
                          const float* probabilities, const float* dcontext, float* dqueries) {
  const LatentHeads heads(s, of, ops);
  Buffer scratch = ops.take(numbers(s.samples * of.scores(), s.heads));
  const pipewright_cuda_matrix ds = heads.scratch(scratch.floats());
  queue.multiply(heads.product(of.rows, of.keys, s.widths.value, 1.0F, heads.context(dcontext),
                               transposed(heads.values(keys.keys_values)), 0.0F, ds));
  const pipewright_cuda_causal rows = heads.causal();
  queue.run(queue.kernels().causal_softmax_backward_input, &rows, scale_of_scores(s),
            heads.scores(probabilities).data, scratch.floats());
  queue.multiply(heads.product(of.rows, s.widths.query(), of.keys, 1.0F, ds, heads.keys(keys.keys),
                               0.0F, heads.queries(dqueries)));
  return scratch;
}

/// The gradients of whole sequences' queries, of values, and of keys in the place of these.
void go_back(const Queue& queue, TensorOps& ops, const LatentShape& s, const LatentInputs& in,
             const Buffer& keys, const float* probabilities, const float* dcontext,
             const LatentGradients& out) {
  const LatentQueries all = all_queries(s);
  const LatentHeads heads(s, all, ops);
  const int t = s.sequence;
  const Buffer scratch = go_back_to_queries(queue, ops, s, all, {keys.floats(), in.keys_values},
                                            probabilities, dcontext, out.queries);
  queue.multiply(heads.product(t, s.widths.value, t, 1.0F, transposed(heads.scores(probabilities)),
                               heads.context(dcontext), 0.0F, heads.values(out.keys_values)));
  queue.multiply(heads.product(t, s.widths.query(), t, 1.0F,
                               transposed(heads.scratch(scratch.floats())),
                               heads.queries(in.queries), 0.0F, heads.keys(keys.floats())));
}

}  // namespace

// --- Whole sequences ---

Buffer QueueOps::take_of_latent_attention(const LatentShape& s) {
  return queue_.fused_attention(s) != nullptr ? take_floats(s.log_sums()) : take(s.probabilities());
}

void QueueOps::latent_attention_forward(const LatentShape& s, const LatentInputs& in, float* kept,
                                        float* context) {
  const Buffer keys = joined_keys(queue_, *this, s, in);
  if (const auto* fused = queue_.fused_attention(s)) {
    const auto plain = static_cast<std::size_t>(s.widths.plain);
    return require(queue_.cuda(), queue_.cuda().attend(fused->attention, in.queries, keys.floats(),
                                                       at(in.keys_values, plain), context, kept,
                                                       fused->workspace));
  }
  attend(queue_, *this, s, all_queries(s), in.queries, {keys.floats(), in.keys_values}, kept,
         context);
}

/// The keys' gradients take their place, but for cuDNN's, which may still read the keys.
void QueueOps::latent_attention_backward_input(const LatentShape& s, const LatentInputs& in,
                                               const float* kept, const float* context,
                                               const float* dcontext, const LatentGradients& out) {
  const auto plain = static_cast<std::size_t>(s.widths.plain);
  Buffer keys = joined_keys(queue_, *this, s, in);
  if (const auto* fused = queue_.fused_attention(s)) {
    const Buffer dkeys = take(numbers(s.rows(), s.query_width()));
    require(queue_.cuda(), queue_.cuda().attend_backward(
                               fused->attention, in.queries, keys.floats(),
                               at(in.keys_values, plain), context, kept, dcontext, out.queries,
                               dkeys.floats(), at(out.keys_values, plain), fused->workspace));
    keys = dkeys;
  } else {
    go_back(queue_, *this, s, in, keys, kept, dcontext, out);
  }
  const int all_heads = s.rows() * s.heads, query = s.widths.query(), rotary = s.widths.rotary;
  copy_columns(all_heads, s.widths.plain, keys.floats(), query, out.keys_values,
               s.widths.plain + s.widths.value);
  copy_columns(all_heads, rotary, at(keys.floats(), plain), query, out.rotary_keys, rotary);
}

void QueueOps::add_heads(int rows, int heads, int width, const float* by_head, float* y) {
  queue_.run(queue_.kernels().add_heads, rows, heads, width, by_head, y);
}

// --- Chunks of sequences: the products of exec/devices/cpu/kernels/context_latent_attention.cpp,
// with the same chains in exact numerics ---

namespace {

/// In what in_order() makes.
LatentKeys keys_in_order(const TensorOps& ops, const ContextLatentShape& s, const float* keys) {
  return {ops.at(keys, s.of_all(s.own.key_value_width())), keys};
}

}  // namespace

/// Chunk by chunk, of all samples at once.
Buffer QueueContextOps::in_order(const ContextLatentShape& s, Buffer keys) {
  const int width = s.own.key_value_width(), rotary = s.own.widths.rotary, n = s.chunks().size();
  Buffer ordered = ops_.take(s.of_all(width + s.own.query_width()));
  const Buffer rotary_keys = ops_.take(s.of_all(rotary));
  const auto put = [&](int chunk, int of_row, std::size_t first, const Buffer& to) {
    const int of_chunk = n * of_row;
    const auto words = static_cast<std::size_t>(of_chunk);
    const auto holder = static_cast<std::size_t>(holder_of_chunk(chunk, s.place.parts));
    const auto which = static_cast<std::size_t>(which_of_holder(chunk, s.place.parts));
    ops_.copy_columns(
        s.own.samples, of_chunk,
        ops_.at(keys.floats(), holder * s.of_own(s.keys_width()) + first + which * words),
        2 * of_chunk, ops_.at(to.floats(), static_cast<std::size_t>(chunk) * words),
        s.place.chunks() * of_chunk);
  };
  for (int chunk = 0; chunk < s.place.chunks(); ++chunk) {
    put(chunk, width, 0, ordered);
    put(chunk, rotary, s.of_own(width), rotary_keys);
  }
  join_keys(queue_, s.own, s.all_rows(), ordered.floats(), rotary_keys.floats(),
            ops_.at(ordered.floats(), s.of_all(width)));
  return ordered;
}

void QueueContextOps::context_latent_forward(const ContextLatentShape& s, const float* queries,
                                             const float* keys, float* probabilities,
                                             float* context) {
  for (const int which : {0, 1})
    attend(queue_, ops_, s.own, queries_of_chunk(s, which), queries, keys_in_order(ops_, s, keys),
           probabilities, context);
}

/// Keys' gradients go to where their ranks' parts lie, chunk by chunk.
void QueueContextOps::context_latent_backward(const ContextLatentShape& s, int which,
                                              const float* queries, const float* keys,
                                              const float* probabilities, const float* dcontext,
                                              float* dqueries, float* dkeys) {
  const LatentQueries of = queries_of_chunk(s, which);
  const LatentHeads heads(s.own, of, ops_);
  const int n = of.rows, in_keys = s.own.key_value_width(), in_rotary = s.own.rotary_width();
  const int plain = s.own.widths.plain, rotary = s.own.widths.rotary, value = s.own.widths.value;
  const Buffer scratch = go_back_to_queries(queue_, ops_, s.own, of, keys_in_order(ops_, s, keys),
                                            probabilities, dcontext, dqueries);
  for (int chunk = 0; chunk <= s.place.chunk(which); ++chunk) {
    const auto holder = static_cast<std::size_t>(holder_of_chunk(chunk, s.place.parts));
    const int row = which_of_holder(chunk, s.place.parts) * n;
    const float* const of_rank = ops_.at(dkeys, holder * s.of_own(s.gradients_width()));
    const float* const own = ops_.at(of_rank, numbers(row, in_keys));
    const float* const own_rotary = ops_.at(of_rank, s.of_own(in_keys) + numbers(row, in_rotary));
    const auto add = [&](int width, const pipewright_cuda_matrix& scores,
                         const pipewright_cuda_matrix& factor, const pipewright_cuda_matrix& to) {
      queue_.multiply(heads.product(n, width, n, 1.0F, transposed(scores), factor, 1.0F, to));
    };
    const pipewright_cuda_matrix ds = heads.scratch(scratch.floats(), chunk * n);
    const auto in_own = [&](const float* first, int width, int of_head) {
      return heads.in_rows(first, s.own.sequence, width, of_head);
    };
    add(value, heads.from_key(heads.scores(probabilities), chunk * n), heads.context(dcontext),
        in_own(ops_.at(own, static_cast<std::size_t>(plain)), in_keys, plain + value));
    add(plain, ds, heads.queries(queries), in_own(own, in_keys, plain + value));
    add(rotary, ds, heads.queries(queries, plain), in_own(own_rotary, in_rotary, rotary));
  }
}

}  // namespace pipewright::exec::cuda
