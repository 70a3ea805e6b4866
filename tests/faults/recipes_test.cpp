// The recipes of docs/several-hosts.md as they stand there, between hosts that share nothing but
// files: each has its processes, its network and its name. A tool that is not here is named. The
// job ends, and its losses are those of a run by threads.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tests/support/small_job.hpp"

namespace pipewright::test {
namespace recipes_test {

constexpr int kSkipped = 77, kRanks = 4;

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// The block for several hosts behind a heading.
std::string recipe(const std::string& heading) {
  const std::string page = contents(PIPEWRIGHT_SOURCE_DIR "/docs/several-hosts.md");
  const std::string fence = "```sh hosts\n";
  const std::size_t begin = page.find(fence, page.find("\n## " + heading + "\n")) + fence.size();
  return page.substr(begin, page.find("```", begin) - begin);
}

std::vector<double> losses_of(const std::string& document) {
  std::vector<double> losses;
  const auto parsed = nlohmann::json::parse(document, nullptr, false);
  if (parsed.is_discarded()) return losses;
  for (const auto& step : parsed["steps"]) losses.push_back(step["loss"]);
  return losses;
}

class Recipe : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(write_small_job(folder_, 4).status, 0);
    // What the recipe calls pipewright: it notes where each rank was and what it said.
    folder_.write("pipewright",
                  "#!/bin/sh\n"
                  "r=${PIPEWRIGHT_RANK:-$RANK}\n"
                  "uname -n >host.$r\n"
                  "exec \"$PW\" \"$@\" --numerics exact --json >out.$r\n");
    std::string hosts = "127.0.0.1 localhost\n10.77.0.254 control\n";
    for (int h = 0; h < kRanks; ++h) {
      hosts += "10.77.0." + std::to_string(h + 1) + " node" + std::to_string(h) + "\n";
    }
    folder_.write("hosts", hosts);
  }

  /// A script that finds itself beside that many hosts; $ON_HOST, $HEAD.
  CommandResult on_hosts(int hosts, const std::string& script) {
    folder_.write("script",
                  "export PATH=\"$PWD:$PATH\" HOME=\"$PWD\" HEAD=10.77.0.1\n"
                  "mount --bind hosts /etc/hosts\n"
                  "for ((h = 0; h < " +
                      std::to_string(hosts) +
                      "; ++h)); do \"$ON_HOST\" node$h mount --bind \"$PWD/hosts\" /etc/hosts; "
                      "done\n" +
                      script);
    return shell(
        "chmod +x pipewright; umask 077; head -c 32 /dev/urandom | base64 >pipewright.token; "
        "timeout -k 5 100 " PIPEWRIGHT_SOURCE_DIR "/tests/support/on_hosts " +
            std::to_string(hosts) + " bash script",
        folder_);
  }

  void expect_trained(const CommandResult& result, int ranks_a_host) {
    EXPECT_EQ(result.status, 0) << result.out << result.err;
    for (int r = 0; r < kRanks; ++r) {
      EXPECT_EQ(contents(folder_.path() / ("host." + std::to_string(r))),
                "node" + std::to_string(r / ranks_a_host) + "\n");
    }
    const auto alone = pipewright("run plan.json --numerics exact --json", folder_);
    EXPECT_EQ(losses_of(contents(folder_.path() / "out.0")), losses_of(alone.out));
    EXPECT_EQ(losses_of(alone.out).size(), 6U) << alone.err;
  }

  Folder folder_;
};

TEST_F(Recipe, OfTorchrun) {
  const char* python = std::getenv("PIPEWRIGHT_TORCH_PYTHON");
  if (python == nullptr) GTEST_SKIP() << "PIPEWRIGHT_TORCH_PYTHON names no Python with torchrun";
  const auto bin = std::filesystem::path(python).parent_path();
  if (!std::filesystem::exists(bin / "torchrun")) GTEST_SKIP() << "there is no torchrun in " << bin;
  folder_.write("recipe", recipe("torchrun"));
  const CommandResult result = on_hosts(
      2,
      "export PATH=" + bin.string() +
          ":$PATH\n"
          "for n in 0 1; do NODE=$n \"$ON_HOST\" node$n sh -ec \"cd '$PWD'; . ./recipe\" & done\n"
          "wait -n && wait -n\n");
  if (result.status == kSkipped) GTEST_SKIP() << result.err;
  expect_trained(result, 2);
}

TEST_F(Recipe, OfSrun) {
  folder_.write("recipe", recipe("srun"));
  const CommandResult result =
      on_hosts(2, PIPEWRIGHT_SOURCE_DIR
               "/tests/support/with_slurm 2 salloc -N 2 --ntasks-per-node 2 sh -e recipe\n");
  if (result.status == kSkipped) GTEST_SKIP() << result.err;
  expect_trained(result, 2);
}

TEST_F(Recipe, OfMpirun) {
  if (std::string(PIPEWRIGHT_MPIRUN).empty()) GTEST_SKIP() << "there is no mpirun here";
  folder_.write("recipe", recipe("mpirun"));
  const CommandResult result = on_hosts(kRanks, "HOSTS=\"$MPI_HOSTS\" sh -e recipe\n");
  if (result.status == kSkipped) GTEST_SKIP() << result.err;
  expect_trained(result, 1);
}

}  // namespace recipes_test
}  // namespace pipewright::test
