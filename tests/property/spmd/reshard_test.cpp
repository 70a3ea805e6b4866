// Every pair of layouts on small meshes: the steps, carried out on arrays, leave each process with
// exactly what it should have, and cost no more than making everything whole in between.
#include <gtest/gtest.h>

#include <map>

#include "core/spmd/reshard_steps.hpp"

namespace pipewright::spmd {
namespace reshard_test {

/// What a rank holds: its part and the values in it, row major.
struct Held {
  LocalPart part;
  std::vector<std::int64_t> values;
};
using State = std::map<int, Held>;

/// Calls `act(index in the whole tensor, place in the part)` for each element of a part.
template <class Act>
void for_each_element(const LocalPart& part, Act act) {
  Shape at = part.offset;
  for (std::int64_t place = 0; place < elements_of(part); ++place) {
    act(at, static_cast<std::size_t>(place));
    for (std::size_t axis = at.size(); axis-- > 0;) {
      if (++at[axis] < part.offset[axis] + part.shape[axis]) break;
      at[axis] = part.offset[axis];
    }
  }
}

const std::int64_t* find(const Held& held, const Shape& at) {
  std::size_t place = 0;
  for (std::size_t axis = 0; axis < at.size(); ++axis) {
    const std::int64_t within = at[axis] - held.part.offset[axis];
    if (within < 0 || within >= held.part.shape[axis]) return nullptr;
    place =
        place * static_cast<std::size_t>(held.part.shape[axis]) + static_cast<std::size_t>(within);
  }
  return &held.values[place];
}

std::int64_t whole_value(const Shape& at) {
  std::int64_t value = 1;
  for (const std::int64_t index : at) value = 100 * value + index;
  return value;
}

/// Which of the contributions a process has, and how many there are.
std::pair<int, int> contribution(const Distribution& side, std::size_t place) {
  int index = 0, count = 1;
  for (const auto& [dim, reduction] : side.layout.partial) {
    index =
        index * side.mesh.size(dim) + side.mesh.coordinates(place)[static_cast<std::size_t>(dim)];
    count *= side.mesh.size(dim);
  }
  return {index, count};
}

State initial(const Shape& shape, const Distribution& side) {
  State state;
  for (std::size_t place = 0; place < side.mesh.ranks.size(); ++place) {
    Held held{local_part({shape, side.layout}, side.mesh, place), {}};
    const auto [index, count] = contribution(side, place);
    for_each_element(held.part, [&, i = index, n = count](const Shape& at, std::size_t) {
      const std::int64_t others = 7 * (n - 1) * n / 2;  // 7 + 14 + …
      held.values.push_back(i == 0 ? whole_value(at) - others : 7 * i);
    });
    state[side.mesh.ranks[place]] = std::move(held);
  }
  return state;
}

/// The value at `at` that the members of a group make together, each of its old part.
std::int64_t value_of(const ReshardStep& step, const State& before, const std::vector<int>& group,
                      int rank, const Shape& at) {
  using Kind = ReshardStep::Kind;
  const std::int64_t* own = find(before.at(rank), at);
  if (step.kind == Kind::Slice) return own == nullptr ? -1 : *own;
  if (step.kind == Kind::MakePartial) return rank == group.front() ? *own : 0;
  std::int64_t sum = 0;
  for (const int member : group) {
    const std::int64_t* value = find(before.at(member), at);
    const bool adds = step.kind == Kind::AllReduce || step.kind == Kind::ReduceScatter;
    if (value != nullptr && !adds) return *value;
    if (value == nullptr && adds) return -1;
    if (value != nullptr) sum += *value;
  }
  return sum;
}

const std::vector<int>& group_with(const ReshardStep& step, int rank) {
  for (const std::vector<int>& group : step.groups) {
    for (const int member : group) {
      if (member == rank) return group;
    }
  }
  throw std::logic_error("a rank in no group");
}

/// The transfers of an exchange, and that they are as many bytes as it says.
State exchanged(const Shape& shape, const ReshardStep& step, const State& before) {
  State after;
  for (std::size_t place = 0; place < step.after.mesh.ranks.size(); ++place) {
    const int rank = step.after.mesh.ranks[place];
    Held held{local_part({shape, step.after.layout}, step.after.mesh, place), {}};
    const auto own = before.find(rank);
    for_each_element(held.part, [&](const Shape& at, std::size_t) {
      const std::int64_t* value = own == before.end() ? nullptr : find(own->second, at);
      held.values.push_back(value == nullptr ? -1 : *value);
    });
    after[rank] = std::move(held);
  }
  std::map<int, std::int64_t> sent, received;
  for (const PartTransfer& transfer : step.transfers) {
    Held& target = after.at(transfer.to);
    for_each_element(transfer.part, [&](const Shape& at, std::size_t) {
      const std::int64_t* value = find(before.at(transfer.from), at);
      ASSERT_NE(value, nullptr) << "sent what it does not have";
      ASSERT_NE(find(target, at), nullptr) << "sent what is not wanted";
      *const_cast<std::int64_t*>(find(target, at)) = *value;
    });
    sent[transfer.from] += elements_of(transfer.part);
    received[transfer.to] += elements_of(transfer.part);
  }
  std::int64_t most = 0;
  for (const auto& [rank, elements] : sent) most = std::max(most, elements);
  for (const auto& [rank, elements] : received) most = std::max(most, elements);
  EXPECT_EQ(4 * most, step.bytes);
  return after;
}

State carried_out(const Shape& shape, const ReshardStep& step, const State& before) {
  if (step.kind == ReshardStep::Kind::Exchange) return exchanged(shape, step, before);
  State after;
  for (std::size_t place = 0; place < step.after.mesh.ranks.size(); ++place) {
    const int rank = step.after.mesh.ranks[place];
    const std::vector<int>& group = group_with(step, rank);
    Held held{local_part({shape, step.after.layout}, step.after.mesh, place), {}};
    for_each_element(held.part, [&](const Shape& at, std::size_t) {
      held.values.push_back(value_of(step, before, group, rank, at));
    });
    after[rank] = std::move(held);
  }
  return after;
}

/// Whether each contribution of the same elements, summed, is the tensor.
void expect_right(const Shape& shape, const Distribution& side, const State& state) {
  for (std::size_t place = 0; place < side.mesh.ranks.size(); ++place) {
    const Held& held = state.at(side.mesh.ranks[place]);
    const LocalPart part = local_part({shape, side.layout}, side.mesh, place);
    ASSERT_EQ(held.part.offset, part.offset);
    ASSERT_EQ(held.part.shape, part.shape);
    std::vector<std::size_t> contributors = {place};
    for (const auto& [dim, reduction] : side.layout.partial) {
      std::vector<std::size_t> more;
      for (const std::size_t one : contributors) {
        for (const std::size_t other : side.mesh.line(one, dim)) more.push_back(other);
      }
      contributors = std::move(more);
    }
    for_each_element(part, [&](const Shape& at, std::size_t) {
      std::int64_t sum = 0;
      for (const std::size_t one : contributors) sum += *find(state.at(side.mesh.ranks[one]), at);
      ASSERT_EQ(sum, whole_value(at));
    });
  }
}

/// The way of a table of pairs: sums made whole, divisions made whole, then what is wanted.
std::int64_t cost_through_whole(const Shape& shape, const Distribution& from,
                                const Distribution& to) {
  const ReshardPrices prices;
  Distribution here = from;
  std::int64_t cost = 0;
  const auto take = [&](auto wanted) {
    for (const ReshardStep& step : steps_from(shape, here, to.layout, prices)) {
      if (!wanted(step)) continue;
      const bool is_free =
          step.kind == ReshardStep::Kind::Slice || step.kind == ReshardStep::Kind::MakePartial;
      cost += step.bytes + (is_free ? 0 : prices.launch_bytes);
      here = step.after;
      return true;
    }
    return false;
  };
  const auto differs = [&](const ReshardStep& step) {
    return here.layout.partial.count(step.mesh_dim) == 0 ||
           to.layout.partial.count(step.mesh_dim) == 0;
  };
  if (here.layout == to.layout) return 0;
  while (take([&](const ReshardStep& step) {
    return (step.kind == ReshardStep::Kind::AllReduce && differs(step)) ||
           step.kind == ReshardStep::Kind::AllGather;
  })) {
  }
  while (take([&](const ReshardStep& step) {
    if (step.kind == ReshardStep::Kind::MakePartial) return true;
    if (step.kind != ReshardStep::Kind::Slice) return false;
    const std::vector<int>& wanted = to.layout.dims[static_cast<std::size_t>(step.axis)];
    const std::size_t have = here.layout.dims[static_cast<std::size_t>(step.axis)].size();
    return have < wanted.size() && wanted[have] == step.mesh_dim;
  })) {
  }
  EXPECT_EQ(here.layout, to.layout);
  return cost;
}

/// All layouts of a tensor on a mesh, by placements.
std::vector<Layout> layouts(const ProcessMesh& mesh, std::size_t tensor_dims) {
  std::vector<std::vector<Placement>> all = {{}};
  for (int dim = 0; dim < mesh.dims(); ++dim) {
    std::vector<std::vector<Placement>> more;
    for (const std::vector<Placement>& so_far : all) {
      std::vector<Placement> choices = {{}, {.kind = Placement::Kind::Partial}};
      for (std::size_t axis = 0; axis < tensor_dims; ++axis) {
        choices.push_back({.kind = Placement::Kind::Shard, .axis = static_cast<int>(axis)});
      }
      for (const Placement& choice : choices) {
        more.push_back(so_far);
        more.back().push_back(choice);
      }
    }
    all = std::move(more);
  }
  std::vector<Layout> result;
  for (const auto& placements : all) result.push_back(layout_of(placements, tensor_dims));
  return result;
}

std::string text(const Distribution& side) {
  std::string line = text_of(side.mesh) + ":";
  for (const Placement& placement : placements_of(side.layout, side.mesh)) {
    line += " " + text_of(placement);
  }
  return line;
}

/// All pairs, or every so many of them.
void try_all(const ProcessMesh& source, const ProcessMesh& target, const Shape& shape,
             int every = 1) {
  int pair = 0;
  for (const Layout& in : layouts(source, shape.size())) {
    for (const Layout& out : layouts(target, shape.size())) {
      if (pair++ % every != 0) continue;
      const Distribution from{source, in}, to{target, out};
      SCOPED_TRACE(text(from) + " to " + text(to));
      const ReshardPlan plan = cheapest_reshard(shape, from, to);
      State state = initial(shape, from);
      for (const ReshardStep& step : plan.steps) state = carried_out(shape, step, state);
      expect_right(shape, to, state);
      if (source == target) {
        EXPECT_LE(plan.cost, cost_through_whole(shape, from, to));
      }
      if (::testing::Test::HasFailure()) return;
    }
  }
}

ProcessMesh with_ranks(ProcessMesh mesh, int first, bool reversed) {
  for (std::size_t at = 0; at < mesh.ranks.size(); ++at) {
    const std::size_t back = mesh.ranks.size() - 1 - at;
    mesh.ranks[at] = first + static_cast<int>(reversed ? back : at);
  }
  return mesh;
}

const std::vector<Shape> kShapes = {{7}, {4, 6}, {5, 3}};

TEST(Reshard, OfEveryPairOnOneMeshMovesTheRightElements) {
  for (const std::vector<int>& mesh :
       {std::vector<int>{2}, std::vector<int>{4}, {2, 2}, {2, 3}, {1, 2}}) {
    for (const Shape& shape : kShapes) {
      const ProcessMesh processes = ProcessMesh::of_shape(mesh);
      try_all(processes, processes, shape);
    }
  }
}

TEST(Reshard, ToMoreThanTwoMeshDimensionsToo) {
  const ProcessMesh mesh = ProcessMesh::of_shape({2, 2, 2});
  try_all(mesh, mesh, {5, 6}, 37);
}

TEST(Reshard, BetweenMeshesOfOneShapeMovesTheRightElements) {
  for (const Shape& shape : kShapes) {
    const ProcessMesh line = ProcessMesh::of_shape({4}), grid = ProcessMesh::of_shape({2, 2});
    try_all(line, with_ranks(line, 0, true), shape);
    try_all(grid, with_ranks(grid, 4, false), shape);
    try_all(grid, with_ranks(grid, 2, true), shape);
  }
}

TEST(Reshard, BetweenMeshesOfOtherShapesMovesTheRightElements) {
  const ProcessMesh line = ProcessMesh::of_shape({4}), grid = ProcessMesh::of_shape({2, 2});
  const ProcessMesh pair = ProcessMesh::of_shape({2}), six = ProcessMesh::of_shape({2, 3});
  for (const Shape& shape : kShapes) {
    try_all(line, grid, shape);
    try_all(grid, with_ranks(line, 2, true), shape);
    try_all(pair, six, shape);
    try_all(six, with_ranks(pair, 5, false), shape);
  }
}

}  // namespace reshard_test
}  // namespace pipewright::spmd
