// A reshard carried out by the processes of a graph, with the collectives that its steps name
// (exec/collectives): each process calls it for the same plans in the same order.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "core/spmd/reshard.hpp"
#include "exec/collectives/group.hpp"
#include "exec/spmd/local_array.hpp"

namespace pipewright::exec::graphs {

/// Of one process, by the ranks of a group, in its order.
using GroupsByRanks = std::map<std::vector<int>, std::unique_ptr<collectives::Group>>;

/// Adds the groups of processes that the steps of a plan need; an exchange needs one of all that
/// are on either mesh.
void add_groups_of(const spmd::ReshardPlan& plan, const spmd::Distribution& from,
                   std::set<std::vector<int>>& groups);

/// From a process's part before to that after; none where it is not on the mesh. Throws InputError
/// for partial values that do not become one by sums, means, maxima or minima.
std::optional<LocalArray> moved(const spmd::ReshardPlan& plan, const spmd::Shape& shape,
                                const spmd::Distribution& from, int rank, GroupsByRanks& groups,
                                std::optional<LocalArray> array);

}  // namespace pipewright::exec::graphs
