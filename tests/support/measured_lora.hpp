// Published runs of LoRA: what the files of their recipes say of adapters and of what else a run
// that trains all weights does otherwise.
#pragma once

#include <string>

#include "tests/support/measured_cases.hpp"

namespace pipewright::test {

/// NVIDIA's recipes for Megatron core.
void adapt_as_megatron(MeasuredCase& row);

/// NVIDIA's Automodel, of a page's columns "FSDP" (members of a sharding group) and "Kernel
/// Optimizations" ("-": PyTorch's own).
void adapt_as_automodel(MeasuredCase& row, int sharding_group, const std::string& kernels);

}  // namespace pipewright::test
