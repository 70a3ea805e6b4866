#include "exec/devices/cuda/context_ops.hpp"

#include <cmath>

#include "exec/devices/cuda/head_products.hpp"

namespace pipewright::exec::cuda {
namespace {

/// Where the matrices lie of the heads that meet different keys, the `turn`-th of those that share
/// some: outer are samples, inner heads of keys. exec/layers/context_ops.hpp has the layouts.
class ChunkHeads {
 public:
  ChunkHeads(const ContextShape& shape, std::size_t number_bytes, int turn)
      : s_(shape),
        number_bytes_(static_cast<std::ptrdiff_t>(number_bytes)),
        turn_(turn),
        sharing_(shape.own.queries_a_key()) {}

  int chunk() const { return s_.chunk(); }
  int head_width() const { return s_.own.head_width(); }

  /// In rows of own queries, keys and values; in rows of the context: a chunk of queries.
  pipewright_cuda_matrix queries(const float* qkv, int which) const {
    return of_queries(qkv, which, s_.own.qkv_width());
  }
  pipewright_cuda_matrix context(const float* rows, int which) const {
    return of_queries(rows, which, s_.own.width);
  }
  /// In a rank's own rows of keys: those, and the values, of one of its chunks.
  pipewright_cuda_matrix keys(const float* of_rank, int which) const {
    return of_keys(of_rank, which * chunk(), s_.own.sequence, 0);
  }
  pipewright_cuda_matrix values(const float* of_rank, int which) const {
    return of_keys(of_rank, which * chunk(), s_.own.sequence, s_.own.key_width());
  }
  /// In keys of all ranks in the order of the sequences: from the first one on.
  pipewright_cuda_matrix keys_in_order(const float* keys) const {
    return of_keys(keys, 0, s_.place.parts * s_.own.sequence, 0);
  }
  pipewright_cuda_matrix values_in_order(const float* keys) const {
    return of_keys(keys, 0, s_.place.parts * s_.own.sequence, s_.own.key_width());
  }
  pipewright_cuda_matrix probabilities(const float* p, int which) const {
    return of_scores(p, first_score(which), s_.visible(which), of_head());
  }
  /// Of a pair of chunks, [samples][heads][chunk][chunk].
  pipewright_cuda_matrix pair_scores(const float* scores) const {
    return of_scores(scores, 0, chunk(), std::int64_t{chunk()} * chunk());
  }
  /// Of this turn's heads alone, [samples][heads of keys][chunk][columns].
  pipewright_cuda_matrix scratch(const float* scores, int columns) const {
    const std::int64_t step = std::int64_t{chunk()} * columns;
    return {scores, columns, 0, s_.own.key_heads() * step, step};
  }
  /// Those rows of scores, of all heads and of this turn's; in scratch() lie their gradients.
  pipewright_cuda_causal all_rows(int which) const {
    return {s_.own.samples * s_.own.heads,
            chunk(),
            first_key(which),
            s_.visible(which),
            of_head(),
            of_head()};
  }
  pipewright_cuda_causal rows_of_turn(int which) const {
    const std::int64_t step = std::int64_t{chunk()} * s_.visible(which);
    return {s_.own.samples * s_.own.key_heads(),
            chunk(),
            first_key(which),
            s_.visible(which),
            sharing_ * of_head(),
            step};
  }
  /// Columns from the `first`-th on.
  pipewright_cuda_matrix from_column(pipewright_cuda_matrix matrix, int first) const {
    matrix.data = at(matrix.data, first);
    return matrix;
  }
  /// c[chunk][n] = alpha · a · b + beta · c.
  pipewright_cuda_gemm product(int n, int k, float alpha, const pipewright_cuda_matrix& a,
                               const pipewright_cuda_matrix& b, float beta,
                               const pipewright_cuda_matrix& c) const {
    return product_of_heads({s_.own.samples, s_.own.key_heads()}, chunk(), n, k, alpha, a, b, beta,
                            c);
  }

 private:
  const void* at(const void* numbers, std::int64_t place) const {
    return static_cast<const std::byte*>(numbers) + place * number_bytes_;
  }
  pipewright_cuda_matrix of_queries(const float* rows, int which, int width) const {
    const std::int64_t place = std::int64_t{which} * chunk() * width + turn_ * head_width();
    return {at(rows, place), width, 0, std::int64_t{s_.own.sequence} * width,
            std::int64_t{sharing_} * head_width()};
  }
  pipewright_cuda_matrix of_keys(const float* rows, int first, int of_sample, int column) const {
    const int width = s_.keys_width();
    return {at(rows, std::int64_t{first} * width + column), width, 0,
            std::int64_t{of_sample} * width, head_width()};
  }
  pipewright_cuda_matrix of_scores(const float* scores, std::int64_t first, int columns,
                                   std::int64_t of_head) const {
    return {at(scores, first + turn_ * of_head), columns, 0, s_.own.heads * of_head,
            sharing_ * of_head};
  }
  std::int64_t of_head() const { return static_cast<std::int64_t>(s_.of_head()); }
  std::int64_t first_score(int which) const {
    return which == 0 ? 0 : static_cast<std::int64_t>(s_.chunks().scores(0));
  }
  int first_key(int which) const { return s_.place.chunk(which) * chunk(); }

  const ContextShape s_;
  const std::ptrdiff_t number_bytes_;
  const int turn_, sharing_;
};

/// with(heads) for each batch of heads that meet different keys.
template <class With>
void for_turns(const ContextShape& shape, const Queue& queue, const With& with) {
  for (int turn = 0; turn < shape.own.queries_a_key(); ++turn)
    with(ChunkHeads(shape, queue.number_bytes(), turn));
}

float scale_of_scores(const ContextShape& shape) {
  return 1.0F / std::sqrt(static_cast<float>(shape.own.head_width()));
}

}  // namespace

// --- Keys and values of all ranks ---

void QueueContextOps::copy_keys(const ContextShape& s, const float* qkv, float* keys) {
  ops_.copy_columns(s.own.rows(), s.keys_width(),
                    ops_.at(qkv, static_cast<std::size_t>(s.own.width)), s.own.qkv_width(), keys,
                    s.keys_width());
}

/// Chunk by chunk, of all samples at once.
Buffer QueueContextOps::in_order(const ContextShape& s, Buffer keys) {
  const int of_chunk = s.chunk() * s.keys_width();
  Buffer ordered = ops_.take(s.all_keys());
  for (int chunk = 0; chunk < s.place.chunks(); ++chunk) {
    const auto holder = static_cast<std::size_t>(holder_of_chunk(chunk, s.place.parts));
    const auto which = static_cast<std::size_t>(which_of_holder(chunk, s.place.parts));
    const auto words = static_cast<std::size_t>(of_chunk);
    ops_.copy_columns(s.own.samples, of_chunk,
                      ops_.at(keys.floats(), holder * s.own_keys() + which * words), 2 * of_chunk,
                      ops_.at(ordered.floats(), static_cast<std::size_t>(chunk) * words),
                      s.place.chunks() * of_chunk);
  }
  return ordered;
}

/// The products of exec/devices/cpu/kernels/context_attention.cpp, with the same chains in exact
/// numerics.
void QueueContextOps::context_attention_forward(const ContextShape& s, const float* qkv,
                                                const float* keys, float* probabilities,
                                                float* context) {
  const int d = s.own.head_width();
  for (const int which : {0, 1}) {
    const int columns = s.visible(which);
    for_turns(s, queue_, [&](const ChunkHeads& heads) {
      queue_.multiply(heads.product(columns, d, scale_of_scores(s), heads.queries(qkv, which),
                                    transposed(heads.keys_in_order(keys)), 0.0F,
                                    heads.probabilities(probabilities, which)));
    });
    const ChunkHeads first(s, queue_.number_bytes(), 0);
    const pipewright_cuda_causal rows = first.all_rows(which);
    queue_.run(queue_.kernels().causal_softmax_forward, &rows,
               const_cast<void*>(first.probabilities(probabilities, which).data));
    for_turns(s, queue_, [&](const ChunkHeads& heads) {
      queue_.multiply(heads.product(d, columns, 1.0F, heads.probabilities(probabilities, which),
                                    heads.values_in_order(keys), 0.0F,
                                    heads.context(context, which)));
    });
  }
}

void QueueContextOps::context_attention_backward(const ContextShape& s,
                                                 const ContextQueries& queries, const float* qkv,
                                                 const float* keys, const float* probabilities,
                                                 const float* dcontext, float* dqkv, float* dkeys) {
  const int n = s.chunk(), d = s.own.head_width(), which = queries.which;
  const int columns = s.visible(which);
  const ChunkHeads heads(s, queue_.number_bytes(), queries.head);
  const Buffer scratch =
      ops_.take(s.chunks().scores(which) * static_cast<std::size_t>(s.own.samples) *
                static_cast<std::size_t>(s.own.key_heads()));
  const pipewright_cuda_matrix p = heads.probabilities(probabilities, which),
                               ds = heads.scratch(scratch.floats(), columns),
                               dc = heads.context(dcontext, which), q = heads.queries(qkv, which);
  queue_.multiply(
      heads.product(columns, d, 1.0F, dc, transposed(heads.values_in_order(keys)), 0.0F, ds));
  // Where heads share keys, sums of keys' gradients are of scaled scores.
  const bool is_shared = s.own.queries_a_key() > 1;
  const float scale = scale_of_scores(s);
  const pipewright_cuda_causal rows = heads.rows_of_turn(which);
  queue_.run(queue_.kernels().causal_softmax_backward_input, &rows, is_shared ? scale : 1.0F,
             p.data, scratch.floats());
  queue_.multiply(heads.product(d, columns, is_shared ? 1.0F : scale, ds, heads.keys_in_order(keys),
                                0.0F, heads.queries(dqkv, which)));
  for (int chunk = 0; chunk <= s.place.chunk(which); ++chunk) {
    const auto holder = static_cast<std::size_t>(holder_of_chunk(chunk, s.place.parts));
    float* const of_rank = ops_.at(dkeys, holder * s.own_keys());
    const int half = which_of_holder(chunk, s.place.parts);
    const auto seen = [&](const pipewright_cuda_matrix& scores) {
      return transposed(heads.from_column(scores, chunk * n));
    };
    queue_.multiply(heads.product(d, n, 1.0F, seen(p), dc, 1.0F, heads.values(of_rank, half)));
    queue_.multiply(heads.product(d, n, 1.0F, seen(ds), q, 1.0F, heads.keys(of_rank, half)));
  }
}

void QueueContextOps::take_key_gradients(const ContextShape& s, const float* dkeys, float* dqkv) {
  const float scale = s.own.queries_a_key() > 1 ? 1.0F : scale_of_scores(s);
  const auto take = [&](int first, float factor) {
    const auto column = static_cast<std::size_t>(first);
    queue_.run(queue_.kernels().copy_columns, s.own.rows(), s.own.key_width(), factor,
               ops_.at(dkeys, column), s.keys_width(),
               ops_.at(dqkv, static_cast<std::size_t>(s.own.width) + column), s.own.qkv_width());
  };
  take(0, scale);
  take(s.own.key_width(), 1.0F);
}

// --- Keys and values that go round: as exec/devices/cpu/kernels/ring_attention.cpp ---

namespace {

std::size_t scores_of_pair(const RingShape& shape) {
  const AttentionShape& own = shape.queries.own;
  return shape.scores() * static_cast<std::size_t>(own.samples) *
         static_cast<std::size_t>(own.heads);
}

pipewright_cuda_ring rows_of_pair(const RingShape& shape, const RingPair& pair) {
  const AttentionShape& own = shape.queries.own;
  return {own.samples,  own.sequence,          own.heads, own.head_width(), shape.chunk(),
          pair.queries, pair.is_causal ? 1 : 0};
}

int rows_and_heads(const ContextShape& s) { return s.own.rows() * s.own.heads; }

}  // namespace

void QueueContextOps::ring_attention_forward(const RingShape& shape, const float* qkv,
                                             const float* keys, const RingSums& sums) {
  const ContextShape& s = shape.queries;
  const int n = shape.chunk(), d = s.own.head_width();
  const Buffer scratch = ops_.take(scores_of_pair(shape));
  float* const scores = scratch.floats();
  for_each_pair(shape, [&](const RingPair& pair) {
    for_turns(s, queue_, [&](const ChunkHeads& heads) {
      queue_.multiply(heads.product(n, d, scale_of_scores(s), heads.queries(qkv, pair.queries),
                                    transposed(heads.keys(keys, pair.keys)), 0.0F,
                                    heads.pair_scores(scores)));
    });
    const pipewright_cuda_ring rows = rows_of_pair(shape, pair);
    queue_.run(queue_.kernels().ring_rows_forward, &rows, scores, sums.context, sums.largest,
               sums.sum);
    for_turns(s, queue_, [&](const ChunkHeads& heads) {
      queue_.multiply(heads.product(d, n, 1.0F, heads.pair_scores(scores),
                                    heads.values(keys, pair.keys), pair.is_causal ? 0.0F : 1.0F,
                                    heads.context(sums.context, pair.queries)));
    });
  });
}

void QueueContextOps::finish_ring_attention(const ContextShape& s, const RingSums& sums) {
  queue_.run(queue_.kernels().finish_ring, rows_and_heads(s), s.own.head_width(), sums.context,
             sums.largest, sums.sum);
}

void QueueContextOps::context_products(const ContextShape& s, const float* context,
                                       const float* dcontext, float* products) {
  queue_.run(queue_.kernels().products_of_rows, rows_and_heads(s), s.own.head_width(), context,
             dcontext, products);
}

void QueueContextOps::ring_attention_backward(const RingShape& shape, const float* qkv,
                                              const float* keys, const RingRows& rows, float* dqkv,
                                              float* dkeys) {
  const ContextShape& s = shape.queries;
  const int n = shape.chunk(), d = s.own.head_width();
  const float scale = scale_of_scores(s);
  const Buffer probabilities = ops_.take(scores_of_pair(shape)),
               gradients = ops_.take(scores_of_pair(shape));
  float *const p = probabilities.floats(), *const ds = gradients.floats();
  for_each_pair(shape, [&](const RingPair& pair) {
    for_turns(s, queue_, [&](const ChunkHeads& heads) {
      queue_.multiply(heads.product(n, d, scale, heads.queries(qkv, pair.queries),
                                    transposed(heads.keys(keys, pair.keys)), 0.0F,
                                    heads.pair_scores(p)));
      queue_.multiply(heads.product(n, d, 1.0F, heads.context(rows.dcontext, pair.queries),
                                    transposed(heads.values(keys, pair.keys)), 0.0F,
                                    heads.pair_scores(ds)));
    });
    const pipewright_cuda_ring of = rows_of_pair(shape, pair);
    queue_.run(queue_.kernels().ring_rows_backward, &of, scale, rows.log_sums, rows.products, p,
               ds);
    for_turns(s, queue_, [&](const ChunkHeads& heads) {
      const auto to_keys = [&](const float* scores, const pipewright_cuda_matrix& factor,
                               const pipewright_cuda_matrix& to) {
        queue_.multiply(
            heads.product(d, n, 1.0F, transposed(heads.pair_scores(scores)), factor, 1.0F, to));
      };
      queue_.multiply(heads.product(d, n, 1.0F, heads.pair_scores(ds), heads.keys(keys, pair.keys),
                                    pair.is_causal ? 0.0F : 1.0F,
                                    heads.queries(dqkv, pair.queries)));
      to_keys(p, heads.context(rows.dcontext, pair.queries), heads.values(dkeys, pair.keys));
      to_keys(ds, heads.queries(qkv, pair.queries), heads.keys(dkeys, pair.keys));
    });
  });
}

}  // namespace pipewright::exec::cuda
