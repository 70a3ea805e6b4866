#include "planner/estimate/tensor_exchange.hpp"

#include <algorithm>
#include <span>
#include <vector>

namespace pipewright::planner {

namespace {

/// The matrix of a product with weights, or those of a device's experts.
struct Matrix {
  double numbers = 0;
  int tensors = 1;
  bool of_experts = false;
};

/// In the order of the forward.
std::vector<Matrix> matrices_of(const BlockWork& work) {
  std::vector<Matrix> matrices;
  for (int p = 0; p < work.products_used; ++p) {
    const Matmul& product = work.products[static_cast<std::size_t>(p)];
    // The router is the last product, those of experts are the two before it.
    const bool of_experts =
        work.kind.has_experts() && p >= work.products_used - 3 && p < work.products_used - 1;
    matrices.push_back({product.columns * product.depth * product.count,
                        of_experts ? static_cast<int>(product.count) : 1, of_experts});
  }
  return matrices;
}

void add(WeightCount& count, const Matrix& matrix, int blocks) {
  count.all += blocks * matrix.numbers;
  count.of_experts += matrix.of_experts ? blocks * matrix.numbers : 0;
  (matrix.of_experts ? count.messages_of_experts : count.messages) += blocks * matrix.tensors;
}

/// Those of `blocks` alike blocks whose next use, in the backward, is further away than what comes
/// between: the forward and backward of the matrices after them.
void add_again(WeightCount& again, std::span<const Matrix> matrices, int blocks) {
  double after = 0;
  for (std::size_t m = matrices.size(); m-- > 0;) {
    if (2 * after >= kReuseDistance) add(again, matrices[m], blocks);
    after += matrices[m].numbers;
  }
}

}  // namespace

RangeWeights weights_by_tensor(const Architecture& model, const FrameworkTraits& framework,
                               const ParallelSetup& setup, const LayerRange& range) {
  RangeWeights weights = weights_of(model, setup, range);
  WeightCount matrices;
  int vectors = 0, adapters = 0;
  const int of_norm = model.biases ? 2 : 1;
  for_each_kind(range.blocks, [&](BlockKind kind, int count) {
    const BlockWork work = block_work(model, framework, setup, kind);
    const std::vector<Matrix> of_block = matrices_of(work);
    for (const Matrix& matrix : of_block) add(matrices, matrix, count);
    vectors += count * kind.parts() * of_norm;
    if (model.biases) vectors += count * work.products_used;
    adapters += count * 2 * work.adapters_used;
    if (setup.recompute.of_all == LayerRecompute::Whole) add_again(weights.again, of_block, count);
  });
  if (range.embedding) matrices.messages += model.learned_positions ? 2 : 1;
  if (range.head) {
    matrices.messages += range.embedding && model.tied_head ? 0 : 1;
    vectors += of_norm;
  }
  weights.messages = matrices.messages;
  weights.messages_of_experts = matrices.messages_of_experts;
  if (model.lora.is_used()) {
    weights.messages += adapters;
    weights.trained.messages = adapters;
  } else {
    weights.trained.messages = weights.messages + vectors;
    weights.trained.messages_of_experts = weights.messages_of_experts;
  }
  return weights;
}

double widest_tensor(const Architecture& model, const FrameworkTraits& framework,
                     const ParallelSetup& setup, BlockKind kind) {
  double widest = 0;
  for (const Matrix& matrix : matrices_of(block_work(model, framework, setup, kind)))
    widest = std::max(widest, matrix.numbers / matrix.tensors);
  return widest;
}

}  // namespace pipewright::planner
