// From one layout of a tensor to another, on the same mesh or between two of any shapes: the
// cheapest sequence of collectives and transfers, found by search.
#pragma once

#include "core/spmd/local_part.hpp"

namespace pipewright::spmd {

struct Distribution {
  ProcessMesh mesh = {};
  Layout layout = {};
};

/// Elements that one process sends another.
struct PartTransfer {
  int from = 0, to = 0;  // ranks
  LocalPart part;        // of the whole tensor
};

struct ReshardStep {
  enum class Kind {
    Slice,          // each process keeps its part of what all along a mesh dimension have
    MakePartial,    // the first process along a mesh dimension keeps its values for all
    AllGather,      // a division becomes whole
    AllReduce,      // partial values become the same everywhere
    ReduceScatter,  // partial values become a division
    AllToAll,       // a division along one dimension becomes one along another
    Exchange,       // each process gets what it lacks from those that have it
  };
  Kind kind = Kind::Slice;
  int mesh_dim = -1;                          // of all but Exchange
  std::vector<int> more_dims = {};            // that it goes along together with mesh_dim
  int axis = -1;                              // of the division that goes or comes
  int to_axis = -1;                           // AllToAll: of the one that comes
  std::vector<std::vector<int>> groups = {};  // ranks that take part together
  std::vector<PartTransfer> transfers = {};   // of an Exchange
  Distribution after = {};
  std::int64_t bytes = 0;  // that the busiest process sends or receives
};
std::string_view name_of(ReshardStep::Kind kind);
/// The mesh dimensions that it goes along; of an Exchange none.
std::vector<int> dims_of(const ReshardStep& step);

struct ReshardPrices {
  std::int64_t element_bytes = 4;
  /// What a collective, or a message of the busiest process of an Exchange, costs beside its bytes:
  /// as much as so many bytes.
  std::int64_t launch_bytes = 1024;
};

struct ReshardPlan {
  std::vector<ReshardStep> steps;
  std::int64_t bytes = 0;  // of all steps
  std::int64_t cost = 0;   // bytes and launches
};

/// Throws InputError for layouts that do not fit the tensor or their mesh.
ReshardPlan cheapest_reshard(const Shape& shape, const Distribution& from, const Distribution& to,
                             const ReshardPrices& prices = {});

}  // namespace pipewright::spmd
