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
struct OutsideSamples {
  int actions = 1;
  std::vector<std::int64_t> ns;  // by step
};
struct SizeSamples {
  int micro_batch_size = 0;
  int length = 0;                  // of a sample
  std::vector<StageTimes> layers;  // each layer in a stage of its own; the loss is in the last
  StageTimes whole;                // of F and B: all layers in one stage
  /// The runtime's own time in a step, outside of its actions, for different numbers of them.
  std::vector<OutsideSamples> outside;
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
  int length = 0;  // of a sample of the usual length
  std::vector<SizeSamples> sizes;
  std::vector<TransferSamples> transfers;  // none: they are as the cluster says
};

/// {"model_name", "cluster", "ranks_measured", "repeats", "sizes": [{"micro_batch_size", "layers":
/// [{"f", "b", "i", "w", "opt"}], "whole": {"f", "b"}, "outside": [{"actions", "ns"}], "length"}],
/// "transfers": [{"bytes", "issue", "way"}], "length"}. Throws InputError.
ProfileSamples read_profile_samples(const JsonCursor& document);

/// On the wall clock. What a stage costs whatever is in it, the layers in one stage each less all
/// in one (and no more than the quickest layer takes), goes from the layers into the overhead of an
/// action. The line through the runtime's own times gives it what an action more costs, and a step
/// what one without actions would. The ends of a transfer are actions too. The transfer's line goes
/// through the means of the least and the largest message.
Profile profile_from(const ProfileSamples& samples);

}  // namespace pipewright
