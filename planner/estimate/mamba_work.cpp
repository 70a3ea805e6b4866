// Mamba-2 on one rank (arXiv:2405.21060): a product into it and one out of it, which tensor
// parallel ranks divide by heads, and between them a convolution and a scan in chunks of the
// sequence. Counts and bytes of the kernels that its authors publish (state-spaces/mamba,
// mamba_ssm/ops/triton/ssd_combined.py), which Megatron core calls.
#include "planner/estimate/block_work.hpp"

namespace pipewright::planner {

namespace {

/// Tokens of a chunk (Megatron core, ssm/mamba_mixer.py, chunk_size).
constexpr double kChunk = 128;

/// Widths on one rank.
struct MambaPart {
  double heads = 0, inner = 0, convolved = 0, entering = 0, groups = 0;
};

MambaPart part_of(const MambaWidths& mamba, double tensor) {
  return {mamba.heads / tensor, mamba.inner() / tensor, mamba.convolved() / tensor,
          mamba.entering() / tensor, mamba.groups / tensor};
}

}  // namespace

void add_mamba(BlockWork& work, const Architecture& model, const BlockSizes& sizes) {
  const MambaWidths& mamba = model.mamba;
  const MambaPart part = part_of(mamba, sizes.tensor);
  const double rows = sizes.rows, hidden = model.hidden, state = mamba.state;
  work.add({rows, part.entering, hidden});
  work.add({rows, hidden, part.inner});
  // Of each token: the scores of its chunk up to itself for each group, these with the inputs of
  // each head, and the state written and read.
  const double products = kChunk / 2 * (part.groups * state + part.inner) + 2 * part.inner * state;
  work.scan_flops = 2 * rows * products;
  // In 16 bits: the convolution reads and writes, the chunks' states and the scan each read that,
  // the scan reads the gate and writes, the norm behind it reads both and writes. A chunk's state
  // in 32 bits is written, read and written where states are passed on, and read by the scan.
  const double numbers = 2 * part.convolved + 2 * part.convolved + 2 * part.inner + 3 * part.inner;
  work.scan_traffic = rows * (2 * numbers + 4 * 4 * part.inner * state / kChunk);
}

double mamba_bytes(const Architecture& model, const FrameworkTraits& framework,
                   const BlockSizes& sizes) {
  // What enters it and what the scan makes; the rest is computed again. And the last product's
  // input.
  const MambaPart part = part_of(model.mamba, sizes.tensor);
  return sizes.rows * (2 * (part.entering + part.inner) + framework.product_bytes * part.inner);
}

}  // namespace pipewright::planner
