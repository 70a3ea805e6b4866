// What `run` is asked for, on whatever device.
#pragma once

#include <optional>

#include "tools/cli/arguments.hpp"
#include "tools/input/subject.hpp"
#include "tools/running/cuda_flags.hpp"
#include "tools/running/training.hpp"

namespace pipewright::tools {

struct RunRequest {
  RankRequest ranks;
  std::optional<TrainingRequest> training;  // nullopt: on the paced device

  bool is_virtual() const { return ranks.clock == exec::local::ClockKind::Virtual; }
  bool is_on_cpus() const { return training && !training->cuda; }
  double most_apart() const { return most_norm_rel(training ? training->cuda : std::nullopt); }
};

/// Throws InputError for values that do not fit, for flags that the device does not know, and
/// for a subject without a plan on a device that computes.
RunRequest run_request(const Arguments& arguments, const Subject& subject);

}  // namespace pipewright::tools
