// The operators of mixtures of experts, by the rules of exec/layers/ops.hpp: a router chooses
// experts for each row, rows are sorted by expert, products go expert by expert, and what comes out
// is weighed and added (docs/plan-format.md, "Mixtures of experts").
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/model/experts.hpp"
#include "exec/base/numerics.hpp"

namespace pipewright::exec {

/// A micro-batch in front of a router.
struct RouterShape {
  int rows = 0;
  ExpertChoice choice;

  std::size_t pairs() const {
    return static_cast<std::size_t>(rows) * static_cast<std::size_t>(choice.top_k);
  }
  std::size_t scratch() const { return 3 * static_cast<std::size_t>(choice.experts); }
};

/// Which experts rows go to, and where they stand among the rows sorted by expert: those of one
/// expert in the order of the micro-batch, the experts one after another.
struct Routes {
  std::int32_t* begin;   // [experts + 1]: expert e has the places from begin[e] to begin[e + 1]
  std::int32_t* expert;  // [rows][top_k], ascending in a row
  std::int32_t* place;   // [rows][top_k]; kDropped: the expert had no place left
  std::int32_t* row;     // [rows · top_k], by place; kDropped behind the last one

  static constexpr std::int32_t kDropped = -1;
};
/// They lie in one array of so many words, `begin` in front.
std::size_t route_words(const ExpertChoice& choice, std::size_t pairs);
Routes routes_in(const ExpertChoice& choice, std::size_t pairs, std::int32_t* words);

/// Of `rows` rows of a micro-batch those that experts take, once for each expert, where each expert
/// is chosen equally often; at most the largest int.
int even_rows(const ExpertChoice& choice, std::int64_t rows);

/// Of `rows` rows those that so many of the experts take at most, once for each expert.
int most_rows(const ExpertChoice& choice, std::int64_t rows, int experts);

/// From logits[rows][experts], by the rules of docs/plan-format.md: the experts of each row, and
/// their weights[rows][top_k]. bias[experts] is added to the scores where experts are chosen; null:
/// nothing is. scratch[scratch()].
void route(const RouterShape& shape, const float* logits, const float* bias, float* weights,
           const Routes& routes, float* scratch);
/// counts[experts] += how often each was chosen, dropped rows included.
void count_choices(const RouterShape& shape, const Routes& routes, float* counts);
/// dlogits[rows][experts], from dweights[rows][top_k] and the router's own losses, of which the
/// micro-batch's are divided by micro-batches: `share` is 1 / their number. dlogits may be logits.
void route_backward(const RouterShape& shape, float share, const float* logits,
                    const float* weights, const Routes& routes, const float* dweights,
                    float* dlogits, float* scratch);

/// gathered[rows · top_k][width], by place; what is behind the last place is 0.
void gather_rows(const RouterShape& shape, int width, const Routes& routes, const float* x,
                 float* gathered);
/// Its I: x[row] = the sum of the row's places, in ascending order of experts.
void sum_rows(const RouterShape& shape, int width, const Routes& routes, const float* gathered,
              float* x);
/// y[row] = sum over its places of weight · z[place], in ascending order of experts.
void weigh_rows(const RouterShape& shape, int width, const Routes& routes, const float* weights,
                const float* z, float* y);
/// dz[place] = weight · dy[row], 0 behind the last place; dweights = the products of z[place] and
/// dy[row], 0 where a row was dropped. dz may be z.
void weigh_rows_backward(const RouterShape& shape, int width, const Routes& routes,
                         const float* weights, const float* dy, const float* z, float* dz,
                         float* dweights);

/// The numbers between begin[counts.size() + 1], brought to the host.
void count_rows(const std::int32_t* begin, std::span<std::int32_t> counts);
/// So many rows in runs of equal size.
void count_evenly(int rows, std::span<std::int32_t> counts);
/// begin[counts.size() + 1], as in Routes.
void set_begins(std::span<const std::int32_t> counts, std::int32_t* begin);

/// Rows in runs, each of one expert, times its expert's matrix: w[experts][in][out]. Run i, from
/// begin[i] to begin[i + 1], is of expert i % experts: there are `experts` runs from each member of
/// an ExpertGroup (exec/layers/expert_group.hpp). Rows behind the last run become 0.
struct ExpertLinearShape {
  int rows = 0;   // of the arrays
  int taken = 0;  // of them, by experts to which rows come evenly (even_rows())
  int experts = 0, in = 0, out = 0;
  int members = 1;
};
void expert_linear_forward(const ExpertLinearShape& shape, const std::int32_t* begin,
                           const float* x, const float* w, float* y,
                           Numerics numerics = Numerics::Fast);
void expert_linear_backward_input(const ExpertLinearShape& shape, const std::int32_t* begin,
                                  const float* dy, const float* w, float* dx,
                                  Numerics numerics = Numerics::Fast);
/// Of the runs of one member.
void expert_linear_backward_weight(const ExpertLinearShape& shape, int member,
                                   const std::int32_t* begin, const float* x, const float* dy,
                                   float* dw, Numerics numerics = Numerics::Fast);
/// y += bias[expert][out] of the row's expert.
void expert_bias_forward(const ExpertLinearShape& shape, const std::int32_t* begin,
                         const float* bias, float* y);
void expert_bias_backward_weight(const ExpertLinearShape& shape, int member,
                                 const std::int32_t* begin, const float* dy, float* dbias);

}  // namespace pipewright::exec
