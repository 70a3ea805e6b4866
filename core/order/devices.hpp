// Orders whose ranks are the devices of pipeline ranks (docs/semantics.md §3.5): consecutive ranks
// are a block, whose devices differ along axes as those of a mesh do. Pure functions.
#pragma once

#include <string_view>
#include <vector>

#include "core/order/order.hpp"

namespace pipewright {

/// The devices along it hold different parts of the parameters, and compute the same data.
inline constexpr std::string_view kTensorAxis = "tp";
/// The devices along it hold different experts, and compute data of their own.
inline constexpr std::string_view kExpertAxis = "ep";
/// The devices along it hold the same parameters, and compute parts of the same sequences.
inline constexpr std::string_view kContextAxis = "cp";

/// Devices along the axis; 1 where there is none.
int size_along(const std::vector<MeshAxis>& devices, std::string_view axis);
/// The rank's place along the axis; 0 where there is no such axis.
int coordinate_of(const std::vector<MeshAxis>& devices, std::string_view axis, RankId rank);
/// The rank's place among those of its block that are a group, and all of them, ascending.
int place_in(const AxisSpan& group, RankId rank);
std::vector<RankId> ranks_in(const AxisSpan& group, RankId rank);

/// The first micro-batch, of so many, of the devices that hold the same parameters as this one.
MicroBatchId first_micro_batch(const std::vector<MeshAxis>& devices, RankId rank,
                               int micro_batches);

/// Which experts a device holds, as a number that those of the same place along tp have alike if
/// they hold the same ones: such that differ along ep do not, nor, where experts are dealt out
/// along cp, too, those that differ along it.
int place_of_experts(const std::vector<MeshAxis>& devices, RankId rank, bool along_context = false);
/// first_micro_batch() of the devices that hold the same experts, too.
MicroBatchId first_micro_batch_of_experts(const std::vector<MeshAxis>& devices, RankId rank,
                                          int micro_batches, bool along_context = false);

/// Of so many micro-batches those that differ in their data: along tp and cp devices compute the
/// same, or parts of the same, under numbers of their own. And the number of a micro-batch's data
/// among them.
int micro_batches_of_data(const std::vector<MeshAxis>& devices, int micro_batches);
int number_of_data(const std::vector<MeshAxis>& devices, int micro_batch, int micro_batches);

/// Of an order whose ranks stand for devices (Order::mesh) the one in which every device is a rank:
/// device j of d of rank r is rank r*d + j, and does for the micro-batches from j*M on what r does
/// for those from 0 on. An order without a mesh as it is. Throws InputError where the order names
/// ranks itself, and beyond 2^24 micro-batches.
Order written_out(const Order& order);

}  // namespace pipewright
