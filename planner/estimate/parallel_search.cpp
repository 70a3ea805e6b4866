#include "planner/estimate/parallel_search.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"

namespace pipewright::planner {

namespace {

/// Powers of two up to `most`, and its divisors.
std::vector<int> degrees(int most) {
  std::vector<int> list;
  for (int n = 1; n <= most; ++n) {
    if ((n & (n - 1)) == 0 || most % n == 0) list.push_back(n);
  }
  return list;
}

std::vector<int> powers(int most) {
  std::vector<int> list;
  for (int n = 1; n <= most; n *= 2) list.push_back(n);
  return list;
}

std::vector<int> open_or(const std::vector<int>& asked, std::vector<int> open) {
  return asked.empty() ? std::move(open) : asked;
}

bool admits(const std::vector<int>& asked, int value) {
  return asked.empty() || std::find(asked.begin(), asked.end(), value) != asked.end();
}

void require_positive(const ParallelSpace& space) {
  for (const auto* list : {&space.tensor, &space.pipeline, &space.data, &space.chunks,
                           &space.experts, &space.context, &space.micro_batch_size}) {
    for (const int value : *list) {
      if (value < 1) {
        throw InputError("expected degrees and sizes of at least 1, found " +
                         std::to_string(value));
      }
    }
  }
  for (const int stage : space.zero) {
    if (stage < 0 || stage > 3) {
      throw InputError("expected a ZeRO stage from 0 to 3, found " + std::to_string(stage));
    }
  }
  if (space.devices < 1 || space.global_batch < 1) {
    throw InputError("expected at least one device and one sample a step");
  }
}

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
    limit_ = machine.nodes.front().device.memory_bytes;
    for (const NodeRates& node : machine.nodes) {
      limit_ = std::min(limit_, node.device.memory_bytes);
    }
    limit_ *= 1 - space.margin;
  }

  ParallelResult run() {
    require_positive(space_);
    const int devices = space_.devices;
    for (const int tensor : open_or(space_.tensor, degrees(std::min(devices, model_.heads)))) {
      for (const int pipeline :
           open_or(space_.pipeline, degrees(std::min(devices, model_.blocks)))) {
        for (const int context : open_or(space_.context, {1})) add_mesh(tensor, pipeline, context);
      }
    }
    make_front();
    return std::move(result_);
  }

 private:
  void add_mesh(int tensor, int pipeline, int context) {
    const std::int64_t used = std::int64_t{tensor} * pipeline * context;
    if (used > space_.devices || space_.devices % used != 0) return;  // not a mesh of the space
    ParallelSetup setup;
    setup.tensor = tensor;
    setup.pipeline = pipeline;
    setup.context = context;
    setup.overlap_gradients = space_.overlap_gradients;
    setup.data = static_cast<int>(space_.devices / used);
    if (!admits(space_.data, setup.data)) return;
    if (space_.global_batch % setup.data != 0) {
      ++result_.configurations;
      ++result_.pruned["dp does not divide the global batch"];
      return;
    }
    const int most_experts = model_.experts.count > 0 ? setup.data * context : 1;
    for (const int experts : open_or(space_.experts, degrees(most_experts))) {
      setup.experts = experts;
      add_batchings(setup);
    }
  }

  void add_batchings(ParallelSetup setup) {
    const int samples = space_.global_batch / setup.data;
    for (const int size : open_or(space_.micro_batch_size, powers(samples))) {
      if (samples % size != 0) {
        ++result_.configurations;
        ++result_.pruned["the micro-batch size does not divide a replica's samples"];
        continue;
      }
      setup.micro_batch_size = size;
      setup.micro_batches = samples / size;
      const int most = setup.pipeline > 1 ? model_.blocks / setup.pipeline : 1;
      for (const int chunks : open_or(space_.chunks, powers(std::max(1, most)))) {
        setup.chunks = chunks;
        add_savings(setup);
      }
    }
  }

  void add_savings(ParallelSetup setup) {
    static const std::vector<LayerRecompute> kEvery{LayerRecompute::None, LayerRecompute::Attention,
                                                    LayerRecompute::Whole};
    const auto& recomputes = space_.recompute.empty() ? kEvery : space_.recompute;
    const std::vector<bool> sequences = !space_.sequence_parallel.empty() ? space_.sequence_parallel
                                        : setup.tensor > 1 ? std::vector<bool>{false, true}
                                                           : std::vector<bool>{false};
    const int most_zero = setup.data * setup.context > 1 ? 3 : 0;
    std::vector<int> stages;
    for (int stage = 0; stage <= most_zero; ++stage) stages.push_back(stage);
    for (const LayerRecompute recompute : recomputes) {
      // Flash attention has no scores to compute again.
      if (recompute == LayerRecompute::Attention && framework_.flash_attention) continue;
      setup.recompute = recompute;
      for (const bool sequence : sequences) {
        setup.sequence_parallel = sequence;
        for (const int stage : open_or(space_.zero, stages)) {
          setup.zero = stage;
          consider(setup);
        }
      }
    }
  }

  void consider(const ParallelSetup& setup) {
    ++result_.configurations;
    if (const auto reason = refusal(model_, machine_, setup)) {
      ++result_.pruned[rule_of(*reason)];
      return;
    }
    if (!exhaustive_ && result_.ranked.size() == keep_ &&
        lower_bound(model_, machine_, setup) > result_.ranked.back().estimate.step) {
      ++result_.pruned["slower by the bound"];
      return;
    }
    ParallelCandidate candidate;
    candidate.setup = setup;
    if (!fits(candidate)) {
      ++result_.pruned["over memory"];
      return;
    }
    candidate.estimate = estimate_step(model_, framework_, machine_, setup);
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

  /// The rule behind a refusal, without its numbers.
  static std::string rule_of(const std::string& reason) {
    if (reason.find("heads") != std::string::npos) return "tp * cp does not divide the heads";
    if (reason.find("interleaving") == 0) return "interleaving needs m in multiples of pp";
    if (reason.find("ZeRO") == 0) return "ZeRO 2 and 3 with a pipeline";
    if (reason.find("ep = ") == 0) return "ep divides experts and replicas";
    if (reason.find("sequence parallel") == 0) return "sequence parallel without tp";
    return "more stages than layers";
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
  ParallelResult result_;
};

}  // namespace

ParallelResult search_parallel(const Architecture& model, const FrameworkTraits& framework,
                               const Machine& machine, const ParallelSpace& space, int keep,
                               bool exhaustive) {
  check(model);
  return Searcher(model, framework, machine, space, keep, exhaustive).run();
}

double lower_bound(const Architecture& model, const Machine& machine, const ParallelSetup& setup) {
  double rate = 0;
  for (const NodeRates& node : machine.nodes) {
    rate = std::max(rate, node.device.peak_flops * node.device.matmul_efficiency);
  }
  // A block without its attention's core, in the framework with the least to do around it.
  const auto seconds = [&](bool experts) {
    const BlockWork work = block_work(model, megatron_core(), setup, experts);
    double flops = 0;
    for (int p = 0; p < work.products_used; ++p) {
      flops += work.products[static_cast<std::size_t>(p)].flops();
    }
    return (setup.recompute == LayerRecompute::Whole ? 4 : 3) * flops / rate;
  };
  const double dense = seconds(false);
  const double least = model.experts.count > 0 ? std::min(dense, seconds(true)) : dense;
  const double blocks = std::ceil(static_cast<double>(model.blocks) / setup.pipeline);
  return least * (setup.micro_batches * blocks + (model.blocks - blocks) / setup.chunks);
}

std::string describe(const ParallelSetup& setup) {
  std::string text = "tp " + std::to_string(setup.tensor) + ", pp " +
                     std::to_string(setup.pipeline) + ", dp " + std::to_string(setup.data);
  if (setup.context > 1) text += ", cp " + std::to_string(setup.context);
  if (setup.experts > 1) text += ", ep " + std::to_string(setup.experts);
  if (setup.chunks > 1) text += ", vpp " + std::to_string(setup.chunks);
  text += ", micro-batches of " + std::to_string(setup.micro_batch_size);
  if (setup.recompute == LayerRecompute::Whole) text += ", full recompute";
  if (setup.recompute == LayerRecompute::Attention) text += ", selective recompute";
  if (setup.sequence_parallel) text += ", sequence parallel";
  if (setup.zero > 0) text += ", ZeRO " + std::to_string(setup.zero);
  return text;
}

}  // namespace pipewright::planner
