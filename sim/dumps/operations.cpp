#include "sim/dumps/operations.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "core/base/json_fields.hpp"

namespace pipewright::sim {
namespace {

/// The side whose sizes all members agree about.
enum class Side : std::uint8_t { Inputs, Outputs, Neither };

struct Operation {
  std::string_view recorded, name;
  ActionKind kind;
  Side side;
};

// Variants of one collective by the names that PyTorch records; a name that is not here is that of
// a collective that orders have no kind for.
constexpr Operation kOperations[] = {
    {"all_reduce", "all_reduce", ActionKind::AllReduce, Side::Inputs},
    {"allreduce_coalesced", "all_reduce", ActionKind::AllReduce, Side::Inputs},
    {"broadcast", "broadcast", ActionKind::Broadcast, Side::Inputs},
    {"_broadcast_oop", "broadcast", ActionKind::Broadcast, Side::Inputs},
    {"all_gather", "all_gather", ActionKind::AllGather, Side::Inputs},
    {"_all_gather_base", "all_gather", ActionKind::AllGather, Side::Inputs},
    {"all_gather_single", "all_gather", ActionKind::AllGather, Side::Inputs},
    {"all_gather_into_tensor", "all_gather", ActionKind::AllGather, Side::Inputs},
    {"all_gather_into_tensor_coalesced", "all_gather", ActionKind::AllGather, Side::Inputs},
    {"all_gather_v", "all_gather_v", ActionKind::AllGather, Side::Neither},
    {"reduce_scatter", "reduce_scatter", ActionKind::ReduceScatter, Side::Outputs},
    {"_reduce_scatter_base", "reduce_scatter", ActionKind::ReduceScatter, Side::Outputs},
    {"reduce_scatter_single", "reduce_scatter", ActionKind::ReduceScatter, Side::Outputs},
    {"reduce_scatter_tensor_coalesced", "reduce_scatter", ActionKind::ReduceScatter, Side::Outputs},
    {"reduce_scatter_v", "reduce_scatter_v", ActionKind::ReduceScatter, Side::Neither},
    {"all_to_all", "all_to_all", ActionKind::AllToAll, Side::Neither},
    {"all_to_all_single", "all_to_all", ActionKind::AllToAll, Side::Neither},
    {"all_to_all_v_single", "all_to_all", ActionKind::AllToAll, Side::Neither},
    {"send", "send", ActionKind::NamedSend, Side::Inputs},
    {"recv", "recv", ActionKind::NamedRecv, Side::Outputs},
    {"reduce", "reduce", ActionKind::AllReduce, Side::Inputs},
    {"_reduce_oop", "reduce", ActionKind::AllReduce, Side::Inputs},
    {"gather", "gather", ActionKind::AllGather, Side::Inputs},
    {"scatter", "scatter", ActionKind::ReduceScatter, Side::Outputs},
    {"all_reduce_barrier", "barrier", ActionKind::AllReduce, Side::Neither},
    {"barrier", "barrier", ActionKind::AllReduce, Side::Neither},
};

}  // namespace

std::int64_t elements_of(const Tensors& tensors) {
  std::int64_t sum = 0;
  for (const auto& sizes : tensors.sizes) {
    std::int64_t product = std::ranges::count(sizes, 0) > 0 ? 0 : 1;
    for (const std::int64_t extent : sizes)
      product = extent > 0 && product > kMostBytes / extent ? kMostBytes : product * extent;
    sum = std::min(kMostBytes, sum + product);
  }
  return sum;
}

Call call_of(const RecordedCall& call, const RecordedGroup& group) {
  const auto known = std::ranges::find(kOperations, call.operation, &Operation::recorded);
  const Operation operation =
      known != std::end(kOperations)
          ? *known
          : Operation{call.operation, call.operation, ActionKind::AllReduce, Side::Neither};
  Call made{.kind = operation.kind, .data = as_call_name(operation.name)};
  if (call.is_transfer) {
    const bool sends = call.operation == "send";
    made.peer = group.ranks[static_cast<std::size_t>(sends ? call.destination : call.source)];
    made.data.clear();
  }
  if (operation.side == Side::Neither) return made;
  const Tensors& agreed = operation.side == Side::Inputs ? call.inputs : call.outputs;
  if (agreed.sizes.empty()) return made;
  made.shape = {elements_of(agreed)};
  if (!agreed.types.empty()) made.dtype = agreed.types.front();
  return made;
}

}  // namespace pipewright::sim
