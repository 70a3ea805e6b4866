// The steps that lead on from a layout, with their bytes.
#pragma once

#include <optional>

#include "core/spmd/reshard.hpp"

namespace pipewright::spmd {

/// All steps but exchanges; each changes one mesh dimension. Values become partial only where they
/// are in `target`.
std::vector<ReshardStep> steps_from(const Shape& shape, const Distribution& from,
                                    const Layout& target, const ReshardPrices& prices);

/// Collectives along several mesh dimensions at once: what they divide alike is gathered or goes to
/// another dimension of the tensor, what is partial along all of them is summed.
std::vector<ReshardStep> joint_steps_from(const Shape& shape, const Distribution& from,
                                          const ReshardPrices& prices);

/// The processes that differ along these mesh dimensions alone, group by group, by their ranks; the
/// last dimension fastest.
std::vector<std::vector<int>> groups_along(const ProcessMesh& mesh, const std::vector<int>& dims);

/// To another layout, on the same or another mesh. Both have the same partial mesh dimensions, and
/// where there are any, meshes of the same shape.
ReshardStep exchange(const Shape& shape, const Distribution& from, const Distribution& to,
                     const ReshardPrices& prices);

/// Elements of a part, and what two parts have in common.
std::int64_t elements_of(const LocalPart& part);
std::optional<LocalPart> common_part(const LocalPart& one, const LocalPart& other);

}  // namespace pipewright::spmd
