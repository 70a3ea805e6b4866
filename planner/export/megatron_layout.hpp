// Megatron-LM's --pipeline-model-parallel-layout: which layers each stage has, as a string
// (docs/user-guide, "Custom Pipeline Model Parallel Layout"): E embedding, t decoder layer, m MTP
// layer, L loss; | between stages; x*n and (…)*n repeat. Pure.
#pragma once

#include <string>
#include <vector>

#include "planner/export/plan_facts.hpp"

namespace pipewright::planner {

/// Stages in the order of the model; equal neighbours and blocks in a row are written as repeats.
std::string megatron_layout(const std::vector<StageBlocks>& stages);

}  // namespace pipewright::planner
