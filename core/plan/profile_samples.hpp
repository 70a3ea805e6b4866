// A profile from times that another runtime took of a model's layers, such as PyTorch's
// (pipewright.torch.measure). Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/cluster/cluster.hpp"
#include "core/plan/profile.hpp"

namespace pipewright {

/// Of one stage, in ns: each computation of each micro-batch.
struct StageTimes {
  std::vector<std::int64_t> f, b, i, w, opt;
};
struct SizeSamples {
  int micro_batch_size = 0;
  std::vector<StageTimes> layers;  // each layer in a stage of its own; the loss is in the last
  StageTimes whole;                // of F and B: all layers in one stage
  /// The runtime's own time for an action, outside of it.
  std::vector<std::int64_t> between;
};
struct TransferSamples {
  std::int64_t bytes = 0;
  std::vector<std::int64_t> issue;  // the host's time, at either end
  std::vector<std::int64_t> way;    // from the issue of both ends until the receiver has it
};
struct ProfileSamples {
  std::string model_name;
  Cluster cluster;
  int ranks_measured = 1, repeats = 1;
  std::vector<SizeSamples> sizes;
  std::vector<TransferSamples> transfers;  // none: they are as the cluster says
};

/// {"model_name", "cluster", "ranks_measured", "repeats", "sizes": [{"micro_batch_size", "layers":
/// [{"f", "b", "i", "w", "opt"}], "whole": {"f", "b"}, "between"}], "transfers": [{"bytes",
/// "issue", "way"}]}. Throws InputError.
ProfileSamples read_profile_samples(const JsonCursor& document);

/// On the wall clock. What a stage costs whatever is in it, the layers in one stage each less all
/// in one (and no more than the quickest layer takes), goes from the layers into the overhead of an
/// action, with the runtime's own time. The
/// transfer's line goes through the least and the largest message.
Profile profile_from(const ProfileSamples& samples);

}  // namespace pipewright
