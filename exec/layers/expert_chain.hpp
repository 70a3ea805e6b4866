// The layers of all experts that a rank holds, on rows in runs of one expert each
// (ExpertLinearShape in exec/layers/expert_ops.hpp). How many rows a micro-batch has is the
// router's decision.
#pragma once

#include "exec/layers/chain.hpp"
#include "exec/layers/expert_group.hpp"
#include "exec/layers/expert_ops.hpp"

namespace pipewright::exec {

/// Of the mixture that stands at the site.
RouterShape router_shape(const LayerSite& site, const ExpertChoice& choice);

class ExpertChain final : public LayerChain {
 public:
  /// Of the mixture that stands at the site; the experts of this rank, where others hold the rest.
  ExpertChain(const Layer& mixture, LayerSite site);

  /// Before F: where the runs of so many rows begin.
  static void take_runs(const RunBegins& begins, std::int64_t rows, Saved& saved);
  Task<Buffer> forward(Buffer x, Saved& saved) override;
  Task<Buffer> backward_input(Buffer dy, Saved& saved, bool wanted) override;
};

}  // namespace pipewright::exec
