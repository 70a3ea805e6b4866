#include "planner/configurations/requested_recompute.hpp"

#include <algorithm>

#include "core/base/error.hpp"

namespace pipewright::planner {
namespace {

using RecomputeByStage = ParallelSpace::ByStage;

AskedRecompute open_recompute() {
  return {{LayerRecompute::None, LayerRecompute::Attention, LayerRecompute::Whole},
          RecomputeByStage::Too};
}

AskedRecompute requested_values(const Choice& choice) {
  AskedRecompute asked;
  bool by_stage = false;
  for (const std::string& text : choice) {
    if (text == "by_stage") {
      by_stage = true;
    } else {
      asked.for_all.push_back(text == "full"        ? LayerRecompute::Whole
                              : text == "selective" ? LayerRecompute::Attention
                                                    : LayerRecompute::None);
    }
  }
  if (by_stage)
    asked.by_stage = asked.for_all.empty() ? RecomputeByStage::Only : RecomputeByStage::Too;
  return asked;
}

}  // namespace

bool AskedRecompute::admits(LayerRecompute recompute) const {
  return std::find(for_all.begin(), for_all.end(), recompute) != for_all.end();
}

AskedRecompute estimated_recompute(const Job& job) {
  using Kind = RecomputeSpec::Kind;
  const Kind kind = job.training.recompute.kind;
  if (kind == Kind::Listed) {
    throw InputError(
        "training.recompute names layers, and this job is estimated block by block; say none, "
        "selective or full, or leave it to the search");
  }
  if (!job.strategy.recompute.empty()) return requested_values(job.strategy.recompute);
  if (kind == Kind::None) return open_recompute();
  return {{kind == Kind::Full ? LayerRecompute::Whole : LayerRecompute::Attention}};
}

AskedRecompute layered_recompute(const Job& job) {
  if (!job.strategy.recompute.empty()) return requested_values(job.strategy.recompute);
  const bool says_nothing = job.training.recompute.kind == RecomputeSpec::Kind::None;
  if (job.strategy.opens_recompute && says_nothing) return open_recompute();
  return {.for_all = {LayerRecompute::None}, .fixed_by_training = true};
}

}  // namespace pipewright::planner
