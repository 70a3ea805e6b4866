// Steps that were timed on a job's cluster, as files state them: what an estimate is fitted to.
#pragma once

#include <string>
#include <vector>

#include "core/base/json.hpp"
#include "core/base/units.hpp"

namespace pipewright {

/// One configuration as it ran, or as it failed to.
struct MeasuredStep {
  std::string
      configuration;      // "tp=8,pp=4,schedule=1f1b" (planner/branches/named_configuration.hpp)
  Nanoseconds step;       // 0: it ran out of memory
  Bytes peak = Bytes(0);  // of its fullest device; 0: nobody has looked
  std::string file, pointer;  // where it stands; "": in no file

  bool ran() const { return step.value > 0; }
};

/// Of an object: "measured_step", one, or "measured_steps", a list of them, each with step_ns or
/// "out_of_memory": true. Empty where it has neither. Throws InputError.
std::vector<MeasuredStep> read_measured_steps(const JsonCursor& document);
/// Of a file of its own, or of a job.json. Throws InputError, also where the file has none.
std::vector<MeasuredStep> load_measured_steps(const std::string& path);

/// Puts the member into `document` with which read_measured_steps() reads the same.
void put_measured_steps(const std::vector<MeasuredStep>& steps, Json& document);

}  // namespace pipewright
