// Which stages of a cut hold weights that two layers have in common (core/model/tie.hpp). A pure
// function.
#pragma once

#include <span>
#include <vector>

#include "core/model/model.hpp"
#include "core/plan/plan.hpp"

namespace pipewright {

/// The stages of a cut that hold the table, ascending; none if nothing is tied or one stage has
/// both layers.
std::vector<StageId> tied_stages(const Model& model, std::span<const StagePlan> stages);

}  // namespace pipewright
