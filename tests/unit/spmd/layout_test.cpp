// Meshes, placements and what each process holds.
#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "core/spmd/local_part.hpp"

namespace pipewright::spmd {
namespace layout_test {

std::string refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const InputError& error) {
    return error.what();
  }
  return "nothing refused";
}

TEST(ProcessMesh, CountsItsPlacesRowByRow) {
  const ProcessMesh mesh = ProcessMesh::of_shape({2, 3});
  EXPECT_EQ(mesh.coordinates(4), (std::vector<int>{1, 1}));
  EXPECT_EQ(mesh.line(4, 0), (std::vector<std::size_t>{1, 4}));
  EXPECT_EQ(mesh.line(4, 1), (std::vector<std::size_t>{3, 4, 5}));
}

TEST(ProcessMesh, RefusesWhatIsNoMesh) {
  ProcessMesh twice = ProcessMesh::of_shape({2, 2});
  twice.ranks = {0, 1, 1, 2};
  EXPECT_EQ(refusal([&] { require_mesh(twice); }), "a process stands in a mesh once");
  ProcessMesh few = ProcessMesh::of_shape({2, 2});
  few.ranks.pop_back();
  EXPECT_EQ(refusal([&] { require_mesh(few); }), "a mesh of shape 2x2 has 4 processes, not 3");
  EXPECT_EQ(refusal([] { require_mesh({}); }), "a mesh has 1 to 8 dimensions, not 0");
}

TEST(TensorLayout, IsThatOfItsPlacementsAndBack) {
  const ProcessMesh mesh = ProcessMesh::of_shape({2, 2, 2});
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"R", "S1", "P(max)"}, {"S0", "S0", "R"}, {"P(sum)", "R", "S2"}}) {
    std::vector<Placement> placements;
    for (const std::string& word : words) {
      placements.push_back(placement_of(word));
      EXPECT_EQ(text_of(placements.back()), word);
    }
    EXPECT_EQ(placements_of(layout_of(placements, 3), mesh), placements);
  }
}

TEST(TensorLayout, OfSeveralMeshDimensionsIsWrittenAsTheLargest) {
  const ProcessMesh mesh = ProcessMesh::of_shape({2, 3, 3});
  EXPECT_EQ(mapping_of({}, mesh), -1);
  EXPECT_EQ(mapping_of({0}, mesh), 0);
  EXPECT_EQ(mapping_of({0, 2, 1}, mesh), 2);
}

TEST(TensorLayout, RefusesWhatAMeshCannotDo) {
  const ProcessMesh mesh = ProcessMesh::of_shape({2, 2});
  const auto refused = [&](const Layout& layout) {
    return refusal([&] { require_layout({.shape = {4, 6}, .layout = layout}, mesh, "x"); });
  };
  EXPECT_EQ(refused({.dims = {{0}}, .partial = {}}),
            "x: has 2 dimensions, and its dims_mapping 1 entries");
  EXPECT_EQ(refused({.dims = {{0}, {2}}, .partial = {}}),
            "x: names mesh dimension 2, and the mesh has 2");
  EXPECT_EQ(refused({.dims = {{0}, {0}}, .partial = {}}), "x: mesh dimension 0 divides it twice");
  EXPECT_EQ(refused({.dims = {{0}, {}}, .partial = {{0, Reduction::Sum}}}),
            "x: mesh dimension 0 divides it, so its values there cannot be Partial");
  EXPECT_EQ(refusal([] { (void)placement_of("S"); }),
            "expected a placement such as \"R\", \"S0\" or \"P(sum)\", found \"S\"");
  EXPECT_EQ(refusal([] { (void)placement_of("P(maxx)"); }),
            "\"maxx\" is no reduction (did you mean \"max\"?)");
  EXPECT_EQ(refusal([] { (void)layout_of({placement_of("S2")}, 2); }),
            "mesh dimension 0 divides dimension 2 of a tensor that has 2");
}

/// Offsets and sizes along dimension 0, of each process of a mesh of four.
std::vector<std::pair<std::int64_t, std::int64_t>> shards(std::int64_t size, const Layout& layout) {
  std::vector<std::pair<std::int64_t, std::int64_t>> all;
  const ProcessMesh mesh = ProcessMesh::of_shape({2, 2});
  for (std::size_t place = 0; place < 4; ++place) {
    const LocalPart part = local_part({.shape = {size}, .layout = layout}, mesh, place);
    all.emplace_back(part.offset[0], part.shape[0]);
  }
  return all;
}

using Shards = std::vector<std::pair<std::int64_t, std::int64_t>>;

TEST(LocalPart, IsACeiledShareAndTheLastAreShorterOrEmpty) {
  const Layout inner{.dims = {{1}}, .partial = {}}, both{.dims = {{0, 1}}, .partial = {}};
  EXPECT_EQ(shards(5, inner), (Shards{{0, 3}, {3, 2}, {0, 3}, {3, 2}}));
  EXPECT_EQ(shards(7, both), (Shards{{0, 2}, {2, 2}, {4, 2}, {6, 1}}));
  EXPECT_EQ(shards(1, both), (Shards{{0, 1}, {1, 0}, {1, 0}, {1, 0}}));
}

TEST(LocalPart, TakesTheOuterMeshDimensionFirst) {
  const Layout reversed{.dims = {{1, 0}}, .partial = {}};
  EXPECT_EQ(shards(8, reversed), (Shards{{0, 2}, {4, 2}, {2, 2}, {6, 2}}));
}

TEST(LocalPart, PartsTogetherAreTheTensor) {
  const ProcessMesh mesh = ProcessMesh::of_shape({3, 2});
  for (std::int64_t size = 0; size < 14; ++size) {
    std::vector<int> owners(static_cast<std::size_t>(size));
    for (std::size_t place = 0; place < 6; ++place) {
      const LocalPart part =
          local_part({.shape = {size}, .layout = {.dims = {{1, 0}}, .partial = {}}}, mesh, place);
      for (std::int64_t at = 0; at < part.shape[0]; ++at) {
        ++owners[static_cast<std::size_t>(part.offset[0] + at)];
      }
    }
    EXPECT_EQ(owners, std::vector<int>(static_cast<std::size_t>(size), 1)) << size;
  }
}

}  // namespace layout_test
}  // namespace pipewright::spmd
