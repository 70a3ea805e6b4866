// profile.json: what this machine was measured to cost, layer by layer, for
// some micro-batch sizes. exec writes it, the planner reads it.
#pragma once

#include <string>
#include <vector>

#include "core/base/json.hpp"
#include "core/cluster/cluster.hpp"
#include "core/costs/costs.hpp"
#include "core/costs/distribution.hpp"
#include "core/model/model.hpp"
#include "core/model/tensor_split.hpp"

namespace pipewright {

/// Of a profile and of a plan.
inline constexpr int kMostMicroBatchSize = 65536;
/// Of a profile and of a job.
inline constexpr int kLongestSample = 1'000'000'000;

/// Typical times of repeated measurements, for one micro-batch, without the cost of handing over
/// messages.
struct LayerTimes {
  Nanoseconds f, i, w, opt;
  /// What B takes less than I and W one after the other. A runtime may walk the graph of operators
  /// once more to tell the two apart (PyTorch's does), or compute less twice.
  Nanoseconds saved_by_b{};

  Nanoseconds b() const { return i + w - saved_by_b; }
};
/// How the measurements behind a LayerTimes are spread, messages (and in the last layer the loss)
/// included.
struct LayerSpread {
  Distribution f, i, w, opt;
  Distribution b{};  // where it was measured by itself
};
struct ProfileSize {
  int micro_batch_size = 0;
  std::vector<LayerTimes> layers;    // by layer of the model
  LayerTimes loss;                   // f: loss, i: its gradient
  std::vector<LayerSpread> spreads;  // by layer; empty: not known
  /// What a stage's F and I cost more for each byte that they take from the stage before, or make
  /// for the stage after.
  double f_ns_per_message_byte = 0, i_ns_per_message_byte = 0;
};
/// Of layers that ranks divide: what it takes on one of them, in CPU time with the wait for the
/// slowest, without what they bring together. The loss is in the last layer.
struct DividedProfile {
  StageDivision ranks;  // none: whole layers, beside replicas
  /// Pipelines that trained the whole model side by side meanwhile: their weights share the caches.
  int replicas = 1;
  int ranks_measured = 1;
  std::vector<ProfileSize> sizes;  // as those of the whole layers
};
/// Of samples that have another length than those of the profile's sizes, such as more tokens.
struct ProfileLength {
  int length = 0;
  std::vector<ProfileSize> sizes;  // some of the profile's
};
/// Wall: the machine's time, with all that ranks on shared cores take from each other. Cpu: the
/// time that a thread used of its core, as if each rank had one.
enum class ProfileClock : std::uint8_t { Wall, Cpu };
/// The one number that stands for repeated measurements. In CPU time it is the mean of the middle
/// four fifths: a step is a sum of many actions, so means add up, but times in which other programs
/// empty the caches are not typical. On the wall clock it is the median, because losing the core
/// for some milliseconds weighs as much as hundreds of actions.
/// docs/evidence/benchmarks/prediction.md compares them.
Nanoseconds typical(const Distribution& measured, ProfileClock clock);

struct Profile {
  std::string model_name;
  Cluster cluster;         // the machine it was taken on
  int ranks_measured = 1;  // how many ranks computed at once while it was taken
  int repeats = 0;
  ProfileClock clock = ProfileClock::Wall;
  std::vector<ProfileSize> sizes;
  int length = 0;  // of their samples, where `lengths` has others
  std::vector<ProfileLength> lengths;
  std::vector<DividedProfile> divided;  // no two of the same ranks and replicas
  Nanoseconds transfer_latency;
  double transfer_bytes_per_second = 0;
  /// The host's time for handing one end of a transfer to its queue, in which the rank computes
  /// nothing.
  Nanoseconds transfer_issue;
  Nanoseconds action_overhead;  // the runtime's own time for one action
  Nanoseconds step_overhead;    // and what it takes for a step on each rank besides
};

/// Of those with no more replicas than these the one with the most. Null where layers were not
/// measured so: of whole ones without replicas the profile's own sizes are.
const DividedProfile* find_divided(const Profile& profile, const StageDivision& ranks,
                                   int replicas = 1);

/// Whether all of its sizes say how their measurements are spread.
bool has_spreads(const Profile& profile);

Profile read_profile(const JsonCursor& document);
Json to_json(const Profile& profile);

}  // namespace pipewright
