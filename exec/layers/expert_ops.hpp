// The operators of mixtures of experts, by the rules of exec/layers/ops.hpp: a router chooses
// experts for each row, rows are sorted by expert, products go expert by expert, and what comes out
// is weighed and added (docs/plan-format.md, "Mixtures of experts").
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/model/experts.hpp"
#include "core/model/row_parts.hpp"
#include "exec/base/numerics.hpp"
#include "exec/layers/ops.hpp"

namespace pipewright::exec {

/// A micro-batch in front of a router, or those of its rows that a rank has.
struct RouterShape {
  int rows = 0;  // of this rank
  ExpertChoice choice;
  /// Where ranks have a part of the rows each: which of them.
  RowParts place = {};

  std::int64_t all_rows() const { return std::int64_t{rows} * place.parts(); }
  /// Stretches of consecutive rows, equally long, that those of this rank are.
  int chunks() const { return place.stretches(); }
  /// Of experts and chunks.
  int runs() const { return choice.experts * chunks(); }
  std::size_t pairs() const {
    return static_cast<std::size_t>(rows) * static_cast<std::size_t>(choice.top_k);
  }
  std::size_t scratch() const { return 3 * static_cast<std::size_t>(choice.experts); }
};

/// Which experts rows go to, and where they stand among the rows sorted by expert: those of one
/// expert in the order of the micro-batch, the experts one after another.
struct Routes {
  /// [runs + 1]: the rows of chunk c that expert e takes have the places from begin[e · chunks + c]
  /// to the number behind it.
  std::int32_t* begin;
  std::int32_t* expert;  // [rows][top_k], ascending in a row
  std::int32_t* place;   // [rows][top_k]; kDropped: the expert had no place left
  std::int32_t* row;     // [rows · top_k], by place; kDropped behind the last one

  static constexpr std::int32_t kDropped = -1;
};
/// They lie in one array of so many words, `begin` in front.
std::size_t route_words(const RouterShape& shape);
Routes routes_in(const RouterShape& shape, std::int32_t* words);

/// Of the `rows` rows of a micro-batch that each of so many ranks has those that experts take, once
/// for each expert, where each expert is chosen equally often; at most the largest int.
int even_rows(const ExpertChoice& choice, std::int64_t rows, int ranks = 1);

/// Of them those that so many of the experts take at most, once for each expert.
int most_rows(const ExpertChoice& choice, std::int64_t rows, int experts, int ranks = 1);

/// From logits[rows][experts], by the rules of docs/plan-format.md: Routes::expert of each row, and
/// their weights[rows][top_k]. bias[experts] is added to the scores where experts are chosen; null:
/// nothing is. scratch[scratch()].
void route(const RouterShape& shape, const float* logits, const float* bias, float* weights,
           const Routes& routes, float* scratch);
/// From Routes::expert to all the rest: a row takes the next place of each of its experts that has
/// one left. earlier[chunks][experts]: how often each was chosen for rows in front of the chunk;
/// null: there are none, or no expert can be full.
void place_rows(const RouterShape& shape, const float* earlier, const Routes& routes);
/// counts[experts] += how often each was chosen, dropped rows included.
void count_choices(const RouterShape& shape, const Routes& routes, float* counts);
/// The bias of an expert that was chosen less often than the mean of all grows by `rate`, that of
/// one that was chosen more often shrinks.
void balance(int experts, float rate, const float* counts, float* bias);
/// counts[chunks][experts] = the same, chunk by chunk.
void count_choices_of_chunks(const RouterShape& shape, const Routes& routes, float* counts);
/// What follows from the counts of all ranks, [ranks][chunks][experts].
struct ChoiceSums {
  float* earlier;  // [chunks][experts], as place_rows() needs them
  float* all;      // [experts], of the whole micro-batch
  float* own;      // [experts], of the ranks of this one's place along cp
};
void sum_choices(const RouterShape& shape, const float* counts, const ChoiceSums& sums);
/// dlogits[rows][experts], from dweights[rows][top_k] and the router's own losses, of which the
/// micro-batch's are divided by micro-batches: `share` is 1 / their number. choices[experts]: how
/// often each was chosen in the whole micro-batch; null: this rank has all of it. dlogits may be
/// logits.
void route_backward(const RouterShape& shape, float share, const float* logits,
                    const float* weights, const Routes& routes, const float* choices,
                    const float* dweights, float* dlogits, float* scratch);

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

/// Where the runs of rows begin that experts take, as the host knows it: run i has the rows from
/// begins[i] to begins[i + 1]. Products of experts are so many, and so large, as these say.
using RunBegins = std::shared_ptr<const std::vector<std::int32_t>>;
/// Rows of each run.
std::vector<std::int32_t> counts_of(const RunBegins& begins);
RunBegins begins_of(std::span<const std::int32_t> counts);
/// So many rows in runs of equal size.
void count_evenly(int rows, std::span<std::int32_t> counts);

/// Rows in runs, each of one expert, times its expert's matrix: w[experts][in][out]. Run i, from
/// begin[i] to begin[i + 1] (RunBegins), is of expert i / chunks % experts: there are `experts`
/// times `chunks` runs from each member of an ExpertGroup (exec/layers/expert_group.hpp). Rows
/// behind the last run become 0.
struct ExpertLinearShape {
  int rows = 0;   // of the arrays
  int taken = 0;  // of them, by experts to which rows come evenly (even_rows())
  int experts = 0, in = 0, out = 0;
  int members = 1;
  int chunks = 1;
};
/// Of one member the runs of all experts: of all chunks, or of one of them.
struct RunsOfMember {
  int member = 0;
  int chunk = kAllChunks;

  static constexpr int kAllChunks = -1;
};
/// each(expert, its rows, where they begin) of the runs that have any; those of an expert's chunks
/// lie side by side.
template <class Each>
void for_each_expert_of(const RunsOfMember& runs, const ExpertLinearShape& shape,
                        const std::int32_t* begin, Each each) {
  const bool is_all = runs.chunk == RunsOfMember::kAllChunks;
  for (int e = 0; e < shape.experts; ++e) {
    const int first = (runs.member * shape.experts + e) * shape.chunks;
    const std::int32_t* const run = begin + first + (is_all ? 0 : runs.chunk);
    const int rows = run[is_all ? shape.chunks : 1] - run[0];
    if (rows > 0) each(e, LinearShape{rows, shape.in, shape.out}, std::int64_t{run[0]});
  }
}
template <class Each>
void for_each_expert(const ExpertLinearShape& shape, const std::int32_t* begin, Each each) {
  for (int member = 0; member < shape.members; ++member)
    for_each_expert_of({member}, shape, begin, each);
}
void expert_linear_forward(const ExpertLinearShape& shape, const std::int32_t* begin,
                           const float* x, const float* w, float* y,
                           Numerics numerics = Numerics::Fast);
void expert_linear_backward_input(const ExpertLinearShape& shape, const std::int32_t* begin,
                                  const float* dy, const float* w, float* dx,
                                  Numerics numerics = Numerics::Fast);
void expert_linear_backward_weight(const ExpertLinearShape& shape, const RunsOfMember& runs,
                                   const std::int32_t* begin, const float* x, const float* dy,
                                   float* dw, Numerics numerics = Numerics::Fast);
/// y += bias[expert][out] of the row's expert.
void expert_bias_forward(const ExpertLinearShape& shape, const std::int32_t* begin,
                         const float* bias, float* y);
void expert_bias_backward_weight(const ExpertLinearShape& shape, const RunsOfMember& runs,
                                 const std::int32_t* begin, const float* dy, float* dbias);

}  // namespace pipewright::exec
