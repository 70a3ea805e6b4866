// Of what the actions of a stage consist whose layers are divided among ranks (docs/semantics.md
// §3.4): found by running its layers on a device that counts. What the planner writes into a plan
// and what a run does are therefore the same. Pure function.
#pragma once

#include <span>
#include <vector>

#include "core/model/model.hpp"
#include "core/model/recompute.hpp"
#include "core/model/tensor_split.hpp"
#include "core/order/parts.hpp"
#include "core/plan/plan.hpp"
#include "exec/base/numerics.hpp"
#include "exec/base/run_mode.hpp"
#include "exec/layers/pause_point.hpp"

namespace pipewright::exec {

/// What a plan says of it: a collective of the axis whose ranks bring it together.
Call call_for(const Wanted& wanted);
/// Whether the computation that wants it does not wait for it at once.
bool is_beside(const Wanted& wanted);

/// The ranks that divide a stage's layers, along each axis on which there are several.
std::vector<MeshAxis> axes_of(const StageDivision& ranks);
/// How many of these ranks take part in the call, which is of a group of theirs.
int members_of(const StageDivision& ranks, const Call& call);

/// Layers [first, end) of the model, divided among `ranks`: the parts of F, I and B, and of W where
/// that tells others something, which carry the stage's number 0. Computations are weighed by their
/// operations; sums over ranks and gathered rows are calls of the group "tp", keys and values of
/// "cp", and exchanges of rows between experts of "ep", named by layer, without a weight. In exact
/// numerics a W along cp has one call more (exec/layers/divided/row_gradients.hpp). None where
/// nothing is divided. What the last stage computes for its loss counts as nothing; what ranks sum
/// for it is there, but not in a prediction. Forward only: of F alone.
std::vector<ActionParts> divided_parts(const Model& model, int first, int end, int micro_batch_size,
                                       std::span<const LayerRecompute> recompute,
                                       const StageDivision& ranks,
                                       Numerics numerics = Numerics::Fast,
                                       RunMode mode = RunMode::Train);
/// The same of all stages, each with its number.
std::vector<ActionParts> divided_parts(const Model& model, std::span<const StagePlan> stages,
                                       int micro_batch_size,
                                       std::span<const LayerRecompute> recompute,
                                       const StageDivision& ranks,
                                       Numerics numerics = Numerics::Fast,
                                       RunMode mode = RunMode::Train);

}  // namespace pipewright::exec
