// A checkpoint says nothing of how ranks divided the training that wrote it: any other division of
// the model goes on from it, and the end is that of the training that was never interrupted, bit
// for bit in exact numerics.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "exec/checkpoint/checkpoint.hpp"
#include "tests/parity/divided/divided_program.hpp"
#include "tests/support/command_runner.hpp"

namespace pipewright::tests {
namespace divided_checkpoint_test {

namespace fs = std::filesystem;
using exec::Checkpoint;
using test::Folder;

struct Division {
  const char* name;
  int pipeline_ranks = 1;
  Layout layout = {};
};

const std::vector<Division>& divisions() {
  static const std::vector<Division> all = {
      {"tp 2", 1, {.tensor = 2}},
      {"one rank", 1, {.tensor = 1}},
      {"pp 2, tp 2", 2, {.tensor = 2}},
      {"tp 4", 1, {.tensor = 4}},
      {"dp 2", 1, {.tensor = 1, .replicas = 2}},
      {"dp 2, tp 2, ZeRO 1", 1, {.tensor = 2, .replicas = 2, .sharded = true}},
      {"pp 2", 2, {.tensor = 1}},
      {"pp 2, dp 2, tp 4, ZeRO 1", 2, {.tensor = 4, .replicas = 2, .sharded = true}},
  };
  return all;
}

const std::vector<Division>& divisions_of_experts() {
  static const std::vector<Division> all = {
      {"ep 2", 1, {.tensor = 1, .experts = 2}},
      {"one rank", 1, {.tensor = 1}},
      {"ep 4", 1, {.tensor = 1, .experts = 4}},
      {"pp 2, ep 2, tp 2", 2, {.tensor = 2, .experts = 2}},
      {"ep 2, dp 2, ZeRO 3",
       1,
       {.tensor = 1, .replicas = 2, .sharded = true, .zero = 3, .experts = 2}},
      {"tp 4", 1, {.tensor = 4}},
      {"pp 2, ep 2, ZeRO 1", 2, {.tensor = 1, .sharded = true, .experts = 2}},
      {"ep 2, dp 2, ZeRO 2 in groups",
       1,
       {.tensor = 1, .replicas = 2, .sharded = true, .zero = 2, .experts = 2, .groups = 2}},
  };
  return all;
}

/// Four micro-batches a step, whoever computes them.
Program program_of(const Division& division, const Model& model) {
  const int of_each = 4 / (division.layout.replicas * division.layout.experts);
  return divided(planner::make_order("1f1b", {division.pipeline_ranks, of_each, 1, {}}), model,
                 division.layout);
}

void train(const Division& division, const Model& model, int steps, const fs::path* from,
           const exec::CheckpointSpec& save) {
  const Program program = program_of(division, model);
  DividedSetting setting(program, model, exec::Numerics::Exact, division.layout);
  setting.training.optimizer.kind = exec::OptimizerKind::AdamW;
  std::optional<Checkpoint> start;
  if (from != nullptr) setting.training.start = &start.emplace(Checkpoint::open(*from));
  setting.training.save = save;
  const auto run =
      exec::cpu::run_on_cpu(program, costs_of(program, 1), setting.training, {.steps = steps});
  EXPECT_TRUE(run.finished());
}

using Arrays = std::map<std::string, std::vector<float>>;

Arrays arrays_in(const fs::path& folder) {
  const Checkpoint checkpoint = Checkpoint::open(folder);
  Arrays arrays;
  for (const auto& [name, size] : checkpoint.sizes()) {
    auto& array = arrays[name.first + " " + name.second];
    array.resize(static_cast<std::size_t>(size));
    checkpoint.read(name.first, name.second, array);
  }
  return arrays;
}

void expect_same_bits(const Arrays& found, const Arrays& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, array] : expected) EXPECT_EQ(found.at(name), array) << name;
}

/// Each goes on with the next one and with the one three further.
void expect_any_goes_on(const std::vector<Division>& divisions, const Model& model) {
  const Folder whole;
  train({"one rank", 1, {.tensor = 1}}, model, 4, nullptr, {.folder = whole.path(), .watch = {}});
  const Arrays expected = arrays_in(whole.path());
  for (std::size_t i = 0; i < divisions.size(); ++i) {
    const Division& before = divisions[i];
    const Folder half;
    train(before, model, 2, nullptr, {.folder = half.path(), .watch = {}});
    for (const std::size_t further : {1U, 3U}) {
      const Division& behind = divisions[(i + further) % divisions.size()];
      SCOPED_TRACE(std::string(before.name) + ", then " + behind.name);
      const Folder end;
      const fs::path from = half.path();
      train(behind, model, 2, &from, {.folder = end.path(), .watch = {}});
      expect_same_bits(arrays_in(end.path()), expected);
    }
  }
}

TEST(DividedCheckpoints, AnyDivisionGoesOnFromAnyOther) {
  for (const Model& model : {divisible_llama(), divisible_tied(), divisible_deepseek()})
    expect_any_goes_on(divisions(), model);
}

TEST(DividedCheckpoints, AnyDivisionOfExpertsGoesOnFromAnyOther) {
  for (const Model& model : {divisible_mixtral(), divisible_deepseek()})
    expect_any_goes_on(divisions_of_experts(), model);
}

TEST(DividedCheckpoints, AnyDivisionOfRowsGoesOnFromAnyOther) {
  const std::vector<Division> divisions = {
      {"sp, tp 4", 1, {.tensor = 4, .rows = true}},
      {"one rank", 1, {.tensor = 1}},
      {"sp, pp 2, tp 2, dp 2, ZeRO 1",
       2,
       {.tensor = 2, .replicas = 2, .sharded = true, .rows = true}},
      {"tp 2", 1, {.tensor = 2}},
  };
  expect_any_goes_on(divisions, divisible_model({{"sequence", 8}}));
}

TEST(DividedCheckpoints, AnyDivisionOfSequencesGoesOnFromAnyOther) {
  const std::vector<Division> divisions = {
      {"cp 2", 1, {.tensor = 1, .context = 2}},
      {"one rank", 1, {.tensor = 1}},
      {"cp 4", 1, {.tensor = 1, .context = 4}},
      {"pp 2, cp 2, tp 2", 2, {.tensor = 2, .context = 2}},
      {"cp 2, dp 2, ZeRO 3",
       1,
       {.tensor = 1, .replicas = 2, .sharded = true, .zero = 3, .context = 2}},
      {"sp, tp 4", 1, {.tensor = 4, .rows = true}},
      {"sp, cp 2, tp 2, ZeRO 2",
       1,
       {.tensor = 2, .sharded = true, .zero = 2, .rows = true, .context = 2}},
      {"pp 2, cp 2, ZeRO 1", 2, {.tensor = 1, .sharded = true, .context = 2}},
      {"cp 2, tp 2, dp 2, ZeRO 2 in groups",
       1,
       {.tensor = 2, .replicas = 2, .sharded = true, .zero = 2, .groups = 2, .context = 2}},
  };
  expect_any_goes_on(divisions, with_eight_tokens({{"style", "llama"}, {"kv_heads", 4}}));
  expect_any_goes_on(divisions, with_eight_tokens({{"tied_head", true}}));
}

TEST(DividedCheckpoints, AnyDivisionOfSequencesAndExpertsGoesOnFromAnyOther) {
  const std::vector<Division> divisions = {
      {"cp 2", 1, {.tensor = 1, .context = 2}},
      {"one rank", 1, {.tensor = 1}},
      {"ep 2, cp 2", 1, {.tensor = 1, .experts = 2, .context = 2}},
      {"tp 2", 1, {.tensor = 2}},
      {"pp 2, tp 2, cp 2", 2, {.tensor = 2, .context = 2}},
      {"ep 2, cp 2, dp 2, ZeRO 3",
       1,
       {.tensor = 1, .replicas = 2, .sharded = true, .zero = 3, .experts = 2, .context = 2}},
      {"ep 4", 1, {.tensor = 1, .experts = 4}},
      {"pp 2, ep 2, cp 2, ZeRO 1", 2, {.tensor = 1, .sharded = true, .experts = 2, .context = 2}},
  };
  expect_any_goes_on(divisions, divisible_deepseek({{"sequence", 8}}));
}

TEST(DividedCheckpoints, AnyDivisionOfFoldedExpertsGoesOnFromAnyOther) {
  constexpr ExpertFold kTensor = ExpertFold::Tensor, kBoth = ExpertFold::TensorAndContext;
  const std::vector<Division> divisions = {
      {"tp 2, ep 2", 1, {.rows = true, .fold = kTensor}},
      {"one rank", 1, {.tensor = 1}},
      {"tp 2, dp 2, ep 4", 1, {.experts = 2, .rows = true, .fold = kTensor}},
      {"pp 2, tp 4, ep 4", 2, {.tensor = 4, .rows = true, .fold = kTensor}},
      {"ep 4", 1, {.tensor = 1, .experts = 4}},
      {"cp 2, tp 2, ep 4", 1, {.rows = true, .context = 2, .fold = kBoth}},
      {"cp 2, tp 2, ep 2, ZeRO 1",
       1,
       {.sharded = true, .rows = true, .context = 2, .fold = kTensor}},
      {"tp 2, dp 4, ep 4, ZeRO 3",
       1,
       {.replicas = 2, .sharded = true, .zero = 3, .experts = 2, .rows = true, .fold = kTensor}},
      {"cp 2, tp 2, dp 2, ep 4, ZeRO 2 in groups",
       1,
       {.replicas = 2,
        .sharded = true,
        .zero = 2,
        .groups = 2,
        .rows = true,
        .context = 2,
        .fold = kBoth}},
  };
  expect_any_goes_on(divisions, divisible_deepseek({{"sequence", 8}}));
}

TEST(DividedCheckpoints, AreTheFilesOfATrainingThatIsNotDivided) {
  const Model model = divisible_model();
  std::vector<std::string> parts;
  for (const int tensor : {1, 2}) {
    const Folder folder;
    train({"", 1, {.tensor = tensor}}, model, 1, nullptr, {.folder = folder.path(), .watch = {}});
    for (const auto& entry : fs::directory_iterator(exec::checkpoint_folder(folder.path(), 1))) {
      if (!entry.path().filename().string().starts_with("rank-0.")) continue;
      std::ifstream file(entry.path(), std::ios::binary);
      parts.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
  }
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_TRUE(parts[0] == parts[1]);
}

/// The disk is full in the middle of a save: the one before it is whole, and nothing else is there.
TEST(DividedCheckpoints, ASaveThatFailsLeavesTheOneBeforeIt) {
  const Model model = divisible_model();
  const Division division{"", 2, {.tensor = 2}};
  const Folder folder;
  int renames = 0;
  const auto full = [&](std::string_view what, const fs::path& path) {
    const bool is_second = path.string().find("step-00000002") != std::string::npos;
    if (is_second && what == "rename" && ++renames == 3) throw MachineError("the disk is full");
  };
  EXPECT_THROW(
      train(division, model, 2, nullptr, {.folder = folder.path(), .every = 1, .watch = full}),
      MachineError);
  EXPECT_EQ(renames, 3);
  EXPECT_EQ(Checkpoint::open(folder.path()).facts().step, 1);
  EXPECT_FALSE(fs::exists(exec::checkpoint_folder(folder.path(), 2)));
}

}  // namespace divided_checkpoint_test
}  // namespace pipewright::tests
