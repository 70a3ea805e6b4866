// Every pair of layouts on small meshes: the steps, carried out on arrays, leave each process with
// exactly what it should have, and cost no more than making everything whole in between.
#include <gtest/gtest.h>

#include "tests/property/spmd/carried_out.hpp"

namespace pipewright::spmd {
namespace reshard_test {

using test::carried_out;
using test::find;
using test::for_each_element;
using test::Held;
using test::State;

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
      held.values.push_back(static_cast<double>(i == 0 ? whole_value(at) - others : 7 * i));
    });
    state[side.mesh.ranks[place]] = std::move(held);
  }
  return state;
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
      double sum = 0;
      for (const std::size_t one : contributors) sum += *find(state.at(side.mesh.ranks[one]), at);
      ASSERT_EQ(sum, static_cast<double>(whole_value(at)));
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
