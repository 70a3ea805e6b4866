#include "planner/estimate/parallel_space.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "planner/estimate/block_work.hpp"

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

/// One object for one enumeration.
class Setups {
 public:
  Setups(const Architecture& model, const FrameworkTraits& framework, const ParallelSpace& space,
         const SpaceVisitor& visitor)
      : model_(model), framework_(framework), space_(space), visitor_(visitor) {}

  void run() const {
    const int devices = space_.devices;
    for (const int tensor : open_or(space_.tensor, degrees(std::min(devices, model_.heads)))) {
      for (const int pipeline : open_or(space_.pipeline, pipelines())) {
        for (const int context : open_or(space_.context, {1})) add_mesh(tensor, pipeline, context);
      }
    }
  }

 private:
  /// Of a pipeline: what divides the devices, since ranks need not hold equally many blocks (70 on
  /// 12), and what divides the blocks, for fewer devices.
  std::vector<int> pipelines() const {
    const int most = std::min(space_.devices, layers_of(model_));
    std::vector<int> list;
    for (int n = 1; n <= most; ++n) {
      if ((n & (n - 1)) == 0 || space_.devices % n == 0 || model_.blocks % n == 0)
        list.push_back(n);
    }
    return list;
  }

  /// Stages of a rank: also those that give each stage as many blocks, or as many layers.
  std::vector<int> chunks_of(int pipeline) const {
    const int layers = layers_of(model_);
    std::vector<int> list{1};
    const int most = pipeline > 1 && framework_.interleaves ? layers / pipeline : 1;
    for (int n = 2; n <= most; ++n) {
      const int stages = pipeline * n;
      if ((n & (n - 1)) == 0 || model_.blocks % stages == 0 || layers % stages == 0)
        list.push_back(n);
    }
    return list;
  }

  void add_mesh(int tensor, int pipeline, int context) const {
    const std::int64_t used = std::int64_t{tensor} * pipeline * context;
    ParallelSetup setup;
    setup.tensor = tensor;
    setup.pipeline = pipeline;
    setup.context = context;
    setup.overlap_gradients = space_.overlap_gradients;
    setup.blocks_of_rank = space_.blocks_of_rank;
    for (const int data : space_.data) {
      if (used * data > space_.devices) {
        setup.data = data;
        visitor_.ruled_out(LeftOut::MoreThanDevices, setup);
        continue;
      }
      setup.data = data;
      add_replicas(setup);
    }
    if (!space_.data.empty()) return;
    if (used > space_.devices || space_.devices % used != 0) {
      // Open degrees are only tried where they divide.
      if (!space_.tensor.empty() || !space_.pipeline.empty() || !space_.context.empty())
        visitor_.ruled_out(LeftOut::NoDivisorOfDevices, setup);
      return;
    }
    setup.data = static_cast<int>(space_.devices / used);
    add_replicas(setup);
  }

  void add_replicas(ParallelSetup setup) const {
    if (space_.global_batch % setup.data != 0) {
      visitor_.ruled_out(LeftOut::ReplicasOfBatch, setup);
      return;
    }
    std::vector<int> divided{0};
    if (space_.whole_experts_too && setup.tensor > 1) divided.push_back(1);
    divided =
        model_.experts.count > 0 ? open_or(space_.expert_tensor, divided) : std::vector<int>{0};
    for (const int tensor : divided) {
      setup.expert_tensor_degree = tensor == setup.tensor ? 0 : tensor;
      const int ranks = setup.tensor * setup.data * setup.context / setup.expert_tensor();
      const int most = model_.experts.count > 0 ? std::max(1, ranks) : 1;
      for (const int experts : open_or(space_.experts, degrees(most))) {
        setup.experts = experts;
        add_batchings(setup);
      }
    }
  }

  void add_batchings(ParallelSetup setup) const {
    const int samples = space_.global_batch / setup.data;
    for (const int size : open_or(space_.micro_batch_size, powers(samples))) {
      if (samples % size != 0) {
        setup.micro_batch_size = size;
        visitor_.ruled_out(LeftOut::SizeOfSamples, setup);
        continue;
      }
      setup.micro_batch_size = size;
      setup.micro_batches = samples / size;
      for (const int chunks : open_or(space_.chunks, chunks_of(setup.pipeline))) {
        setup.chunks = chunks;
        add_recomputes(setup);
      }
    }
  }

  void add_recomputes(ParallelSetup setup) const {
    static const std::vector<LayerRecompute> kEvery{LayerRecompute::None, LayerRecompute::Attention,
                                                    LayerRecompute::Whole};
    using ByStage = ParallelSpace::ByStage;
    if (space_.by_stage != ByStage::Only) {
      for (const LayerRecompute recompute : space_.recompute.empty() ? kEvery : space_.recompute) {
        // Flash attention has no scores to compute again: only who asks for nothing else gets it.
        if (recompute == LayerRecompute::Attention && !has_selective_recompute(framework_) &&
            space_.recompute.size() != 1)
          continue;
        setup.recompute = {recompute};
        add_savings(setup);
      }
    }
    if (space_.by_stage == ByStage::No) return;
    setup.recompute = {.by_stage = true};
    add_savings(setup);
  }

  void add_savings(ParallelSetup setup) const {
    const bool open = setup.tensor > 1 && framework_.divides_sequence;
    const std::vector<bool> sequences = !space_.sequence_parallel.empty() ? space_.sequence_parallel
                                        : open ? std::vector<bool>{false, true}
                                               : std::vector<bool>{false};
    const int most_zero = setup.data * setup.context > 1 ? 3 : 0;
    std::vector<int> stages;
    for (int stage = 0; stage <= most_zero; ++stage) stages.push_back(stage);
    for (const bool sequence : sequences) {
      setup.sequence_parallel = sequence;
      for (const int stage : open_or(space_.zero, stages)) {
        setup.zero = stage;
        for (const int shards : stage > 0 ? open_or(space_.shards, {0}) : std::vector<int>{0}) {
          setup.shards = shards;
          visitor_.visit(setup);
        }
      }
    }
  }

  const Architecture& model_;
  const FrameworkTraits& framework_;
  const ParallelSpace& space_;
  const SpaceVisitor& visitor_;
};

}  // namespace

double usable_bytes(const ParallelSpace& space, const NodeRates& node) {
  const double memory = node.device.memory_bytes;
  const double shown = shown_share(node.device.name) * memory;
  // A device that a file makes tiny is no real one.
  return std::min(memory * (1 - space.margin), shown - std::min(kBesideTensors, memory / 8));
}

void check(const ParallelSpace& space) {
  for (const auto* list :
       {&space.tensor, &space.pipeline, &space.data, &space.chunks, &space.experts,
        &space.expert_tensor, &space.context, &space.micro_batch_size, &space.shards}) {
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

void for_each_setup(const Architecture& model, const FrameworkTraits& framework,
                    const ParallelSpace& space, const SpaceVisitor& visitor) {
  Setups(model, framework, space, visitor).run();
}

void walk_space(const SetupSpace& space, const std::function<void(const ParallelSetup&)>& visit,
                LeftOutTally& left_out) {
  space.for_each({[&](const ParallelSetup& setup) {
                    if (const auto reason = space.refusal(setup)) {
                      left_out.add(reason->rule, [&] { return reason->sentence; });
                    } else {
                      visit(setup);
                    }
                  },
                  [&](LeftOut rule, const ParallelSetup& setup) {
                    left_out.add(rule, [&] { return space.numbers_of(setup); });
                  }});
}

std::string recompute_text(const SetupRecompute& recompute) {
  if (recompute.by_stage) {
    return ", recompute by stage" +
           (recompute.of_stage.empty() ? "" : ": " + describe_recompute(recompute.of_stage));
  }
  if (recompute.of_all == LayerRecompute::Whole) return ", full recompute";
  return recompute.of_all == LayerRecompute::Attention ? ", selective recompute" : "";
}

std::string order_text(const DeviceOrder& order) {
  std::string text;
  if (order.of_ranks == RankOrder::DataOutermost)
    text += ", rank order " + std::string(name_of(order.of_ranks));
  if (!order.of_nodes.empty()) text += ", node order " + to_text(order.of_nodes);
  return text;
}

std::string zero_text(const ParallelSetup& setup) {
  const std::string text = "ZeRO " + std::to_string(setup.zero);
  return setup.shard_groups() > 1 ? text + " among " + std::to_string(setup.shards) : text;
}

std::string describe(const ParallelSetup& setup) {
  std::string text = "tp " + std::to_string(setup.tensor) + ", pp " +
                     std::to_string(setup.pipeline) + ", dp " + std::to_string(setup.data);
  if (setup.context > 1) text += ", cp " + std::to_string(setup.context);
  if (setup.experts > 1) text += ", ep " + std::to_string(setup.experts);
  if (setup.expert_tensor() != setup.tensor)
    text += ", etp " + std::to_string(setup.expert_tensor());
  if (setup.chunks > 1) text += ", vpp " + std::to_string(setup.chunks);
  text += ", micro-batches of " + std::to_string(setup.micro_batch_size);
  text += recompute_text(setup.recompute);
  if (setup.sequence_parallel) text += ", sequence parallel";
  if (setup.zero > 0) text += ", " + zero_text(setup);
  return text + order_text(setup.order);
}

}  // namespace pipewright::planner
