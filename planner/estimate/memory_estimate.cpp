// Bytes of a rank: what stays, what micro-batches in flight keep, what passes.
#include <algorithm>

#include "planner/estimate/step_estimate.hpp"

namespace pipewright::planner {

namespace {

/// Optimizer state of a weight: a 32-bit copy and two moments.
constexpr double kStateBytes = 12;

/// Chunks whose activations rank r holds at most under (interleaved) 1F1B: its forwards before the
/// first backward, and one (arXiv:2104.04473 §2.2).
int chunks_in_flight(const ParallelSetup& setup, int rank) {
  const int m = setup.micro_batches, p = setup.pipeline, v = setup.chunks;
  if (v == 1) return std::min(m, p - rank);
  return std::min(m * v, 2 * (p - rank - 1) + (v - 1) * p + 1);
}

struct BlocksOfRank {
  int dense = 0, with_experts = 0;
};

BlocksOfRank blocks_at(const Architecture& model, const ParallelSetup& setup, int rank) {
  int first = 0;
  for (int r = 0; r < rank; ++r) first += blocks_of(model, setup, r);
  const int count = blocks_of(model, setup, rank);
  const int experts =
      model.experts.count == 0
          ? 0
          : std::max(0, first + count - std::max(first, model.experts.dense_blocks));
  return {count - experts, experts};
}

void add_state(RankBytes& bytes, const Architecture& model, const FrameworkTraits& framework,
               const ParallelSetup& setup, int rank, const BlocksOfRank& blocks) {
  const bool is_first = rank == 0, is_last = rank == setup.pipeline - 1;
  const double table = static_cast<double>(model.vocabulary) * model.hidden / setup.tensor;
  double weights = blocks.dense * block_parameters_of_rank(model, setup, false) +
                   blocks.with_experts * block_parameters_of_rank(model, setup, true);
  if (is_first) {
    weights += table + (model.learned_positions ? model.sequence : 0.0) * model.hidden;
  }
  if (is_last) weights += (model.biases ? 2.0 : 1.0) * model.hidden;
  if (is_last && (!model.tied_head || !is_first)) weights += table;
  const double of_experts = blocks.with_experts * expert_parameters_of_rank(model, setup, true);
  const double replicas = setup.data * setup.context;
  // What `replicas` ranks share out; experts are on fewer of them.
  const double shared = (weights - of_experts) / replicas + of_experts * setup.experts / replicas;
  bytes.weights = 2 * (setup.zero >= 3 ? shared : weights);
  bytes.gradients = framework.gradient_bytes * (setup.zero >= 2 ? shared : weights);
  bytes.optimizer = kStateBytes * (setup.zero >= 1 ? shared : weights);
}

/// The embedding's dropout mask, or what the last norm, the head and the loss keep
/// (arXiv:2205.05198 §4.3).
double bytes_of_ends(const Architecture& model, const FrameworkTraits& framework,
                     const ParallelSetup& setup, int rank, double in_flight) {
  const BlockSizes sizes = block_sizes(model, setup);
  const double numbers = sizes.rows * model.hidden / sizes.outside;
  double bytes = rank == 0 && framework.dropout ? in_flight * numbers : 0;
  if (rank == setup.pipeline - 1) {
    const double logits = sizes.rows * model.vocabulary / setup.tensor;
    // 32-bit logits; a fused loss keeps 16-bit ones and writes the gradient over them.
    const double each = framework.fused_loss ? 2 : 4;
    bytes += 4 * numbers + each * logits;
  }
  return bytes;
}

/// Transformer Engine hands autograd an empty 16-bit gradient of each shape of weight while it adds
/// the real one to the 32-bit gradient, and keeps it: once for each shape on the rank.
double weight_buffers(const Architecture& model, const FrameworkTraits& framework,
                      const ParallelSetup& setup, int rank, const BlocksOfRank& blocks) {
  const int attention_products = model.latent.query_rank > 0 ? 5 : 2;
  double numbers = 0;
  const auto add = [&](bool experts, int from) {
    const BlockWork work = block_work(model, framework, setup, experts);
    const int end = work.products_used - (experts ? 1 : 0);  // the router is not one of its layers
    for (int p = from; p < end; ++p) {
      const Matmul& product = work.products[static_cast<std::size_t>(p)];
      numbers += product.columns * product.depth;
    }
  };
  if (blocks.dense > 0) add(false, 0);
  if (blocks.with_experts > 0) add(true, blocks.dense > 0 ? attention_products : 0);
  if (rank == setup.pipeline - 1) {
    numbers += static_cast<double>(model.vocabulary) * model.hidden / setup.tensor;
  }
  return 2 * numbers;
}

/// While a block goes backward: the block itself where it was forgotten, else the gradient of its
/// widest part.
double passing_bytes(const Architecture& model, const FrameworkTraits& framework,
                     const ParallelSetup& setup, int rank, const BlocksOfRank& blocks) {
  const bool experts = blocks.with_experts > 0;
  const double buffers =
      framework.keeps_weight_buffers ? weight_buffers(model, framework, setup, rank, blocks) : 0;
  if (setup.recompute == LayerRecompute::Whole) {
    return buffers + saved_bytes(model, framework, setup, experts, LayerRecompute::None);
  }
  if (!framework.keeps_weight_buffers) return 0;
  const BlockSizes sizes = block_sizes(model, setup);
  const double gates = model.gated ? 2 : 1;
  const double inner = experts ? sizes.rows * model.experts.chosen * model.experts.ffn
                               : sizes.rows * model.ffn / sizes.tensor;
  return buffers + 2 * gates * inner;
}

}  // namespace

std::string RankBytes::reason() const {
  const double state = weights + gradients + optimizer;
  if (activations >= state && activations >= ends) {
    const auto count = static_cast<int>(in_flight + 0.5);
    return "the activations of " + std::to_string(std::max(1, count)) +
           (count > 1 ? " micro-batches in flight" : " micro-batch");
  }
  if (ends > state) return "the logits";
  return optimizer >= weights + gradients ? "the optimizer's state" : "weights and gradients";
}

std::vector<RankBytes> estimate_memory(const Architecture& model, const FrameworkTraits& framework,
                                       const ParallelSetup& setup,
                                       const std::vector<int>& in_flight) {
  std::vector<RankBytes> ranks(static_cast<std::size_t>(setup.pipeline));
  const double dense = saved_bytes(model, framework, setup, false, setup.recompute);
  const double experts =
      model.experts.count > 0 ? saved_bytes(model, framework, setup, true, setup.recompute) : 0;
  for (int rank = 0; rank < setup.pipeline; ++rank) {
    RankBytes& bytes = ranks[static_cast<std::size_t>(rank)];
    const BlocksOfRank blocks = blocks_at(model, setup, rank);
    const int chunks = in_flight.empty() ? chunks_in_flight(setup, rank)
                                         : in_flight[static_cast<std::size_t>(rank)];
    bytes.in_flight = static_cast<double>(chunks) / setup.chunks;
    add_state(bytes, model, framework, setup, rank, blocks);
    bytes.activations = bytes.in_flight * (blocks.dense * dense + blocks.with_experts * experts);
    bytes.ends = bytes_of_ends(model, framework, setup, rank, bytes.in_flight);
    bytes.passing = passing_bytes(model, framework, setup, rank, blocks);
  }
  return ranks;
}

}  // namespace pipewright::planner
