// What a profiler that NVTX has loaded is told by `run --device cuda`: the actions of its trace.
// On the stand-in, which has the real module's ranges (exec/devices/cuda/module/nvtx_ranges.cpp).
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "tests/gpu/stand_in_folder.hpp"

namespace pipewright::test {
namespace nvtx_test {

using nlohmann::json;
using Names = std::map<std::string, std::vector<std::string>>;

class Nvtx : public OnStandIn {
 protected:
  void SetUp() override {
    if (std::string(PIPEWRIGHT_NVTX_COLLECTOR).empty())
      GTEST_SKIP() << "built without the header of NVTX 3 (pip: nvidia-nvtx)";
    OnStandIn::SetUp();
    ASSERT_EQ(write_small_job(folder_).status, 0);
  }
  CommandResult watched(const std::string& words) const {
    return shell("PIPEWRIGHT_RANGES=ranges NVTX_INJECTION64_PATH=" PIPEWRIGHT_NVTX_COLLECTOR
                 " ./pipewright " +
                     words,
                 folder_);
  }
  /// By outermost range, those inside.
  Names told() const {
    Names all;
    std::map<int, std::string> open;  // by thread
    std::ifstream file(folder_.path() / "ranges");
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      int thread = -1, depth = -1;
      std::string domain, name;
      words >> thread >> depth >> domain;
      std::getline(words >> std::ws, name);
      EXPECT_EQ(domain, "pipewright:") << line;
      EXPECT_LE(depth, 1) << line;
      if (depth == 0) all[open[thread] = name];
      if (depth == 1) all[open[thread]].push_back(name);
    }
    return all;
  }
};

/// Of a trace's ranks the actions, sorted.
std::map<int, std::vector<std::string>> actions_of(const std::filesystem::path& path) {
  std::map<int, std::vector<std::string>> actions;
  const json trace = json::parse(std::ifstream(path));
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X" || !event.contains("args") || !event["args"].contains("action"))
      continue;
    actions[event.at("pid").get<int>() - 1].push_back(event["args"]["action"]);
  }
  for (auto& [rank, names] : actions) std::sort(names.begin(), names.end());
  return actions;
}

TEST_F(Nvtx, AProfilerIsToldTheActionsOfTheTrace) {
  const CommandResult run =
      watched("run plan.json --device cuda --steps 3 --no-cuda-graph --trace trace.json");
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.err.find("profiler"), std::string::npos) << run.err;
  Names all = told();
  EXPECT_EQ(all.size(), 6U);
  const auto actions = actions_of(folder_.path() / "trace.json");
  ASSERT_EQ(actions.size(), 2U);
  for (const auto& [rank, names] : actions) {
    EXPECT_GE(names.size(), 4U * 3 + 1);
    for (int step = 0; step < 3; ++step) {
      auto& inside = all["rank " + std::to_string(rank) + " step " + std::to_string(step)];
      std::sort(inside.begin(), inside.end());
      EXPECT_EQ(inside, names) << "rank " << rank << " step " << step;
    }
  }
}

TEST_F(Nvtx, AGraphIsSaidToHideThem) {
  const CommandResult run = watched("run plan.json --device cuda --steps 4");
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_NE(run.err.find("--no-cuda-graph shows them"), std::string::npos) << run.err;
  EXPECT_TRUE(told()["rank 0 step 3"].empty());
}

TEST_F(Nvtx, DoctorSaysThatItWorks) {
  const CommandResult doctor = shell("./pipewright doctor", folder_);
  ASSERT_EQ(doctor.status, 0) << doctor.err;
  EXPECT_NE(doctor.out.find("Nsight shows actions"), std::string::npos) << doctor.out;
}

}  // namespace nvtx_test
}  // namespace pipewright::test
