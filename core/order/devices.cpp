#include "core/order/devices.hpp"

#include <utility>

#include "core/base/error.hpp"

namespace pipewright {
namespace {

/// Groups and transfers by rank would have to say which devices they mean.
void require_no_ranks(const Order& order) {
  if (!order.groups.empty())
    throw InputError("group " + order.groups.front().name +
                     " names ranks, and each of them stands for devices; name an axis of the mesh, "
                     "or write the devices out");
  const auto require_axis = [&](const Call& call) {
    if (call.kind == ActionKind::HostSync || span_of(order.mesh, call.group)) return;
    throw InputError(to_string(call) +
                     " is between ranks that stand for devices; name an axis of the mesh, or "
                     "write the devices out");
  };
  for (const Call& call : order.calls) require_axis(call);
  for (const ActionParts& action : order.parts) {
    for (const Part& part : action.parts) {
      if (!part.is_computation()) require_axis(part.call);
    }
  }
}

Action with_device(Action action, int micro_batches) {
  if (has_micro_batch(action.kind)) action.micro_batch.value += micro_batches;
  return action;
}

Placement placement_of_devices(const Order& order, int devices) {
  std::vector<std::vector<RankId>> rank_of(static_cast<std::size_t>(order.stages()));
  for (int s = 0; s < order.stages(); ++s) {
    for (int j = 0; j < devices; ++j) {
      for (int m = 0; m < order.micro_batches; ++m) {
        const RankId home = order.placement.rank_of(StageId(s), MicroBatchId(m));
        rank_of[static_cast<std::size_t>(s)].emplace_back(home.value * devices + j);
      }
    }
  }
  return Placement::explicit_micro_batches(std::move(rank_of), order.rank_count() * devices);
}

/// How far the rank's device is, in its block, from the first one along the axis.
int place_along(const std::vector<MeshAxis>& devices, std::string_view name, RankId rank) {
  const MeshAxis* const axis = axis_of(devices, name);
  return axis == nullptr ? 0 : coordinate_of(devices, name, rank) * stride_of(devices, *axis);
}

}  // namespace

int size_along(const std::vector<MeshAxis>& devices, std::string_view axis) {
  const MeshAxis* const found = axis_of(devices, axis);
  return found == nullptr ? 1 : found->devices;
}

int coordinate_of(const std::vector<MeshAxis>& devices, std::string_view axis, RankId rank) {
  const MeshAxis* const found = axis_of(devices, axis);
  return found == nullptr
             ? 0
             : static_cast<int>(rank.value / stride_of(devices, *found) % found->devices);
}

int place_in(const AxisSpan& group, RankId rank) {
  return static_cast<int>(rank.value / group.stride % group.devices);
}

std::vector<RankId> ranks_in(const AxisSpan& group, RankId rank) {
  const auto first = rank.value - place_in(group, rank) * group.stride;
  std::vector<RankId> ranks;
  for (int k = 0; k < group.devices; ++k) ranks.emplace_back(first + k * group.stride);
  return ranks;
}

MicroBatchId first_micro_batch(const std::vector<MeshAxis>& devices, RankId rank,
                               int micro_batches) {
  return MicroBatchId(place_along(devices, kTensorAxis, rank) *
                      (micro_batches / devices_of_rank(devices)));
}

int place_of_experts(const std::vector<MeshAxis>& devices, RankId rank, bool along_context) {
  return place_along(devices, kExpertAxis, rank) +
         (along_context ? place_along(devices, kContextAxis, rank) : 0);
}

MicroBatchId first_micro_batch_of_experts(const std::vector<MeshAxis>& devices, RankId rank,
                                          int micro_batches, bool along_context) {
  const int place =
      place_along(devices, kTensorAxis, rank) + place_of_experts(devices, rank, along_context);
  return MicroBatchId(place * (micro_batches / devices_of_rank(devices)));
}

int micro_batches_of_data(const std::vector<MeshAxis>& devices, int micro_batches) {
  return micro_batches / size_along(devices, kTensorAxis) / size_along(devices, kContextAxis);
}

int number_of_data(const std::vector<MeshAxis>& devices, int micro_batch, int micro_batches) {
  const int each = micro_batches / devices_of_rank(devices);
  int place = micro_batch / each;  // of the device in its block
  int of_data = 0, stride = 1;     // its place among those whose data differ
  for (const MeshAxis& axis : devices) {
    if (axis.name != kTensorAxis && axis.name != kContextAxis) {
      of_data += place % axis.devices * stride;
      stride *= axis.devices;
    }
    place /= axis.devices;
  }
  return of_data * each + micro_batch % each;
}

Order written_out(const Order& order) {
  const int devices = devices_of_rank(order.mesh);
  if (devices == 1) return order;
  require_no_ranks(order);
  if (std::int64_t{order.micro_batches} * devices > kMostMicroBatchesOfOrder)
    throw InputError("a schedule may have at most " + std::to_string(kMostMicroBatchesOfOrder) +
                     " micro-batches, counted once for each device of a rank; these are " +
                     std::to_string(std::int64_t{order.micro_batches} * devices));
  Order result = order;
  result.mesh.clear();
  result.devices = order.mesh;
  result.micro_batches = order.micro_batches * devices;
  result.placement = placement_of_devices(order, devices);
  result.ranks.clear();
  for (const auto& row : order.ranks) {
    for (int j = 0; j < devices; ++j) {
      auto& own = result.ranks.emplace_back(row);
      for (Cell& cell : own) {
        cell.action = with_device(cell.action, j * order.micro_batches);
        if (cell.partner) cell.partner = with_device(*cell.partner, j * order.micro_batches);
      }
    }
  }
  return result;
}

}  // namespace pipewright
