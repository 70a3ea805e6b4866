// Which devices and transports this build has, and what is missing for the others. The command runs
// on a machine without GPU, driver or MPI: a missing one is a sentence, never a crash.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/running/gpu_facts.hpp"

namespace pipewright::tools {

struct Ability {
  std::string name;
  bool works = false;
  std::string why;  // what it is good for, or what is missing
};

std::vector<Ability> devices(const GpuFacts& facts);
std::vector<Ability> transports(const GpuFacts& facts);

/// Throw MachineError if this build or machine lacks it, with what there is instead. Only the
/// module of the one that is named is loaded.
void require_device(std::string_view name);
void require_transport(std::string_view name);

}  // namespace pipewright::tools
