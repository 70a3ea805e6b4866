// The steps that lead on from a layout, with their bytes.
#pragma once

#include <optional>

#include "core/spmd/reshard.hpp"

namespace pipewright::spmd {

/// All steps but exchanges; each changes one mesh dimension. Values become partial only where they
/// are in `target`.
std::vector<ReshardStep> steps_from(const Shape& shape, const Distribution& from,
                                    const Layout& target, const ReshardPrices& prices);

/// To another layout, on the same or another mesh. Both have the same partial mesh dimensions, and
/// where there are any, meshes of the same shape.
ReshardStep exchange(const Shape& shape, const Distribution& from, const Distribution& to,
                     const ReshardPrices& prices);

/// Elements of a part, and what two parts have in common.
std::int64_t elements_of(const LocalPart& part);
std::optional<LocalPart> common_part(const LocalPart& one, const LocalPart& other);

}  // namespace pipewright::spmd
