// Layers on meshes and cut clusters: the cases of PaddlePaddle's tests.
#include <gtest/gtest.h>

#include "core/spmd/placement_cases.hpp"
#include "tests/golden/golden_orders.hpp"

namespace pipewright {
namespace spmd_placement_test {

namespace fs = std::filesystem;

Json document_of(const fs::path& path) { return parse_json(golden::text_of(path), path.string()); }

TEST(LayerMeshes, AllCasesOfPaddlesTestsAgree) {
  const fs::path path = golden::golden_dir() / "paddle/spmd.json";
  PIPEWRIGHT_NEEDS_GOLDEN(path);
  const Json document = document_of(path);
  const auto cases = spmd::read_layer_cases(JsonCursor(document, path.string()));
  EXPECT_EQ(cases.size(), 12U);
  for (std::size_t at = 0; at < cases.size(); ++at) {
    const Json expected = document.at("layer_to_mesh_cases").at(at).at("expect");
    const Json answer = answer_to(cases[at]);
    EXPECT_EQ(expected.is_string(), answer.contains("raises")) << at << ": " << answer;
    if (expected.is_string()) continue;
    for (const auto& [layer, ranks] : expected.items()) EXPECT_EQ(answer.at(layer), ranks) << at;
  }
}

TEST(ClusterPartition, AllCasesOfPaddlesTestsAgree) {
  const fs::path path = golden::golden_dir() / "paddle/spmd.json";
  PIPEWRIGHT_NEEDS_GOLDEN(path);
  const Json document = document_of(path);
  EXPECT_EQ(spmd::cluster_answers(JsonCursor(document, path.string())),
            document.at("cluster_partition"));
}

TEST(ClusterPartition, KeepsAllDevices) {
  for (int machines = 1; machines < 40; ++machines) {
    for (int devices = 1; devices < 9; ++devices) {
      for (const auto& way : spmd::stage_cuts({machines, devices})) {
        int count = 0;
        for (const spmd::DeviceMesh& stage : way) count += stage.machines * stage.devices;
        EXPECT_EQ(count, machines * devices);
      }
      for (const auto& shape : spmd::mesh_shapes({machines, devices})) {
        int count = 1;
        for (const int size : shape) count *= size;
        EXPECT_EQ(count, machines * devices);
      }
    }
  }
}

}  // namespace spmd_placement_test
}  // namespace pipewright
