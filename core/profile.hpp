// profile.json: what this machine was measured to cost, layer by layer, for
// some micro-batch sizes. exec writes it, the planner reads it.
#pragma once

#include <string>
#include <vector>

#include "core/cluster.hpp"
#include "core/costs.hpp"
#include "core/json.hpp"
#include "core/model.hpp"

namespace pipewright {

/// Medians of repeated runs, one micro-batch.
struct LayerTimes {
  Nanoseconds f, i, w, opt;
};
struct ProfileSize {
  int micro_batch_size = 0;
  std::vector<LayerTimes> layers;  // by layer of the model
  LayerTimes loss;                 // f: loss, i: its gradient
};
struct Profile {
  std::string model_name;
  Cluster cluster;         // the machine it was taken on
  int ranks_measured = 1;  // how many ranks computed at once while it was taken
  int repeats = 0;
  std::vector<ProfileSize> sizes;
  Nanoseconds transfer_latency;
  double transfer_bytes_per_second = 0;
  Nanoseconds action_overhead;  // the runtime's own time for one action
};

Profile read_profile(const JsonCursor& document);
Json to_json(const Profile& profile);

}  // namespace pipewright
