// Mixtures of experts: the router's choice, rows sorted by expert, and products expert by expert.
#include <algorithm>
#include <cmath>
#include <limits>

#include "exec/devices/cpu/kernels/logarithm.hpp"
#include "exec/devices/cpu/kernels/reduce.hpp"
#include "exec/devices/cpu/kernels/sigmoid.hpp"
#include "exec/devices/cpu/kernels/softmax.hpp"
#include "exec/layers/expert_ops.hpp"
#include "exec/layers/ops.hpp"

namespace pipewright::exec {
namespace {

std::ptrdiff_t offset(std::int64_t row, int width) {
  return static_cast<std::ptrdiff_t>(row) * width;
}

constexpr float kTaken = -std::numeric_limits<float>::infinity();

/// A row's scores by expert.
void score(const ExpertChoice& choice, const float* logits, float* scores) {
  if (choice.scores == RouterScores::Softmax) {
    cpu::softmax(choice.experts, logits, scores);
  } else {
    cpu::sigmoid(static_cast<std::size_t>(choice.experts), logits, scores);
  }
}

/// Of equal ones the first; what is taken already is passed over.
int largest(int n, const float* x) {
  int best = -1;
  for (int i = 0; i < n; ++i) {
    if (x[i] != kTaken && (best < 0 || x[i] > x[best])) best = i;
  }
  return best;
}

float sum_of_two_largest(int n, const float* x) {
  float first = kTaken, second = kTaken;
  for (int i = 0; i < n; ++i) {
    second = std::max(second, std::min(first, x[i]));
    first = std::max(first, x[i]);
  }
  return first + second;
}

/// Takes the experts of all groups but the top_groups best. of_groups[groups].
void leave_groups(const ExpertChoice& choice, float* rank_by, float* of_groups) {
  const int each = choice.experts / choice.groups;
  for (int g = 0; g < choice.groups; ++g)
    of_groups[g] = sum_of_two_largest(each, rank_by + g * each);
  for (int k = 0; k < choice.top_groups; ++k) of_groups[largest(choice.groups, of_groups)] = kTaken;
  for (int g = 0; g < choice.groups; ++g) {
    if (of_groups[g] != kTaken) std::fill_n(rank_by + g * each, each, kTaken);
  }
}

/// The top_k experts of the largest rank_by, which is used up, in ascending order, with their
/// scores.
void choose(const ExpertChoice& choice, const float* scores, float* rank_by, std::int32_t* expert,
            float* weight) {
  for (int k = 0; k < choice.top_k; ++k) {
    const int best = largest(choice.experts, rank_by);
    rank_by[best] = kTaken;
    int at = k;
    for (; at > 0 && expert[at - 1] > best; --at) {
      expert[at] = expert[at - 1];
      weight[at] = weight[at - 1];
    }
    expert[at] = best;
    weight[at] = scores[best];
  }
}

/// The part of all pairs of rows and experts that each expert was chosen in, dropped or not.
void shares_of_experts(const RouterShape& shape, const Routes& routes, const float* choices,
                       float* shares) {
  const int experts = shape.choice.experts;
  if (choices != nullptr) {
    std::copy_n(choices, experts, shares);
  } else {
    std::fill_n(shares, experts, 0.0F);
    count_choices(shape, routes, shares);
  }
  const auto all = static_cast<float>(shape.all_rows() * shape.choice.top_k);
  for (int e = 0; e < experts; ++e) shares[e] /= all;
}

/// The gradient of the scores u, from that of P, which is u made to add up to 1: softmax does.
void balance_backward(const ExpertChoice& choice, const float* dp, const float* u, float* du) {
  const int experts = choice.experts;
  if (choice.scores == RouterScores::Softmax) {
    std::copy_n(dp, experts, du);
    return;
  }
  const float inverse = 1.0F / cpu::sum(experts, [=](int e) { return u[e]; });
  const float mean = cpu::sum(experts, [=](int e) { return dp[e] * u[e]; }) * inverse;
  for (int e = 0; e < experts; ++e) du[e] = (dp[e] - mean) * inverse;
}

/// Adds the gradient of a row's chosen scores: weight = scaling · u, and where the choice
/// normalises divided by the sum of the chosen.
void chosen_backward(const ExpertChoice& choice, const std::int32_t* expert, const float* weight,
                     const float* dweight, const float* u, float* du) {
  const auto scaling = static_cast<float>(choice.scaling);
  float mean = 0, scale = scaling;
  if (choice.normalises) {
    float sum = 0;
    for (int k = 0; k < choice.top_k; ++k) sum += u[expert[k]];
    scale = scaling / sum;
    mean = cpu::sum(choice.top_k, [=](int k) { return dweight[k] * weight[k]; }) / scaling;
  }
  for (int k = 0; k < choice.top_k; ++k) du[expert[k]] += (dweight[k] - mean) * scale;
}

/// Behind the last place.
void clear_rest(const ExpertLinearShape& shape, const std::int32_t* begin, int width, float* y) {
  std::fill(y + offset(begin[shape.members * shape.experts * shape.chunks], width),
            y + offset(shape.rows, width), 0.0F);
}

std::ptrdiff_t matrix_of(const ExpertLinearShape& shape, int expert) {
  return offset(offset(expert, shape.in), shape.out);
}

}  // namespace

void route(const RouterShape& shape, const float* logits, const float* bias, float* weights,
           const Routes& routes, float* scratch) {
  const ExpertChoice& choice = shape.choice;
  float* const scores = scratch;
  float* const rank_by = scratch + choice.experts;
  const auto scaling = static_cast<float>(choice.scaling);
  for (int r = 0; r < shape.rows; ++r) {
    std::int32_t* const expert = routes.expert + offset(r, choice.top_k);
    float* const weight = weights + offset(r, choice.top_k);
    score(choice, logits + offset(r, choice.experts), scores);
    std::copy_n(scores, choice.experts, rank_by);
    if (bias != nullptr) add_to(static_cast<std::size_t>(choice.experts), bias, rank_by);
    if (choice.top_groups < choice.groups)
      leave_groups(choice, rank_by, scratch + 2 * choice.experts);
    choose(choice, scores, rank_by, expert, weight);
    float sum = 0;
    for (int k = 0; k < choice.top_k; ++k) sum += weight[k];
    for (int k = 0; k < choice.top_k; ++k) {
      if (choice.normalises) weight[k] /= sum;
      weight[k] *= scaling;
    }
  }
}

void place_rows(const RouterShape& shape, const float* earlier, const Routes& routes) {
  const int chunks = shape.chunks(), experts = shape.choice.experts;
  const std::size_t pairs = shape.pairs(), of_chunk = pairs / static_cast<std::size_t>(chunks);
  const std::int64_t capacity = expert_capacity(shape.choice, shape.all_rows());
  const auto run_of = [&](std::size_t pair) {
    return routes.expert[pair] * chunks + static_cast<int>(pair / of_chunk);
  };
  std::int32_t* const taken = routes.begin + 1;  // by run; then where the next one begins
  std::fill_n(routes.begin, shape.runs() + 1, 0);
  for (std::size_t i = 0; i < pairs; ++i) {
    std::int32_t& own = taken[run_of(i)];
    std::int64_t before = own;
    if (earlier != nullptr)
      before += std::llround(earlier[static_cast<int>(i / of_chunk) * experts + routes.expert[i]]);
    routes.place[i] = before < capacity ? own++ : Routes::kDropped;
  }
  for (int run = 0; run < shape.runs(); ++run) taken[run] += routes.begin[run];
  std::fill_n(routes.row, pairs, Routes::kDropped);
  for (std::size_t i = 0; i < pairs; ++i) {
    if (routes.place[i] == Routes::kDropped) continue;
    routes.place[i] += routes.begin[run_of(i)];
    routes.row[routes.place[i]] =
        static_cast<std::int32_t>(i / static_cast<std::size_t>(shape.choice.top_k));
  }
}

void count_choices(const RouterShape& shape, const Routes& routes, float* counts) {
  for (std::size_t i = 0; i < shape.pairs(); ++i) counts[routes.expert[i]] += 1.0F;
}

void balance(int experts, float rate, const float* counts, float* bias) {
  double all = 0;
  for (int e = 0; e < experts; ++e) all += static_cast<double>(counts[e]);
  const double mean = all / static_cast<double>(experts);
  for (int e = 0; e < experts; ++e) {
    const double missing = mean - static_cast<double>(counts[e]);
    const int sign = (missing > 0 ? 1 : 0) - (missing < 0 ? 1 : 0);
    bias[e] += rate * static_cast<float>(sign);
  }
}

void count_choices_of_chunks(const RouterShape& shape, const Routes& routes, float* counts) {
  const std::size_t of_chunk = shape.pairs() / static_cast<std::size_t>(shape.chunks());
  std::fill_n(counts, shape.runs(), 0.0F);
  for (std::size_t i = 0; i < shape.pairs(); ++i)
    counts[static_cast<int>(i / of_chunk) * shape.choice.experts + routes.expert[i]] += 1.0F;
}

void sum_choices(const RouterShape& shape, const float* counts, const ChoiceSums& sums) {
  const int experts = shape.choice.experts;
  std::fill_n(sums.all, experts, 0.0F);
  std::fill_n(sums.own, experts, 0.0F);
  for_each_stretch(shape.place, [&](int member, int stretch) {
    const float* const chosen =
        counts + offset(std::int64_t{member} * shape.chunks() + stretch, experts);
    if (member == shape.place.index())
      std::copy_n(sums.all, experts, sums.earlier + offset(stretch, experts));
    add_to(static_cast<std::size_t>(experts), chosen, sums.all);
    if (member / shape.place.tensor_parts == shape.place.context.index)
      add_to(static_cast<std::size_t>(experts), chosen, sums.own);
  });
}

// The load-balancing loss b · E · sum f · P has dP = b · E · f / rows, the z-loss
// z · mean(log(sum(e^logit))²) has dlogit = 2 · z · log(sum(e^logit)) · softmax(logit) / rows. From
// the gradient du of the scores u, dlogit is u · (du - sum of du · u) where they are the softmax,
// du · u · (1 - u) where they are the sigmoid.
void route_backward(const RouterShape& shape, float share, const float* logits,
                    const float* weights, const Routes& routes, const float* choices,
                    const float* dweights, float* dlogits, float* scratch) {
  const ExpertChoice& choice = shape.choice;
  const int experts = choice.experts, top_k = choice.top_k;
  float* const p = scratch;  // the softmax
  float* const sigmoid = scratch + experts;
  float* const balance = scratch + 2 * experts;
  const bool is_softmax = choice.scores == RouterScores::Softmax;
  const float* const u = is_softmax ? p : sigmoid;
  const float of_row = share / static_cast<float>(shape.all_rows());
  shares_of_experts(shape, routes, choices, balance);
  for (int e = 0; e < experts; ++e)
    balance[e] *= static_cast<float>(choice.balance_loss * experts) * of_row;
  for (int r = 0; r < shape.rows; ++r) {
    float* const d = dlogits + offset(r, experts);
    const cpu::SoftmaxSums sums = cpu::softmax(experts, logits + offset(r, experts), p);
    if (!is_softmax) score(choice, logits + offset(r, experts), sigmoid);
    const float z = 2.0F * static_cast<float>(choice.z_loss) * of_row *
                    (sums.maximum + cpu::log_of_normal(sums.sum));
    balance_backward(choice, balance, u, d);
    chosen_backward(choice, routes.expert + offset(r, top_k), weights + offset(r, top_k),
                    dweights + offset(r, top_k), u, d);
    if (is_softmax) {
      const float of_all = cpu::sum(experts, [=](int e) { return d[e] * u[e]; });
      for (int e = 0; e < experts; ++e) d[e] = u[e] * (d[e] - of_all + z);
    } else {
      for (int e = 0; e < experts; ++e) d[e] = d[e] * u[e] * (1.0F - u[e]) + z * p[e];
    }
  }
}

void gather_rows(const RouterShape& shape, int width, const Routes& routes, const float* x,
                 float* gathered) {
  for (std::size_t i = 0; i < shape.pairs(); ++i, gathered += width) {
    if (routes.row[i] == Routes::kDropped) {
      std::fill_n(gathered, width, 0.0F);
    } else {
      std::copy_n(x + offset(routes.row[i], width), width, gathered);
    }
  }
}

void sum_rows(const RouterShape& shape, int width, const Routes& routes, const float* gathered,
              float* x) {
  const std::int32_t* place = routes.place;
  for (int r = 0; r < shape.rows; ++r, x += width) {
    std::fill_n(x, width, 0.0F);
    for (int k = 0; k < shape.choice.top_k; ++k, ++place) {
      if (*place == Routes::kDropped) continue;
      const float* const from = gathered + offset(*place, width);
      for (int j = 0; j < width; ++j) x[j] += from[j];
    }
  }
}

void weigh_rows(const RouterShape& shape, int width, const Routes& routes, const float* weights,
                const float* z, float* y) {
  const std::int32_t* place = routes.place;
  for (int r = 0; r < shape.rows; ++r, y += width) {
    std::fill_n(y, width, 0.0F);
    for (int k = 0; k < shape.choice.top_k; ++k, ++place, ++weights) {
      if (*place == Routes::kDropped) continue;
      const float* const from = z + offset(*place, width);
      for (int j = 0; j < width; ++j) y[j] += *weights * from[j];
    }
  }
}

void weigh_rows_backward(const RouterShape& shape, int width, const Routes& routes,
                         const float* weights, const float* dy, const float* z, float* dz,
                         float* dweights) {
  const std::int32_t* place = routes.place;
  for (int r = 0; r < shape.rows; ++r, dy += width) {
    for (int k = 0; k < shape.choice.top_k; ++k, ++place, ++weights, ++dweights) {
      *dweights = 0;
      if (*place == Routes::kDropped) continue;
      const float* const from = z + offset(*place, width);
      float* const to = dz + offset(*place, width);
      *dweights = cpu::sum(width, [=](int j) { return from[j] * dy[j]; });
      for (int j = 0; j < width; ++j) to[j] = *weights * dy[j];
    }
  }
  const std::int64_t used = routes.begin[shape.runs()];
  std::fill(dz + offset(used, width), dz + offset(static_cast<std::int64_t>(shape.pairs()), width),
            0.0F);
}

void expert_linear_forward(const ExpertLinearShape& shape, const std::int32_t* begin,
                           const float* x, const float* w, float* y, Numerics numerics) {
  for_each_expert(shape, begin, [&](int e, const LinearShape& own, std::int64_t first) {
    linear_forward(own, x + offset(first, shape.in), w + matrix_of(shape, e),
                   y + offset(first, shape.out), numerics);
  });
  clear_rest(shape, begin, shape.out, y);
}

void expert_linear_backward_input(const ExpertLinearShape& shape, const std::int32_t* begin,
                                  const float* dy, const float* w, float* dx, Numerics numerics) {
  for_each_expert(shape, begin, [&](int e, const LinearShape& own, std::int64_t first) {
    linear_backward_input(own, dy + offset(first, shape.out), w + matrix_of(shape, e),
                          dx + offset(first, shape.in), numerics);
  });
  clear_rest(shape, begin, shape.in, dx);
}

void expert_linear_backward_weight(const ExpertLinearShape& shape, const RunsOfMember& runs,
                                   const std::int32_t* begin, const float* x, const float* dy,
                                   float* dw, Numerics numerics) {
  for_each_expert_of(runs, shape, begin, [&](int e, const LinearShape& own, std::int64_t first) {
    linear_backward_weight(own, x + offset(first, shape.in), dy + offset(first, shape.out),
                           dw + matrix_of(shape, e), numerics);
  });
}

void expert_bias_forward(const ExpertLinearShape& shape, const std::int32_t* begin,
                         const float* bias, float* y) {
  for_each_expert(shape, begin, [&](int e, const LinearShape& own, std::int64_t first) {
    bias_forward(own.rows, own.out, bias + offset(e, own.out), y + offset(first, own.out));
  });
}

void expert_bias_backward_weight(const ExpertLinearShape& shape, const RunsOfMember& runs,
                                 const std::int32_t* begin, const float* dy, float* dbias) {
  for_each_expert_of(runs, shape, begin, [&](int e, const LinearShape& own, std::int64_t first) {
    bias_backward_weight(own.rows, own.out, dy + offset(first, own.out),
                         dbias + offset(e, own.out));
  });
}

}  // namespace pipewright::exec
