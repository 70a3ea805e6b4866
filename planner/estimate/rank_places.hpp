// Which devices a pipeline rank sits on, and what follows for the groups that ranks form, in either
// order of the ranks. Devices are numbered node by node. Pure functions.
//
// Tensor parallel ranks are innermost, then context parallel ones; what varies next is the choice:
// data parallelism with the pipeline outermost (Megatron-LM's order "tp-cp-ep-dp-pp", torchtitan's
// mesh pp, dp, cp, tp, DeepSpeed's axes pipe, data, model), or the pipeline with data parallelism
// outermost (Megatron-LM's --use-tp-pp-dp-mapping, its order "tp-cp-ep-pp-dp"; Paddle's dp, pp,
// sharding, sep, mp). The first lets replicas share a node, the second neighbours of the pipeline.
#pragma once

#include "planner/estimate/kernels.hpp"
#include "planner/estimate/setup.hpp"

namespace pipewright::planner {

/// Devices of one pipeline rank of one replica; they are side by side.
int devices_of_rank(const ParallelSetup& setup);
/// The first of them.
int first_device(const ParallelSetup& setup, int rank, int replica);
/// Devices from a rank to its neighbour in the pipeline. As many, side by side, send at once.
int pipeline_stride(const ParallelSetup& setup);

/// Whether all devices of rank `from` share a node with their peers of rank `to`, in every replica.
bool share_nodes(const ParallelSetup& setup, int devices_per_node, int from, int to);

/// The replicas of a weight that does not belong to an expert.
Group replica_group(const ParallelSetup& setup, int devices_per_node);
/// First and last rank, where both hold a table.
Group ends_group(const ParallelSetup& setup, int devices_per_node);

/// What the order of ranks changes on a machine.
enum class OrderChoice : std::uint8_t {
  Same,     // nothing: every time is the same in both orders
  Worse,    // data outermost makes no message between stages faster, and reductions no faster
  Differs,  // it may be the better one
};
/// Replicas that lie further apart never reduce faster: as many members, on no fewer nodes, with no
/// fewer rings on each. So data outermost can only gain where some way between two ranks is faster,
/// between neighbours or between the ends that share a table. Nothing is said of nodes that differ.
OrderChoice order_choice(const Machine& machine, const ParallelSetup& setup);

}  // namespace pipewright::planner
