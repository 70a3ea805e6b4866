// What QueueOps has for mixtures of experts. How many rows an expert takes is the router's
// decision, made on the GPU; products need it on the host, which waits for it once in each F
// (docs/decisions/0099-mixtures-on-gpus.md). Those of all experts are one launch where cuBLAS has
// one for their types (docs/decisions/0113-experts-in-one-launch.md).
#include <vector>

#include "core/model/experts.hpp"
#include "exec/devices/cuda/queue_ops.hpp"

namespace pipewright::exec::cuda {
namespace {

pipewright_cuda_router router_of(const ExpertChoice& choice) {
  return {choice.experts,
          choice.top_k,
          choice.scores == RouterScores::Sigmoid ? 1 : 0,
          choice.normalises ? 1 : 0,
          choice.groups,
          choice.top_groups,
          static_cast<float>(choice.scaling)};
}

std::size_t index(int i) { return static_cast<std::size_t>(i); }
std::size_t words(std::int64_t rows, int width) {
  return static_cast<std::size_t>(rows) * index(width);
}
/// Of each member and each of its experts.
int most_products(const ExpertLinearShape& shape) { return shape.members * shape.experts; }
/// Where an expert's matrix begins.
std::size_t matrix_of(const ExpertLinearShape& shape, int expert) {
  return index(expert) * index(shape.in) * index(shape.out);
}

}  // namespace

// --- The router ---

/// Sums of products as cuBLAS has them in any case, before they are rounded.
void QueueOps::router_forward(const LinearShape& s, const float* x, const float* w,
                              const float* bias, float* logits) {
  pipewright_cuda_gemm product = forward_product(s, x, w, logits);
  product.c_is_float = 1;
  queue_.multiply(product);
  if (bias != nullptr) queue_.run(queue_.kernels().router_bias, s.rows, s.out, bias, logits);
}

/// As wide as the other factor of its products.
Buffer QueueOps::rounded_logits(const LinearShape& s, const float* dlogits) {
  Buffer rounded = take(words(s.rows, s.out));
  queue_.run(queue_.kernels().round, words(s.rows, s.out), dlogits, rounded.at());
  return rounded;
}

void QueueOps::router_backward_input(const LinearShape& s, const float* dlogits, const float* w,
                                     float* dx) {
  if (queue_.number_bytes() == sizeof(float)) return linear_backward_input(s, dlogits, w, dx);
  linear_backward_input(s, rounded_logits(s, dlogits).floats(), w, dx);
}

void QueueOps::router_backward_weight(const LinearShape& s, const float* x, const float* dlogits,
                                      float* dw, float* dbias) {
  Buffer rounded;
  const float* factor = dlogits;
  if (queue_.number_bytes() != sizeof(float)) {
    rounded = rounded_logits(s, dlogits);
    factor = rounded.floats();
  }
  linear_backward_weight(s, x, factor, dw);
  if (dbias != nullptr) bias_backward_weight(s.rows, s.out, factor, dbias);
}

void QueueOps::route(const RouterShape& s, const float* logits, const float* bias, float* weights,
                     const Routes& routes) {
  const pipewright_cuda_router router = router_of(s.choice);
  const Buffer sums = take_floats(words(s.rows, s.choice.groups));
  queue_.run(queue_.kernels().route, s.rows, &router, logits, bias, sums.floats(), weights,
             routes.expert);
}

/// Scratch of kernels that count rows in blocks.
Buffer QueueOps::take_counts(const RouterShape& s, int chunks) {
  const int of_chunk = s.rows / chunks;
  const int blocks =
      chunks * ((of_chunk + PIPEWRIGHT_CUDA_ROUTED_ROWS - 1) / PIPEWRIGHT_CUDA_ROUTED_ROWS);
  return take_ids(words(blocks, s.choice.experts));
}

void QueueOps::place_rows(const RouterShape& s, const float* earlier, const Routes& routes) {
  const std::int64_t capacity =
      s.choice.capacity_factor > 0 ? expert_capacity(s.choice, s.all_rows()) : -1;
  const Buffer counts = take_counts(s, s.chunks());
  queue_.run(queue_.kernels().place_rows, s.rows, s.choice.top_k, s.chunks(), s.choice.experts,
             capacity, earlier, routes.expert, counts.ids(), routes.begin, routes.place,
             routes.row);
}

void QueueOps::count_choices(const RouterShape& s, const Routes& routes, int chunks, bool adds,
                             float* counts) {
  const Buffer of_blocks = take_counts(s, chunks);
  queue_.run(queue_.kernels().count_choices, s.rows, s.choice.top_k, chunks, s.choice.experts,
             routes.expert, of_blocks.ids(), adds ? 1 : 0, counts);
}

void QueueOps::count_choices(const RouterShape& s, const Routes& routes, float* counts) {
  count_choices(s, routes, 1, !begins(counts, index(s.choice.experts)), counts);
}

void QueueOps::balance(int experts, float rate, const float* counts, float* bias) {
  queue_.run(queue_.kernels().balance, experts, rate, counts, bias);
}

void QueueOps::count_choices_of_chunks(const RouterShape& s, const Routes& routes, float* counts) {
  count_choices(s, routes, s.chunks(), false, counts);
}

/// A few launches a rank: there are few ranks, and few numbers.
void QueueOps::sum_choices(const RouterShape& s, const float* counts, const ChoiceSums& sums) {
  const std::size_t experts = index(s.choice.experts);
  const auto add = queue_.cuda().fast.add_to;
  queue_.clear(sums.all, experts * sizeof(float));
  queue_.clear(sums.own, experts * sizeof(float));
  for_each_stretch(s.place, [&](int member, int stretch) {
    const float* const chosen =
        counts + words(std::int64_t{member} * s.chunks() + stretch, s.choice.experts);
    if (member == s.place.index())
      queue_.copy(sums.earlier + words(stretch, s.choice.experts), sums.all,
                  experts * sizeof(float));
    queue_.run(add, experts, chosen, sums.all);
    if (member / s.place.tensor_parts == s.place.context.index)
      queue_.run(add, experts, chosen, sums.own);
  });
}

void QueueOps::route_backward(const RouterShape& s, float share, const float* logits,
                              const float* weights, const Routes& routes, const float* choices,
                              const float* dweights, float* dlogits) {
  const ExpertChoice& choice = s.choice;
  const pipewright_cuda_router router = router_of(choice);
  const float of_row = share / static_cast<float>(s.all_rows());
  const float balance = static_cast<float>(choice.balance_loss * choice.experts) * of_row;
  const float z = 2.0F * static_cast<float>(choice.z_loss) * of_row;
  const auto all = static_cast<float>(s.all_rows() * choice.top_k);
  Buffer counted;
  if (choice.balance_loss > 0 && choices == nullptr) {
    counted = take_floats(index(choice.experts));
    count_choices(s, routes, 1, false, counted.floats());
    choices = counted.floats();
  }
  if (choice.balance_loss == 0) choices = nullptr;
  queue_.run(queue_.kernels().route_backward, s.rows, &router, balance, z, all, logits, weights,
             routes.expert, choices, dweights, dlogits);
}

// --- Rows ---

void QueueOps::gather_rows(const RouterShape& s, int width, const Routes& routes, const float* x,
                           float* gathered) {
  queue_.run(queue_.kernels().gather_rows, s.pairs(), width, routes.row, x, gathered);
}

void QueueOps::sum_rows(const RouterShape& s, int width, const Routes& routes,
                        const float* gathered, float* x) {
  const float* const as_they_are = nullptr;
  queue_.run(queue_.kernels().weigh_rows, s.rows, s.choice.top_k, width, routes.place, as_they_are,
             gathered, x);
}

void QueueOps::weigh_rows(const RouterShape& s, int width, const Routes& routes,
                          const float* weights, const float* z, float* y) {
  queue_.run(queue_.kernels().weigh_rows, s.rows, s.choice.top_k, width, routes.place, weights, z,
             y);
}

void QueueOps::weigh_rows_backward(const RouterShape& s, int width, const Routes& routes,
                                   const float* weights, const float* dy, const float* z, float* dz,
                                   float* dweights) {
  queue_.run(queue_.kernels().weigh_rows_backward, s.rows, s.choice.top_k, width, routes.place,
             weights, dy, z, dz, dweights);
  if (s.choice.capacity_factor > 0)
    queue_.run(queue_.kernels().clear_behind, s.pairs(), width, routes.begin + s.runs(), dz);
}

// --- Experts ---

RunBegins QueueOps::fetch_begins(const std::int32_t* begin, std::size_t runs, int) {
  if (fetched_.size() < runs + 1) fetched_ = Pinned<std::int32_t>(queue_.cuda(), runs + 1);
  queue_.copy(fetched_.data(), begin, (runs + 1) * sizeof(std::int32_t));
  queue_.finish(queue_.record(queue_.computing()), between_);
  return std::make_shared<const std::vector<std::int32_t>>(fetched_.data(),
                                                           fetched_.data() + runs + 1);
}

void QueueOps::clear_behind_runs(const ExpertLinearShape& s, const std::int32_t* begin, int width,
                                 float* rows) {
  const std::int64_t used = begin[s.members * s.experts * s.chunks];
  if (used < s.rows) clear(words(s.rows - used, width), at(rows, words(used, width)));
}

void QueueOps::expert_linear_forward(const ExpertLinearShape& s, const std::int32_t* begin,
                                     const float* x, const float* w, float* y) {
  std::vector<pipewright_cuda_gemm> products;
  for_each_expert(s, begin, [&](int e, const LinearShape& own, std::int64_t first) {
    products.push_back(forward_product(own, at(x, words(first, s.in)), at(w, matrix_of(s, e)),
                                       at(y, words(first, s.out))));
  });
  queue_.multiply_all(products, most_products(s));
  clear_behind_runs(s, begin, s.out, y);
}

void QueueOps::expert_linear_backward_input(const ExpertLinearShape& s, const std::int32_t* begin,
                                            const float* dy, const float* w, float* dx) {
  std::vector<pipewright_cuda_gemm> products;
  for_each_expert(s, begin, [&](int e, const LinearShape& own, std::int64_t first) {
    products.push_back(input_product(own, at(dy, words(first, s.out)), at(w, matrix_of(s, e)),
                                     at(dx, words(first, s.in))));
  });
  queue_.multiply_all(products, most_products(s));
  clear_behind_runs(s, begin, s.in, dx);
}

void QueueOps::expert_linear_backward_weight(const ExpertLinearShape& s, const RunsOfMember& runs,
                                             const std::int32_t* begin, const float* x,
                                             const float* dy, float* dw) {
  std::vector<pipewright_cuda_gemm> products;
  for_each_expert_of(runs, s, begin, [&](int e, const LinearShape& own, std::int64_t first) {
    products.push_back(weight_product(own, at(x, words(first, s.in)), at(dy, words(first, s.out)),
                                      dw + matrix_of(s, e)));
  });
  queue_.multiply_all(products, most_products(s));
}

void QueueOps::expert_bias_forward(const ExpertLinearShape& s, const std::int32_t* begin,
                                   const float* bias, float* y) {
  for_each_expert(s, begin, [&](int e, const LinearShape& own, std::int64_t first) {
    bias_forward(own.rows, own.out, at(bias, words(e, own.out)), at(y, words(first, own.out)));
  });
}

void QueueOps::expert_bias_backward_weight(const ExpertLinearShape& s, const RunsOfMember& runs,
                                           const std::int32_t* begin, const float* dy,
                                           float* dbias) {
  for_each_expert_of(runs, s, begin, [&](int e, const LinearShape& own, std::int64_t first) {
    bias_backward_weight(own.rows, own.out, at(dy, words(first, own.out)),
                         dbias + words(e, own.out));
  });
}

}  // namespace pipewright::exec::cuda
