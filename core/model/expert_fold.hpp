// Whole experts dealt out among all ranks of a stage (Megatron core's parallel folding, with
// expert_tensor_parallel_size 1): in the order in which tp varies fastest, then cp, then dp, each
// so many ranks hold all experts together. Pure functions.
#pragma once

#include <optional>
#include <string>

#include "core/model/tensor_split.hpp"

namespace pipewright {

/// The ranks along tp and cp, and those along ep that are left of so many that hold all experts
/// together. nullopt where these do not end where one of the axes does: they have to be those along
/// tp, or those along tp and cp of some replicas.
std::optional<StageDivision> with_folded_experts(const StageDivision& ranks, int holders);

/// The ranks along tp and cp, and with them `holders` that have all experts together, each divided
/// among so many (0: as many as are along tp): dealt out, where they can be, if each is whole
/// beside tp; else along ep alone.
StageDivision division_with_experts(const StageDivision& ranks, int holders, int expert_tensor);

/// Why so many ranks cannot hold the experts of so many replicas, dealt out so, as a sentence with
/// the nearest numbers that can; "" if they can.
std::string fold_fault(const StageDivision& ranks, int replicas, int holders);

}  // namespace pipewright
