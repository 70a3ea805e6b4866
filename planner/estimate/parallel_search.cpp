#include "planner/estimate/parallel_search.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "planner/estimate/layer_seconds.hpp"
#include "planner/estimate/step_parts.hpp"

namespace pipewright::planner {

namespace {

/// One object for one search.
class Searcher {
 public:
  Searcher(const Architecture& model, const FrameworkTraits& framework, const Machine& machine,
           const ParallelSpace& space, int keep, bool exhaustive)
      : model_(model),
        framework_(framework),
        machine_(machine),
        space_(space),
        keep_(static_cast<std::size_t>(std::max(1, keep))),
        exhaustive_(exhaustive) {
    limit_ = usable_bytes(space, machine.nodes.front());
    for (const NodeRates& node : machine.nodes)
      limit_ = std::min(limit_, usable_bytes(space, node));
  }

  ParallelResult run() {
    check(space_);
    const SetupSpace space{
        [this](const SpaceVisitor& visitor) {
          for_each_setup(model_, framework_, space_, visitor);
        },
        [this](const ParallelSetup& setup) { return refusal(model_, machine_, setup); },
        [](const ParallelSetup& setup) { return describe(setup); }};
    walk_space(
        space, [this](const ParallelSetup& setup) { consider(setup); }, left_out_);
    result_.pruned = std::move(left_out_.counts);
    result_.configurations = result_.estimated + sum_of(result_.pruned);
    make_front();
    return std::move(result_);
  }

 private:
  void consider(const ParallelSetup& setup) {
    if (!exhaustive_ && result_.ranked.size() == keep_ &&
        lower_bound(model_, framework_, machine_, setup) > result_.ranked.back().estimate.step) {
      left_out_.add(LeftOut::SlowerByBound);
      return;
    }
    ParallelCandidate candidate;
    candidate.setup = setup;
    if (!fits(candidate)) {
      left_out_.add(LeftOut::OverDeviceMemory);
      return;
    }
    candidate.estimate = estimate_step(model_, framework_, machine_, setup, &known_);
    ++result_.estimated;
    if (exhaustive_) add_to_front(candidate);
    rank(std::move(candidate));
  }

  bool fits(ParallelCandidate& candidate) const {
    const auto ranks = estimate_memory(model_, framework_, candidate.setup);
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      if (ranks[r].peak() <= candidate.peak_bytes) continue;
      candidate.peak_bytes = ranks[r].peak();
      candidate.fullest_rank = static_cast<int>(r);
    }
    candidate.reason = ranks[static_cast<std::size_t>(candidate.fullest_rank)].reason();
    return candidate.peak_bytes <= limit_;
  }

  static bool better(const ParallelCandidate& a, const ParallelCandidate& b) {
    if (a.estimate.step != b.estimate.step) return a.estimate.step < b.estimate.step;
    return a.peak_bytes < b.peak_bytes;
  }

  void rank(ParallelCandidate candidate) {
    auto& ranked = result_.ranked;
    const auto place = std::upper_bound(ranked.begin(), ranked.end(), candidate, better);
    if (place == ranked.end() && ranked.size() == keep_) return;
    ranked.insert(place, std::move(candidate));
    if (ranked.size() > keep_) ranked.pop_back();
  }

  /// Keeps the front sorted by time, so that memory falls along it.
  void add_to_front(const ParallelCandidate& candidate) {
    auto& front = result_.front;
    const auto place = std::upper_bound(front.begin(), front.end(), candidate, better);
    if (place != front.begin() && (place - 1)->peak_bytes <= candidate.peak_bytes) return;
    const auto inserted = front.insert(place, candidate);
    const auto beaten = std::find_if(
        inserted + 1, front.end(),
        [&](const ParallelCandidate& other) { return other.peak_bytes < candidate.peak_bytes; });
    front.erase(inserted + 1, beaten);
  }

  void make_front() {
    if (exhaustive_) return;
    for (const ParallelCandidate& candidate : result_.ranked) add_to_front(candidate);
  }

  const Architecture& model_;
  const FrameworkTraits& framework_;
  const Machine& machine_;
  const ParallelSpace& space_;
  std::size_t keep_;
  bool exhaustive_;
  double limit_ = 0;
  KnownLayers known_;
  LeftOutTally left_out_;
  ParallelResult result_;
};

}  // namespace

ParallelResult search_parallel(const Architecture& model, const FrameworkTraits& framework,
                               const Machine& machine, const ParallelSpace& space, int keep,
                               bool exhaustive) {
  check(model);
  return Searcher(model, framework, machine, space, keep, exhaustive).run();
}

double lower_bound(const Architecture& model, const FrameworkTraits& framework,
                   const Machine& machine, const ParallelSetup& setup) {
  double rate = 0;
  for (const NodeRates& node : machine.nodes) {
    rate = std::max(rate, node.device.product_rate(framework.product_bytes));
  }
  // A block without its attention's core, in the framework with the least to do around it.
  const bool computes_all_again =
      setup.recompute.of_all == LayerRecompute::Whole && !framework.leaves_out_recompute();
  const auto seconds = [&](BlockKind kind) {
    const BlockWork work = block_work(model, megatron_core(), setup, kind);
    double flops = 0;
    for (int p = 0; p < work.products_used; ++p) {
      flops += work.products[static_cast<std::size_t>(p)].flops();
    }
    return ((computes_all_again ? 4 : 3) - (model.lora.is_used() ? 1 : 0)) * flops / rate;
  };
  double least = std::numeric_limits<double>::infinity();
  for_each_kind(blocks_in(model, 0, model.blocks).blocks,
                [&](BlockKind kind, int /*count*/) { least = std::min(least, seconds(kind)); });
  // The backward of the first one ends at its first adapter.
  const double all = model.blocks - (model.lora.is_used() ? 1 : 0);
  const double blocks = std::ceil(all / setup.pipeline);
  return least * (setup.micro_batches * blocks + (all - blocks) / setup.chunks);
}

}  // namespace pipewright::planner
