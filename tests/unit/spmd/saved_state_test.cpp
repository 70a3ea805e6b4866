// Saved states of graphs: which files are read, what damage is, and a training that goes on.
#include "exec/spmd/saved_state.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <numeric>

#include "core/base/error.hpp"
#include "core/spmd/graph/graph_json.hpp"
#include "exec/spmd/graph_training.hpp"
#include "tests/support/command_runner.hpp"
#include "tests/support/draw.hpp"

namespace pipewright::exec::graphs::test {
namespace saved_state_test {

namespace fs = std::filesystem;
using pipewright::test::Draw;
using pipewright::test::Folder;
using spmd::LocalPart;
using spmd::Shape;

const Shape kShape = {200, 300};  // 60,000 elements: four blocks of checksums where it is whole

SavedArray array_of(const std::vector<std::vector<int>>& dims) {
  return {"value/w", kShape, {spmd::ProcessMesh::of_shape({2, 2}), {.dims = dims, .partial = {}}}};
}

/// Each element is its place in the whole array.
LocalArray counted(const LocalPart& part) {
  LocalArray array = zeros_of(part);
  LocalArray whole = zeros_of({.offset = Shape(2), .shape = kShape});
  std::iota(whole.values.begin(), whole.values.end(), 0.0F);
  copy_box(whole, part, array);
  return array;
}

/// Without finish_saving().
StateDescription write_counted(const fs::path& folder, const std::vector<std::vector<int>>& dims) {
  const StateDescription description{
      .step = 3, .save = begin_saving(folder), .arrays = {array_of(dims)}};
  for (const WrittenPart& one : written_parts(description.arrays[0])) {
    const LocalArray array = counted(one.part);
    write_parts(folder, description, one.rank, {{"value/w", &array}});
  }
  return description;
}

StateDescription save_counted(const fs::path& folder, const std::vector<std::vector<int>>& dims) {
  const StateDescription description = write_counted(folder, dims);
  finish_saving(folder, description);
  return description;
}

const std::vector<std::vector<std::vector<int>>> kLayouts = {
    {{}, {}}, {{0}, {}}, {{}, {1}}, {{1}, {0}}, {{0, 1}, {}}, {{}, {1, 0}}};

TEST(SavedState, IsReadInAnyPartFromAnyDivision) {
  Draw draw(1);
  for (const auto& dims : kLayouts) {
    const Folder folder;
    save_counted(folder.path(), dims);
    const SavedState state(folder.path());
    for (int round = 0; round < 20; ++round) {
      LocalPart part{.offset = {draw.below(200), draw.below(300)}, .shape = {}};
      part.shape = {1 + draw.below(static_cast<int>(200 - part.offset[0])),
                    1 + draw.below(static_cast<int>(300 - part.offset[1]))};
      std::int64_t bytes = 0;
      EXPECT_EQ(state.read("value/w", kShape, part, bytes).values, counted(part).values);
      EXPECT_LE(bytes, 4 * 60'000) << "no block twice";
    }
  }
}

TEST(SavedState, ReadsTheFilesAndBlocksAloneThatItNeeds) {
  const Folder folder;
  save_counted(folder.path(), {{0}, {}});  // rows 0-99 by rank 0, 100-199 by rank 2
  EXPECT_FALSE(fs::exists(folder.path() / "rank-1.safetensors")) << "rank 0 has the same";
  fs::remove(folder.path() / "rank-0.safetensors");
  const SavedState state(folder.path());
  const LocalPart rows{.offset = {120, 0}, .shape = {10, 300}};
  std::int64_t bytes = 0;
  EXPECT_EQ(state.read("value/w", kShape, rows, bytes).values, counted(rows).values);
  EXPECT_EQ(bytes, 4 * 16384) << "the first block of two";
  const LocalPart both{.offset = {99, 0}, .shape = {2, 300}};
  try {
    state.read("value/w", kShape, both, bytes);
    ADD_FAILURE() << "rank 0's file is not there";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("rank-0.safetensors: is missing"), std::string::npos)
        << error.what();
  }
}

std::string bytes_of(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void put_bytes(const fs::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary) << bytes;
}

std::string damaged(std::string bytes, Draw& draw) {
  const auto at = static_cast<std::size_t>(draw.below(static_cast<int>(bytes.size())));
  switch (draw.below(4)) {
    case 0:
      bytes.resize(at);
      return bytes;
    case 1:
      return bytes.insert(at, 1 + static_cast<std::size_t>(draw.below(9)), '7');
    case 2:
      return bytes.erase(at, 1 + static_cast<std::size_t>(draw.below(9)));
    default:
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << draw.below(8)));
      return bytes;
  }
}

/// Whatever was done to a file: the state is refused with its name, or is what it was.
TEST(SavedState, IsNeverReadOtherwiseThanItWasWritten) {
  const Folder folder;
  save_counted(folder.path(), {{1}, {0}});
  const LocalPart whole{.offset = Shape(2), .shape = kShape};
  const std::vector<float> expected = counted(whole).values;
  Draw draw(5);
  int refused = 0;
  for (const char* name : {"state.json", "rank-0.safetensors", "rank-3.safetensors"}) {
    const fs::path file = folder.path() / name;
    const std::string good = bytes_of(file);
    const std::size_t head = std::min<std::size_t>(good.size(), 600);
    for (int round = 0; round < 200; ++round) {
      const bool in_head = round % 2 == 0;
      put_bytes(file, in_head ? damaged(good.substr(0, head), draw) + good.substr(head)
                              : damaged(good, draw));
      std::int64_t bytes = 0;
      try {
        EXPECT_EQ(SavedState(folder.path()).read("value/w", kShape, whole, bytes).values, expected);
      } catch (const InputError& error) {
        EXPECT_NE(std::string(error.what()).find(folder.path().string()), std::string::npos);
        ++refused;
      }
    }
    put_bytes(file, good);
  }
  EXPECT_GT(refused, 400);
}

spmd::OperatorGraph example(const std::string& name, spmd::GraphOptimizer optimizer) {
  const std::string file = std::string(PIPEWRIGHT_SOURCE_DIR) + "/docs/examples/" + name + ".json";
  const Json json = parse_json(read_text(file), file);
  spmd::OperatorGraph graph = spmd::read_graph(JsonCursor(json, file));
  graph.optimizer = std::move(optimizer);
  return completed(graph).graph;
}

GraphTraining trained(const spmd::OperatorGraph& graph, const GraphTrainingOptions& options) {
  return train_graph(graph, training_steps(graph, loss_of(graph, std::nullopt)), options);
}

TEST(SavedState, LetsATrainingGoOnBitForBit) {
  for (const auto kind :
       {spmd::GraphOptimizer::Kind::Momentum, spmd::GraphOptimizer::Kind::AdamW}) {
    const spmd::OperatorGraph graph = example("small-gpt", {.kind = kind, .sharding_stage = 3});
    const Folder folder;
    const GraphTraining whole = trained(graph, {.steps = 5});
    trained(graph, {.steps = 2, .save = folder.path()});
    const GraphTraining rest =
        trained(graph, {.steps = 3, .load = folder.path(), .save = folder.path()});
    EXPECT_EQ(rest.losses, std::vector<double>(whole.losses.begin() + 2, whole.losses.end()));
    EXPECT_EQ(rest.parameters, whole.parameters);
    EXPECT_EQ(SavedState(folder.path()).step(), 5);
  }
}

std::string complaint(const spmd::OperatorGraph& graph, const fs::path& folder) {
  try {
    trained(graph, {.steps = 1, .load = folder});
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(SavedState, SaysWhatDoesNotFit) {
  const Folder folder;
  const auto says = [&](const spmd::OperatorGraph& graph, const std::string& sentence) {
    const std::string found = complaint(graph, folder.path());
    EXPECT_NE(found.find(sentence), std::string::npos) << found;
  };
  const spmd::OperatorGraph plain = example("data-parallel", {});
  says(plain, "state.json: is missing: the folder is no saved state");
  trained(plain, {.steps = 1, .save = folder.path()});
  says(example("data-parallel", {.kind = spmd::GraphOptimizer::Kind::AdamW}),
       "has no \"mean/w_up\"");
  says(example("hybrid-words", {}), "has no \"value/table\"");
  save_counted(folder.path() / "other", {{}, {}});
  fs::copy(folder.path() / "other" / "rank-0.safetensors", folder.path() / "rank-0.safetensors",
           fs::copy_options::overwrite_existing);
  says(plain, "is of another save than state.json");
  fs::remove_all(folder.path());
  write_counted(folder.path(), {{}, {}});
  says(plain, "or its save was not finished");
}

TEST(SavedState, OfAnOlderSaveStaysUntilTheNextOneIsWhole) {
  const Folder folder;
  const LocalPart whole{.offset = Shape(2), .shape = kShape};
  const auto is_whole = [&] {
    std::int64_t bytes = 0;
    return SavedState(folder.path()).read("value/w", kShape, whole, bytes).values ==
           counted(whole).values;
  };
  for (int save = 0; save < 3; ++save) {
    save_counted(folder.path(), {{1}, {0}});
    EXPECT_TRUE(is_whole());
    EXPECT_EQ(folder.names().size(), 5U);  // state.json and a file a rank
    const StateDescription cut_off = write_counted(folder.path(), {{0, 1}, {}});
    EXPECT_EQ(cut_off.save, save + 1);
    EXPECT_EQ(SavedState(folder.path()).step(), 3);
    EXPECT_TRUE(is_whole());
  }
}

}  // namespace saved_state_test
}  // namespace pipewright::exec::graphs::test
