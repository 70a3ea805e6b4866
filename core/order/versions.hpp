// Weight versions and reductions over replicas in an order (docs/semantics.md §3.1, §3.2): whether
// it is asynchronous, and what its names and its REDUCE_GRADs get wrong. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "core/order/order.hpp"

namespace pipewright {

/// True if an F, I, W or B names a weight version: the order is asynchronous.
bool names_versions(const Order& order);

/// What is wrong with the versions of an asynchronous order, in the order of the lists: one that is
/// not named, one that differs between the F and the backward of a micro-batch, one that does not
/// exist yet. Each sentence says rank and cell. At most `most`; O(actions). Actions outside the
/// order's stages and micro-batches are passed over.
std::vector<std::string> version_problems(const Order& order, std::size_t most = 20);

/// A stage that several ranks compute needs equally many REDUCE_GRADs on each of them.
std::vector<std::string> reduction_problems(const Order& order);

}  // namespace pipewright
