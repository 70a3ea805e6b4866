// Times of single kernels and collectives: what the estimate of a step is made of. Pure functions;
// seconds, bytes.
#pragma once

#include "planner/estimate/coefficients.hpp"

namespace pipewright::planner {

/// `count` products (rows x depth) · (depth x columns) in one kernel; results have 16 bits.
struct Matmul {
  double rows = 0, columns = 0, depth = 0, count = 1;
  double bytes = 2;      // of a number that is read
  double sum_bytes = 0;  // of a sum of gradients that the weights' product reads and writes

  double flops() const { return 2 * rows * columns * depth * count; }
};

/// The longer of arithmetic and memory traffic. Arithmetic goes tile by tile in waves of as many
/// tiles as there are multiprocessors, the last wave as long as a full one (NVIDIA, "Matrix
/// Multiplication Background User's Guide", tile and wave quantization).
double matmul_seconds(const DeviceRates& device, const Matmul& matmul);

/// The backward pass' product by the input, which gives the gradient of the weights, and adds it to
/// the sum where it has sum_bytes: a tile's sums are read and written behind its arithmetic, which
/// other tiles only partly hide (kAccumulateOrder).
double matmul_weight_seconds(const DeviceRates& device, const Matmul& matmul);
/// The other one, by the weights, which gives the gradient of the input.
double matmul_input_seconds(const DeviceRates& device, const Matmul& matmul);
/// Both products of the backward pass.
double matmul_backward_seconds(const DeviceRates& device, const Matmul& matmul);

/// How much longer a product takes by a side of that many 16-bit numbers (kUnalignedRate).
double slower_unaligned(double side);
/// The same of many small ones in a batch, as attention's of heads of that width: they run outside
/// the tensor cores.
double slower_unaligned_batch(const DeviceRates& device, double side);

/// A kernel that streams.
double stream_seconds(const DeviceRates& device, double bytes);

/// Ranks that work together: `members` of them, `stride` apart in the numbering. `beside`: how many
/// such groups work at the same time on a node; 0: as many as it has devices for.
struct Group {
  int members = 1, stride = 1, beside = 0;
  int near = 0;  // members that share a node; 0: what the stride gives

  bool inside(int devices_per_node) const { return members * stride <= devices_per_node; }
  int on_a_node(int devices_per_node) const;
  int nodes(int devices_per_node) const;
};

/// What a ring through the group carries for each of its members, per second. Across nodes the
/// groups that lie side by side share the node's ports.
double group_bytes_per_second(const NodeRates& node, int devices_per_node, const Group& group);

/// Before the first byte moves: start, network, and the wait for the last rank; among nodes also
/// the levels of a tree of them, which is what NCCL takes for an all-reduce that its start decides.
double group_start_seconds(int devices_per_node, const Group& group);
/// The same of a reduce-scatter or an all-gather, which goes round a ring of all members.
double ring_start_seconds(int devices_per_node, const Group& group);

/// Ring algorithms (Patarasuk and Yuan, JPDC 2009): an all-reduce moves 2(n-1)/n of the bytes
/// through every member, a reduce-scatter or an all-gather half of it. `bytes`: of the whole
/// tensor.
double all_reduce_seconds(const NodeRates& node, int devices_per_node, const Group& group,
                          double bytes);
double gather_seconds(const NodeRates& node, int devices_per_node, const Group& group,
                      double bytes);
/// Each member sends (n-1)/n of its `bytes`.
double all_to_all_seconds(const NodeRates& node, int devices_per_node, const Group& group,
                          double bytes);
/// The same of copies that go to a node once, and inside it on to its devices: `bytes` of those for
/// devices, `across` of those for other nodes.
double forwarded_seconds(const NodeRates& node, int devices_per_node, const Group& group,
                         double bytes, double across);

/// Host and device: the norm of this order of their times.
double with_launches(double device_seconds, double host_seconds, double order);

}  // namespace pipewright::planner
