// The order in which a pipeline goes through nodes of several kinds: where they differ in speed and
// memory, it matters who has the first stages (which hold most activations) and who the head. Pure
// functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/cluster/cluster.hpp"

namespace pipewright {

/// The kinds of nodes in the order in which the pipeline goes through them, all nodes of a kind
/// together: each kind as its place in Cluster::kinds, of equal kinds the first. Empty: nodes as
/// the cluster has them.
using NodeOrder = std::vector<int>;

/// The cluster's own, then every order of its kinds that differs from that, in lexicographic order.
/// Where all nodes are alike, or more than four kinds make too many orders, only the first.
std::vector<NodeOrder> node_orders(const Cluster& cluster);

/// The cluster's node at each place of the order.
std::vector<int> nodes_in_order(const Cluster& cluster, const NodeOrder& order);

/// "file", or "1-0": as jobs and configurations name it.
std::string to_text(const NodeOrder& order);
/// One of node_orders(). Throws InputError for a text that names none.
NodeOrder read_node_order(const Cluster& cluster, std::string_view text);

/// "the NVIDIA V100-SXM2-32GB first, then the NVIDIA A100-SXM4-80GB".
std::string in_words(const Cluster& cluster, const NodeOrder& order);

}  // namespace pipewright
