#include "planner/estimate/kernels.hpp"

#include <algorithm>
#include <cmath>

namespace pipewright::planner {

namespace {

/// Older libraries take their large tile where that gives every multiprocessor one; newer ones
/// whichever ends first.
double seconds_by_tiles(const DeviceRates& device, const Matmul& matmul) {
  const double rows = device.tile_rows, columns = device.tile_columns;
  const double small = std::min(rows, columns) > 128 ? 128 : std::min(rows, columns);
  const auto padded = [&](double tile_rows, double tile_columns) {
    const double tiles = std::ceil(matmul.rows / tile_rows) *
                         std::ceil(matmul.columns / tile_columns) * matmul.count;
    double waves = std::ceil(tiles / device.multiprocessors);
    // A deep product is cut along its depth where its tiles fill the last wave badly (split-K).
    for (double parts = 2; parts <= 8 && matmul.depth / parts >= kDepthOfPart; parts *= 2) {
      waves = std::min(waves, std::ceil(tiles * parts / device.multiprocessors) / parts);
    }
    return waves * device.multiprocessors * tile_rows * tile_columns;
  };
  const double small_tiles = padded(small, small);
  const bool fills =
      matmul.rows * matmul.columns * matmul.count >= rows * columns * device.multiprocessors;
  double area = fills ? padded(rows, columns) : small_tiles;
  if (matmul.depth <= 128) area = small_tiles;
  if (device.tries_tiles && matmul.depth > 128) {
    area = std::min(padded(rows, columns), small_tiles * kSmallTilePenalty);
  }
  return 2 * area * (matmul.depth + kMatmulStartDepth) / device.product_rate(matmul.bytes);
}

}  // namespace

double stream_seconds(const DeviceRates& device, double bytes) {
  return bytes / (device.memory_bytes_per_second * device.memory_efficiency);
}

double matmul_seconds(const DeviceRates& device, const Matmul& matmul) {
  if (matmul.flops() <= 0) return 0;
  const double read = matmul.depth * (matmul.rows + matmul.columns),
               written = matmul.rows * matmul.columns;
  return std::max(seconds_by_tiles(device, matmul),
                  stream_seconds(device, matmul.count * (matmul.bytes * read + 2 * written)));
}

double slower_unaligned(double side) {
  return std::fmod(std::floor(side), 8) == 0 ? 1 : 1 / kUnalignedRate;
}

double slower_unaligned_batch(const DeviceRates& device, double side) {
  if (slower_unaligned(side) == 1) return 1;
  return device.flops_of_cores > 0 ? device.peak_flops / device.flops_of_cores : 1 / kUnalignedRate;
}

double matmul_weight_seconds(const DeviceRates& device, const Matmul& matmul) {
  const Matmul product{matmul.depth, matmul.columns, matmul.rows, matmul.count, matmul.bytes};
  if (matmul.sum_bytes == 0 || matmul.flops() <= 0) return matmul_seconds(device, product);
  const double read = product.bytes * product.depth * (product.rows + product.columns);
  const double sums = matmul.sum_bytes * product.rows * product.columns;
  static_assert(kAccumulateOrder == 2);
  const double arithmetic = seconds_by_tiles(device, product),
               traffic = stream_seconds(device, product.count * (read + sums));
  return std::sqrt(arithmetic * arithmetic + traffic * traffic);
}

double matmul_input_seconds(const DeviceRates& device, const Matmul& matmul) {
  return matmul_seconds(device,
                        {matmul.rows, matmul.depth, matmul.columns, matmul.count, matmul.bytes});
}

double matmul_backward_seconds(const DeviceRates& device, const Matmul& matmul) {
  return matmul_input_seconds(device, matmul) + matmul_weight_seconds(device, matmul);
}

int Group::on_a_node(int devices_per_node) const {
  return near > 0 ? near : std::max(1, std::min(members, devices_per_node / stride));
}

int Group::nodes(int devices_per_node) const {
  if (inside(devices_per_node)) return 1;
  const int near_each = on_a_node(devices_per_node);
  return (members + near_each - 1) / near_each;
}

double group_bytes_per_second(const NodeRates& node, int devices_per_node, const Group& group) {
  if (group.inside(devices_per_node)) return node.inside_bytes_per_second;
  const int together = group.on_a_node(devices_per_node);
  const double fill = static_cast<double>(devices_per_node) / together;
  const double rings = group.beside > 0 ? std::min<double>(group.beside, fill) : fill;
  return node.network_bytes_per_second / rings;
}

namespace {

/// Of any collective among so many members.
double call_start_seconds(int devices_per_node, const Group& group) {
  if (group.members <= 1) return 0;
  const bool inside = group.inside(devices_per_node);
  const int near = std::min(group.members, devices_per_node);
  return kCollectiveStart + kCollectiveStartPerMember * near + (inside ? 0 : kNetworkStart);
}

}  // namespace

double group_start_seconds(int devices_per_node, const Group& group) {
  const double levels = std::log2(group.nodes(devices_per_node));
  return call_start_seconds(devices_per_node, group) + levels * kTreeLevel;
}

double ring_start_seconds(int devices_per_node, const Group& group) {
  const double start = call_start_seconds(devices_per_node, group);
  const int nodes = group.nodes(devices_per_node);
  if (nodes == 1) return start;
  return start + (nodes - 1) * kRingStepAcross + (group.members - nodes) * kRingStepInside;
}

double all_reduce_seconds(const NodeRates& node, int devices_per_node, const Group& group,
                          double bytes) {
  if (group.members <= 1 || bytes <= 0) return 0;
  const double share = static_cast<double>(group.members - 1) / group.members;
  return group_start_seconds(devices_per_node, group) +
         2 * share * bytes / group_bytes_per_second(node, devices_per_node, group);
}

double gather_seconds(const NodeRates& node, int devices_per_node, const Group& group,
                      double bytes) {
  if (group.members <= 1 || bytes <= 0) return 0;
  const double share = static_cast<double>(group.members - 1) / group.members;
  return ring_start_seconds(devices_per_node, group) +
         share * bytes / group_bytes_per_second(node, devices_per_node, group);
}

double all_to_all_seconds(const NodeRates& node, int devices_per_node, const Group& group,
                          double bytes) {
  if (group.members <= 1 || bytes <= 0) return 0;
  const double members = group.members;
  const double start = call_start_seconds(devices_per_node, group);
  if (group.inside(devices_per_node)) {
    return start + (members - 1) / members * bytes / node.inside_bytes_per_second;
  }
  // What stays in the node goes over its links, the rest over the device's share of the network.
  const double near = group.on_a_node(devices_per_node);
  const double share_of_network = node.network_bytes_per_second / devices_per_node;
  return start + std::max((near - 1) / members * bytes / node.inside_bytes_per_second,
                          (members - near) / members * bytes / share_of_network);
}

double forwarded_seconds(const NodeRates& node, int devices_per_node, const Group& group,
                         double bytes, double across) {
  if (group.inside(devices_per_node) || bytes <= 0)
    return all_to_all_seconds(node, devices_per_node, group, bytes);
  const double near = group.on_a_node(devices_per_node);
  return call_start_seconds(devices_per_node, group) +
         std::max((near - 1) / near * bytes / node.inside_bytes_per_second,
                  across * devices_per_node / node.network_bytes_per_second);
}

double with_launches(double device_seconds, double host_seconds, double order) {
  return std::pow(std::pow(device_seconds, order) + std::pow(host_seconds, order), 1 / order);
}

}  // namespace pipewright::planner
