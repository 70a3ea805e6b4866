// Latent attention of a rank's own queries over the keys and values of all ranks, chunk by chunk in
// the order of the sequence, as exec/devices/cpu/kernels/context_attention.cpp has it: in exact
// numerics each product is the chain that the kernel of whole sequences makes
// (exec/devices/cpu/kernels/latent_attention.cpp).
#include <cmath>

#include "exec/devices/cpu/kernels/context_queries.hpp"
#include "exec/devices/cpu/kernels/gemm.hpp"

namespace pipewright::exec {
namespace {

using cpu::at_row;
using Queries = cpu::HeadOfChunk;

/// Where the parts of a chunk's keys begin that serve a head, in what all ranks have brought
/// together; or those of their gradients, where a rotary key has a part for each head.
struct Keys {
  std::size_t key, value, rotary;
};

Keys keys_at(const ContextLatentShape& s, const Queries& of, int chunk, bool are_gradients) {
  const LatentWidths& widths = s.own.widths;
  const auto member = static_cast<std::size_t>(holder_of_chunk(chunk, s.place.parts));
  const std::int64_t row = s.chunks().row_in_holder(of.sample, chunk);
  const std::size_t begin = member * s.of_own(are_gradients ? s.gradients_width() : s.keys_width());
  const std::size_t key =
      begin + at_row(row, s.own.key_value_width()) + at_row(of.head, widths.plain + widths.value);
  const std::size_t rotary =
      begin + s.of_own(s.own.key_value_width()) +
      (are_gradients ? at_row(row, s.own.rotary_width()) + at_row(of.head, widths.rotary)
                     : at_row(row, widths.rotary));
  return {key, key + static_cast<std::size_t>(widths.plain), rotary};
}

float scale_of_scores(const ContextLatentShape& s) {
  return 1.0F / std::sqrt(static_cast<float>(s.own.widths.query()));
}

template <class Each>
void for_each_head(const ContextLatentShape& s, int which, Each each) {
  for (int sample = 0; sample < s.own.samples; ++sample) {
    for (int head = 0; head < s.own.heads; ++head) each(Queries{sample, head, which});
  }
}

}  // namespace

void context_latent_forward(const ContextLatentShape& s, const float* queries, const float* keys,
                            float* probabilities, float* context, Numerics numerics) {
  const LatentWidths& widths = s.own.widths;
  const int n = s.chunks().size(), in_keys = s.own.key_value_width();
  const float scale = scale_of_scores(s);
  const auto attend = [&](const Queries& of) {
    const int columns = s.chunks().visible(of.which), last = s.place.chunk(of.which);
    const int in_queries = s.own.query_width();
    const float* const q = queries + cpu::queries_at(s.chunks(), of, in_queries, widths.query());
    float* const p = probabilities + cpu::probabilities_at(s.chunks(), s.own.heads, of);
    float* const c = context + cpu::queries_at(s.chunks(), of, s.own.context_width(), widths.value);
    for (int k = 0; k <= last; ++k) {
      const Keys at = keys_at(s, of, k, false);
      cpu::gemm({n, n, widths.plain}, 1.0F, {q, in_queries}, {keys + at.key, in_keys, true}, 0.0F,
                p + k * n, columns, numerics);
      cpu::gemm({n, n, widths.rotary}, 1.0F, {q + widths.plain, in_queries},
                {keys + at.rotary, widths.rotary, true}, 1.0F, p + k * n, columns, numerics);
    }
    for (std::size_t i = 0; i < s.chunks().scores(of.which); ++i) p[i] *= scale;
    cpu::causal_softmax(cpu::rows_of(s.chunks(), of.which), p);
    for (int k = 0; k <= last; ++k)
      cpu::gemm({n, widths.value, n}, 1.0F, {p + k * n, columns},
                {keys + keys_at(s, of, k, false).value, in_keys}, k == 0 ? 0.0F : 1.0F, c,
                s.own.context_width(), numerics);
  };
  for (const int which : {0, 1}) for_each_head(s, which, attend);
}

void context_latent_backward(const ContextLatentShape& s, int which, const float* queries,
                             const float* keys, const float* probabilities, const float* dcontext,
                             float* dqueries, float* dkeys, float* scratch, Numerics numerics) {
  const LatentWidths& widths = s.own.widths;
  const int n = s.chunks().size(), columns = s.chunks().visible(which), last = s.place.chunk(which);
  const int in_queries = s.own.query_width(), in_keys = s.own.key_value_width();
  const int in_context = s.own.context_width();
  const auto go_back = [&](const Queries& of) {
    const float* const p = probabilities + cpu::probabilities_at(s.chunks(), s.own.heads, of);
    const float* const dc = dcontext + cpu::queries_at(s.chunks(), of, in_context, widths.value);
    const std::size_t query = cpu::queries_at(s.chunks(), of, in_queries, widths.query());
    const std::size_t turned = query + static_cast<std::size_t>(widths.plain);
    for (int k = 0; k <= last; ++k)
      cpu::gemm({n, n, widths.value}, 1.0F, {dc, in_context},
                {keys + keys_at(s, of, k, false).value, in_keys, true}, 0.0F, scratch + k * n,
                columns, numerics);
    cpu::causal_softmax_backward(cpu::rows_of(s.chunks(), which), scale_of_scores(s), p, scratch);
    for (int k = 0; k <= last; ++k) {
      const Keys at = keys_at(s, of, k, false), to = keys_at(s, of, k, true);
      const float before = k == 0 ? 0.0F : 1.0F;
      const cpu::MatrixView ds{scratch + k * n, columns},
          ds_of_keys{scratch + k * n, columns, true};
      cpu::gemm({n, widths.plain, n}, 1.0F, ds, {keys + at.key, in_keys}, before, dqueries + query,
                in_queries, numerics);
      cpu::gemm({n, widths.rotary, n}, 1.0F, ds, {keys + at.rotary, widths.rotary}, before,
                dqueries + turned, in_queries, numerics);
      cpu::gemm({n, widths.value, n}, 1.0F, {p + k * n, columns, true}, {dc, in_context}, 1.0F,
                dkeys + to.value, in_keys, numerics);
      cpu::gemm({n, widths.plain, n}, 1.0F, ds_of_keys, {queries + query, in_queries}, 1.0F,
                dkeys + to.key, in_keys, numerics);
      cpu::gemm({n, widths.rotary, n}, 1.0F, ds_of_keys, {queries + turned, in_queries}, 1.0F,
                dkeys + to.rotary, s.own.rotary_width(), numerics);
    }
  };
  for_each_head(s, which, go_back);
}

}  // namespace pipewright::exec
