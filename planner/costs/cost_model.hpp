// From a model and a machine to a CostTable. Two sources: a profile (layer times that were
// measured), or, where there is none, the layers' operation counts and the device's rate at a
// stated efficiency. Immutable after construction; any number of threads may ask it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/cluster/cluster.hpp"
#include "core/costs/costs.hpp"
#include "core/model/model.hpp"
#include "core/model/tensor_split.hpp"
#include "core/plan/plan.hpp"
#include "core/plan/profile.hpp"
#include "exec/layers/footprint.hpp"
#include "planner/base/cores.hpp"
#include "planner/memory/known_buffers.hpp"
#include "planner/memory/memory.hpp"

namespace pipewright::planner {

/// What turns operation counts into time where nothing was measured. Rough on purpose: they order
/// plans; only a profile predicts a machine.
struct DeviceCoefficients {
  double efficiency;               // share of the peak rate that F, I and W reach
  double update_bytes_per_second;  // rate at which the update goes through its state
  Nanoseconds action_overhead;     // launching one action
};
/// "cuda": 0.5 of the peak (large matrix products of the published Megatron-LM runs reach 0.5 to
/// 0.6), 1.5 TB/s, 5 us. "cpu": 0.25 of the peak, 5 GB/s, 20 us.
DeviceCoefficients coefficients_for(std::string_view device_kind);

/// True for ranks that share the machine Pipewright runs on (the preset local-cpu: one node of kind
/// "cpu" whose device model is just "cpu"). Then more ranks than cores cannot compute at once.
bool shares_this_machine(const Cluster& cluster);

/// What sums over the devices of a rank, and exchanges between experts, take.
struct StageMessages {
  Nanoseconds f, i, w;
};

class CostModel {
 public:
  /// `profile` may be null; it is copied. `cores`: cores that ranks on a shared machine divide
  /// among themselves, 0: this machine's. Throws InputError if the profile is of another model or
  /// another kind of device, and for layers to recompute that the model does not have.
  /// `division`: devices of a rank that divide its layers (tp), and replicas that divide the
  /// experts (ep); all that is said of a rank is then said of each of them. `replicas`: pipelines
  /// beside one another, of which the profile may know that they share caches.
  CostModel(const Model& model, const Cluster& cluster, const Profile* profile, int cores = 0,
            const RecomputeSpec& recompute = {}, const StageDivision& division = {},
            int replicas = 1);

  /// Why this size cannot be priced: it lies outside the sizes that were profiled. nullopt: it can;
  /// sizes between two measured ones are interpolated.
  std::optional<std::string> refusal(int micro_batch_size) const;

  /// F, I and W of each layer for one micro-batch, and its update. The loss is in the last layer,
  /// and what I computes again is in I. Contention and the overhead of an action are not included.
  /// Needs !refusal(size).
  std::vector<LayerTimes> layer_times(int micro_batch_size) const;

  /// How much slower every computation is when `ranks` of them share this machine: max(1, ranks /
  /// cores), divided by the contention that the profile already contains if it was taken with
  /// several ranks at once. 1 on every other cluster, and for a profile in CPU time. It overstates
  /// the cost of a pipeline with bubbles, since waiting ranks leave their core to others.
  double contention(int ranks) const;

  /// Times of the stages on `ranks` ranks, contention, overhead and what the devices of a rank tell
  /// one another included.
  std::vector<StageCosts> stage_costs(std::span<const StagePlan> stages, int ranks,
                                      int micro_batch_size, std::string_view optimizer) const;

  /// The latter alone: in F, in I and in W, of a micro-batch.
  std::vector<StageMessages> messages_inside(std::span<const StagePlan> stages,
                                             int micro_batch_size) const;
  /// What a call of a stage's parts takes: a sum along tp, or an exchange of rows along ep, as far
  /// apart as two devices may be.
  Nanoseconds call_time(const Call& call) const;

  /// stage_costs(), sizes of messages and parameters, routes and memory. Rank r sits on device
  /// r times the devices of a rank.
  /// `shards`: replicas that divide the update and their state among themselves.
  CostTable table(std::span<const StagePlan> stages, int ranks, int micro_batch_size,
                  std::string_view optimizer, const StateShards& shards = {}) const;

  /// What the stages hold.
  std::vector<StageMemory> memory(std::span<const StagePlan> stages, int micro_batch_size,
                                  std::string_view optimizer, const StateShards& shards) const;

  /// The size of the message at the end of each stage but the last, for one micro-batch; the same
  /// both ways.
  std::vector<Bytes> message_bytes(std::span<const StagePlan> stages, int micro_batch_size) const;

  /// The route between two devices as the table has it, without links that are shared.
  RouteCosts route(int source, int destination) const;
  /// The time to launch one action, without contention.
  Nanoseconds overhead() const;

  int cores() const { return cores_; }
  /// Where the numbers come from, for CostTable::source.
  const std::string& source() const { return source_; }

 private:
  struct Between {
    const ProfileSize &below, &above;
    double share_of_above = 0;
  };

  /// The measured sizes next to this one.
  Between sizes_around(int micro_batch_size) const;
  LayerTimes measured(std::size_t layer, int micro_batch_size) const;
  /// What the messages at the stage's two cuts add to it. `ends`: transfers that its F takes part
  /// in, and its I.
  LayerTimes message_times(const StagePlan& stage, int ends, int micro_batch_size) const;
  LayerTimes computed(std::size_t layer, int micro_batch_size) const;
  void divide_layers();
  Nanoseconds time_of_norms(const StagePlan& stage) const;
  /// Devices of which each sends its own rows.
  int members_of_message() const {
    return (division_.rows ? division_.tensor : 1) * division_.context;
  }

  Model model_;
  Cluster cluster_;
  std::optional<Profile> profile_;
  int cores_;
  StageDivision division_;
  std::vector<LayerRecompute> recompute_;  // by layer
  bool measures_parts_ = false;            // the profile's times are those of one of the devices
  /// By layer: the part of F, I and W that one of the devices computes; empty: all of it.
  std::vector<std::array<double, 3>> own_share_;
  struct Told {
    Call call;  // of one sample
    /// The part of the layer's F, I or W that is computed meanwhile.
    double beside = 0;
  };
  struct Calls {
    std::vector<Told> f, i, w;
    Call norms;  // the sum that the W of a stage takes once; its bytes are the layer's
  };
  std::vector<Calls> calls_;                // by layer; empty: there are none
  std::vector<exec::LayerFootprint> work_;  // by layer, of one sample; without a profile
  std::vector<double> redone_;              // by layer: the part of F that I does again
  std::string source_;
  std::shared_ptr<KnownBuffers> buffers_;
};

}  // namespace pipewright::planner
