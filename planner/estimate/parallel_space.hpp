// The ways to divide a model among devices that a search looks at: what its space leaves open, and
// what that fixes. Pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "planner/estimate/setup.hpp"

namespace pipewright::planner {

/// What is tried. An empty list is open: powers of two and divisors for tp and ep, for pp those of
/// the devices and of the blocks; powers of two and what gives each stage as many blocks for
/// chunks; 1, 2, 4, 8 … for micro-batch sizes; all for the rest; cp is 1. Open data parallelism
/// takes the devices that are left; where it is given, a setup uses as many devices as that takes.
struct ParallelSpace {
  int devices = 1, global_batch = 1;
  std::vector<int> tensor, pipeline, data, chunks, experts, context, micro_batch_size, zero;
  std::vector<int> shards;         // with ZeRO; open: all replicas divide one another's state
  std::vector<int> expert_tensor;  // open: each expert is divided as tensor parallel ranks are
  bool whole_experts_too = false;  // and, where that is open, whole ones beside tp
  std::vector<LayerRecompute> recompute;
  /// Whether setups in which each stage has its own recompute are tried: no, too, or only these.
  /// The closed estimate never tries them, since it knows no stages.
  enum class ByStage : std::uint8_t { No, Too, Only } by_stage = ByStage::No;
  std::vector<bool> sequence_parallel;
  bool overlap_gradients = false;   // of every setup
  std::vector<int> blocks_of_rank;  // of every setup, which then has as many ranks; empty: equal
  /// Share of a device's memory that is left for the driver, libraries and fragments; on a small
  /// one these take more.
  double margin = 0.06;
};

/// What is left of a node's memory for a rank, in bytes.
double usable_bytes(const ParallelSpace& space, const NodeRates& node);

/// Throws InputError for a space that asks for less than one of something.
void check(const ParallelSpace& space);

struct SpaceVisitor {
  std::function<void(const ParallelSetup&)> visit;  // no refusal has been asked
  /// Called for setups that are not possible, once for all that a rule rules out together; `setup`
  /// holds what was chosen until then.
  std::function<void(LeftOut rule, const ParallelSetup& setup)> ruled_out;
};
/// All of them, in an order that depends on nothing else.
void for_each_setup(const Architecture& model, const FrameworkTraits& framework,
                    const ParallelSpace& space, const SpaceVisitor& visitor);

/// A space as a search walks it, the closed estimate's as the tuner's.
struct SetupSpace {
  std::function<void(const SpaceVisitor&)> for_each;
  std::function<std::optional<Refusal>(const ParallelSetup&)> refusal;
  /// What a rule of the space has looked at, in words; of a refusal its sentence says it.
  std::function<std::string(const ParallelSetup&)> numbers_of;
};
/// Visits each setup that is possible, in the order of the space. What a rule forbids is left out.
void walk_space(const SetupSpace& space, const std::function<void(const ParallelSetup&)>& visit,
                LeftOutTally& left_out);

/// ", full recompute", ", recompute by stage: full on 0-2, none on 3"; "" for none.
std::string recompute_text(const SetupRecompute& recompute);
/// ", rank order tp-cp-pp-dp, node order 1-0"; "" where both are as everybody has them.
std::string order_text(const DeviceOrder& order);
/// "ZeRO 3", "ZeRO 3 among 8" where groups of replicas each hold all of the state.
std::string zero_text(const ParallelSetup& setup);

/// "tp 8, pp 16, dp 8, micro-batches of 1, selective recompute, sequence parallel, ZeRO 1".
std::string describe(const ParallelSetup& setup);

}  // namespace pipewright::planner
