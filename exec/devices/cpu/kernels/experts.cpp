// Mixtures of experts: the router's choice, rows sorted by expert, and products expert by expert.
#include <algorithm>
#include <cmath>

#include "exec/devices/cpu/kernels/reduce.hpp"
#include "exec/devices/cpu/kernels/softmax.hpp"
#include "exec/layers/expert_ops.hpp"
#include "exec/layers/ops.hpp"

namespace pipewright::exec {
namespace {

std::ptrdiff_t offset(std::int64_t row, int width) {
  return static_cast<std::ptrdiff_t>(row) * width;
}

/// The top_k largest of p[experts], which are not negative, in ascending order of experts, with
/// their numbers; p is used up.
void choose(const ExpertChoice& choice, float* p, std::int32_t* expert, float* weight) {
  constexpr float kTaken = -1.0F;
  for (int k = 0; k < choice.top_k; ++k) {
    int best = -1;
    for (int e = 0; e < choice.experts; ++e) {
      if (p[e] != kTaken && (best < 0 || p[e] > p[best])) best = e;
    }
    int at = k;
    for (; at > 0 && expert[at - 1] > best; --at) {
      expert[at] = expert[at - 1];
      weight[at] = weight[at - 1];
    }
    expert[at] = best;
    weight[at] = p[best];
    p[best] = kTaken;
  }
}

/// From Routes::expert to all the rest: a row takes the next place of each of its experts that has
/// one left.
void place_rows(const RouterShape& shape, const Routes& routes) {
  const int experts = shape.choice.experts;
  const std::size_t pairs = shape.pairs();
  const auto capacity = static_cast<std::int32_t>(expert_capacity(shape.choice, shape.rows));
  std::int32_t* const taken = routes.begin + 1;  // by expert; then where the next one begins
  std::fill_n(routes.begin, experts + 1, 0);
  for (std::size_t i = 0; i < pairs; ++i) {
    std::int32_t& before = taken[routes.expert[i]];
    routes.place[i] = before < capacity ? before++ : Routes::kDropped;
  }
  for (int e = 0; e < experts; ++e) taken[e] += routes.begin[e];
  std::fill_n(routes.row, pairs, Routes::kDropped);
  for (std::size_t i = 0; i < pairs; ++i) {
    if (routes.place[i] == Routes::kDropped) continue;
    routes.place[i] += routes.begin[routes.expert[i]];
    routes.row[routes.place[i]] =
        static_cast<std::int32_t>(i / static_cast<std::size_t>(shape.choice.top_k));
  }
}

/// The part of all pairs of rows and experts that each expert was chosen in, dropped or not.
void shares_of_experts(const RouterShape& shape, const Routes& routes, float* shares) {
  std::fill_n(shares, shape.choice.experts, 0.0F);
  for (std::size_t i = 0; i < shape.pairs(); ++i) shares[routes.expert[i]] += 1.0F;
  const float all = static_cast<float>(shape.pairs());
  for (int e = 0; e < shape.choice.experts; ++e) shares[e] /= all;
}

/// The sum of the probabilities of a row's experts, of which it may be that each is 0.
float sum_of_chosen(const ExpertChoice& choice, const std::int32_t* expert, const float* p) {
  float sum = 0;
  for (int k = 0; k < choice.top_k; ++k) sum += p[expert[k]];
  return sum;
}

/// each(expert, its rows, where they begin) of the runs [first, end) that have any.
template <class Each>
void for_each_run(const ExpertLinearShape& shape, int first, int end, const std::int32_t* begin,
                  Each each) {
  for (int i = first; i < end; ++i) {
    const int rows = begin[i + 1] - begin[i];
    if (rows > 0)
      each(i % shape.experts, LinearShape{rows, shape.in, shape.out}, std::int64_t{begin[i]});
  }
}
template <class Each>
void for_each_expert(const ExpertLinearShape& shape, const std::int32_t* begin, Each each) {
  for_each_run(shape, 0, shape.members * shape.experts, begin, each);
}
template <class Each>
void for_each_expert_of(int member, const ExpertLinearShape& shape, const std::int32_t* begin,
                        Each each) {
  for_each_run(shape, member * shape.experts, (member + 1) * shape.experts, begin, each);
}

/// Behind the last place.
void clear_rest(const ExpertLinearShape& shape, const std::int32_t* begin, int width, float* y) {
  std::fill(y + offset(begin[shape.members * shape.experts], width), y + offset(shape.rows, width),
            0.0F);
}

std::ptrdiff_t matrix_of(const ExpertLinearShape& shape, int expert) {
  return offset(offset(expert, shape.in), shape.out);
}

}  // namespace

void route(const RouterShape& shape, const float* logits, float* weights, const Routes& routes,
           float* scratch) {
  const ExpertChoice& choice = shape.choice;
  for (int r = 0; r < shape.rows; ++r) {
    std::int32_t* const expert = routes.expert + offset(r, choice.top_k);
    float* const weight = weights + offset(r, choice.top_k);
    cpu::softmax(choice.experts, logits + offset(r, choice.experts), scratch);
    choose(choice, scratch, expert, weight);
    if (!choice.normalises) continue;
    float sum = 0;
    for (int k = 0; k < choice.top_k; ++k) sum += weight[k];
    for (int k = 0; k < choice.top_k; ++k) weight[k] /= sum;
  }
  place_rows(shape, routes);
}

// With p the softmax of a row's logits and s the sum of those that were chosen: where weights are
// p / s, dp = (dweight - sum of dweight · weight) / s. The load-balancing loss b · E · sum f · P
// has dp = b · E · f / rows for all experts, the z-loss z · mean(log(sum(e^logit))²) has dlogit = 2
// · z · log(sum(e^logit)) · p / rows; and dlogit = p · (dp - sum of dp · p).
void route_backward(const RouterShape& shape, float share, const float* logits,
                    const float* weights, const Routes& routes, const float* dweights,
                    float* dlogits, float* scratch) {
  const ExpertChoice& choice = shape.choice;
  const int experts = choice.experts, top_k = choice.top_k;
  float* const p = scratch;
  float* const balance = scratch + experts;  // its dp
  const float of_row = share / static_cast<float>(shape.rows);
  shares_of_experts(shape, routes, balance);
  for (int e = 0; e < experts; ++e)
    balance[e] *= static_cast<float>(choice.balance_loss * experts) * of_row;
  for (int r = 0; r < shape.rows; ++r) {
    const std::int32_t* const expert = routes.expert + offset(r, top_k);
    const float* const weight = weights + offset(r, top_k);
    const float* const dweight = dweights + offset(r, top_k);
    float* const d = dlogits + offset(r, experts);
    const cpu::SoftmaxSums sums = cpu::softmax(experts, logits + offset(r, experts), p);
    std::copy_n(balance, experts, d);
    const float scale = choice.normalises ? 1.0F / sum_of_chosen(choice, expert, p) : 1.0F;
    const float mean =
        choice.normalises ? cpu::sum(top_k, [=](int k) { return dweight[k] * weight[k]; }) : 0.0F;
    for (int k = 0; k < top_k; ++k) d[expert[k]] += (dweight[k] - mean) * scale;
    const float of_all = cpu::sum(experts, [=](int e) { return d[e] * p[e]; });
    const float log_sum = sums.maximum + std::log(sums.sum);
    const float z = 2.0F * static_cast<float>(choice.z_loss) * of_row * log_sum;
    for (int e = 0; e < experts; ++e) d[e] = p[e] * (d[e] - of_all + z);
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
  const std::int64_t used = routes.begin[shape.choice.experts];
  std::fill(dz + offset(used, width), dz + offset(static_cast<std::int64_t>(shape.pairs()), width),
            0.0F);
}

void count_rows(const std::int32_t* begin, std::span<std::int32_t> counts) {
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = begin[i + 1] - begin[i];
}

void set_begins(std::span<const std::int32_t> counts, std::int32_t* begin) {
  begin[0] = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) begin[i + 1] = begin[i] + counts[i];
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

void expert_linear_backward_weight(const ExpertLinearShape& shape, int member,
                                   const std::int32_t* begin, const float* x, const float* dy,
                                   float* dw, Numerics numerics) {
  for_each_expert_of(member, shape, begin, [&](int e, const LinearShape& own, std::int64_t first) {
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

void expert_bias_backward_weight(const ExpertLinearShape& shape, int member,
                                 const std::int32_t* begin, const float* dy, float* dbias) {
  for_each_expert_of(member, shape, begin, [&](int e, const LinearShape& own, std::int64_t first) {
    bias_backward_weight(own.rows, own.out, dy + offset(first, own.out),
                         dbias + offset(e, own.out));
  });
}

}  // namespace pipewright::exec
