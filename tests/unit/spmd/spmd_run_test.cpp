// pipewright spmd run: the examples of the guide, what moves in them, and what it refuses.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/command_runner.hpp"
#include "tests/support/json_schema.hpp"

namespace pipewright::test {
namespace spmd_run_test {

std::string example(const std::string& name) {
  return std::string(PIPEWRIGHT_SOURCE_DIR) + "/docs/examples/" + name + ".json";
}

Json run(const std::string& words) {
  const Folder folder;
  const auto result = pipewright("spmd run " + words + " --json", folder);
  EXPECT_EQ(result.status, 0) << result.err;
  const Json document = Json::parse(result.out);
  const SchemaSet schemas(std::string(PIPEWRIGHT_SOURCE_DIR) + "/docs/schemas");
  for (const std::string& problem : schemas.problems("result", document)) ADD_FAILURE() << problem;
  return document;
}

/// "product: P(sum) -> R: all_reduce along 0, 96 B", gradients with a "d" in front.
std::vector<std::string> moves(const Json& document) {
  std::vector<std::string> lines;
  for (const Json& move : document.at("moves")) {
    const auto text = [&](const char* key) { return move.at(key).get<std::string>(); };
    const std::string steps = text("steps");
    lines.push_back((move.at("gradient").get<bool>() ? "d " : "") + text("tensor") + ": " +
                    text("from") + " -> " + text("to") + ": " + steps.substr(0, steps.find(',')));
  }
  return lines;
}

using Lines = std::vector<std::string>;

TEST(SpmdRun, SumsAProductWhereTheGuideDoes) {
  const Json document = run(example("matmul-relu"));
  EXPECT_EQ(moves(document), (Lines{"product: P(sum) -> R: all_reduce along 0"}));
}

TEST(SpmdRun, SumsGradientsOfDividedData) {
  EXPECT_EQ(
      moves(run(example("data-parallel"))),
      (Lines{"loss: P(avg) -> R: all_reduce along 0", "d w_down: P(sum) -> R: all_reduce along 0",
             "d w_up: P(sum) -> R: all_reduce along 0"}));
}

TEST(SpmdRun, DividesColumnsAndRowsWithOneSum) {
  EXPECT_EQ(moves(run(example("tensor-parallel"))), (Lines{"y: P(sum) -> R: all_reduce along 0"}));
}

TEST(SpmdRun, SendsBetweenStagesForwardAndBackward) {
  const Json document = run(example("pipeline-parallel"));
  EXPECT_EQ(moves(document), (Lines{"active: first: R -> second: R: exchange",
                                    "d active: second: R -> first: R: exchange"}));
  EXPECT_EQ(document.at("difference").at("losses").at("same_bits"), true);
  EXPECT_EQ(document.at("difference").at("parameters").at("same_bits"), true)
      << "no sum is taken in another order";
}

TEST(SpmdRun, TrainsOnEightRanksOfTwoStages) {
  const Json document = run(example("hybrid-parallel") + " --steps 8");
  const Lines lines = moves(document);
  for (const char* line : {"active: first: S0 S1 -> second: S0 S1: exchange",
                           "y: second: S0 P(sum) -> second: S0 R: all_reduce along 1",
                           "d w_up: first: P(sum) S1 -> first: R S1: all_reduce along 0",
                           "d w_down: second: P(sum) S0 -> second: R S0: all_reduce along 0"}) {
    EXPECT_NE(std::find(lines.begin(), lines.end(), line), lines.end()) << line;
  }
  EXPECT_LT(document.at("losses").back(), document.at("losses").front());
  EXPECT_EQ(document.at("agrees"), true);
}

TEST(SpmdRun, TrainsWordsWithADividedVocabulary) {
  const Json document = run(example("hybrid-words") + " --steps 8 --learning-rate 0.5");
  EXPECT_EQ(document.at("agrees"), true);
  EXPECT_LT(document.at("losses").back(), document.at("losses").front());
}

/// Megatron-LM's f and g: an all-reduce behind attention and behind the layer after it, and one in
/// front of both for gradients.
TEST(SpmdRun, TrainsWholeModelsOfAttention) {
  for (const char* name : {"small-gpt", "small-llama"}) {
    SCOPED_TRACE(name);
    const Json document = run(example(name) + " --steps 8");
    const Lines lines = moves(document);
    for (const char* tensor :
         {"projected", name == std::string("small-gpt") ? "down" : "mlp", "d n1", "d n2"}) {
      const std::string line = tensor + std::string(": S0 P(sum) -> S0 R: all_reduce along 1");
      EXPECT_EQ(std::count(lines.begin(), lines.end(), line), 1) << line;
    }
    EXPECT_EQ(document.at("agrees"), true);
    EXPECT_LT(document.at("losses").back(), document.at("losses").front());
  }
}

/// What the routers send comes to who has the experts, and back; gradients of the same, too.
TEST(SpmdRun, TrainsAMixtureBetweenTwoAllToAlls) {
  const Json document = run(example("small-mixtral") + " --steps 8");
  const Lines lines = moves(document);
  const Lines expected = {
      "by_expert: S1 -> S0: all_to_all along 0", "back: S1 -> S0: all_to_all along 0",
      "d back: S0 -> S1: all_to_all along 0", "d by_expert: S0 -> S1: all_to_all along 0"};
  for (const std::string& line : expected) {
    EXPECT_EQ(std::count(lines.begin(), lines.end(), line), 1) << line;
  }
  for (const std::string& line : lines) {
    EXPECT_EQ(line.find(": w_gate"), line.npos) << "a rank has its experts to itself";
  }
  EXPECT_EQ(document.at("agrees"), true);
  EXPECT_LT(document.at("losses").back(), document.at("losses").front());
}

/// On two, four and eight ranks.
TEST(SpmdRun, TrainsWholeModelsAsTheyArePlaced) {
  const Folder folder;
  using Meshes = std::vector<const char*>;
  const std::vector<std::pair<const char*, Meshes>> models = {
      {"small-gpt", {"1x2", "2x2", "2x4"}},
      {"small-llama", {"1x2", "2x2", "2x4"}},
      {"small-mixtral", {"2", "4", "8"}},
  };
  for (const auto& [model, meshes] : models) {
    for (const char* mesh : meshes) {
      SCOPED_TRACE(model + std::string(" on ") + mesh);
      const auto placed = pipewright(
          "spmd place " + example(model) + " --mesh " + mesh + " -o placed.json", folder);
      ASSERT_EQ(placed.status, 0) << placed.err;
      const auto result = pipewright("spmd run placed.json --json", folder);
      ASSERT_EQ(result.status, 0) << result.err << result.out;
      const Json document = Json::parse(result.out);
      EXPECT_EQ(document.at("agrees"), true);
      EXPECT_GT(document.at("times").at("expected_ns"), 0);
    }
  }
}

std::size_t times(const std::string& text, const std::string& word) {
  std::size_t count = 0;
  for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++count;
  return count;
}

TEST(SpmdRun, SaysWhatItTakesForWrong) {
  const Folder folder;
  Json graph = Json::parse(read_text(example("hybrid-words")));
  for (Json& tensor : graph.at("tensors")) {
    for (Json& size : tensor.at("shape")) size = size == 4 ? 1024 : size.get<int>();
  }
  folder.write("long.json", graph.dump());
  const auto result =
      pipewright("spmd run long.json --schedule-mode 1F1B --accumulate-steps 8", folder);
  EXPECT_EQ(result.status, 1) << result.err;
  EXPECT_NE(result.out.find("\nmore than 2.8e-06 of the largest element, which is taken for wrong"),
            std::string::npos)
      << result.out;
}

TEST(SpmdRun, WritesItsCallsAsAnOrderThatIsChecked) {
  const Folder folder;
  const auto result =
      pipewright("spmd run " + example("hybrid-words") + " --calls calls.csv", folder);
  ASSERT_EQ(result.status, 0) << result.err;
  const std::string calls = read_text((folder.path() / "calls.csv").string());
  EXPECT_EQ(times(calls, "\n"), 8U);
  EXPECT_EQ(times(calls, "ALL_TO_ALL(ranks.0.1.2.3.4.5.6.7:"), 16U) << "there and back";
  EXPECT_EQ(times(calls, "ALL_REDUCE(ranks.4.5:lose.largest"), 2U);
  const auto checked = pipewright("check calls.csv", folder);
  EXPECT_EQ(checked.status, 0) << checked.out << checked.err;
  EXPECT_NE(checked.out.find("\nok\n"), std::string::npos) << checked.out;
}

/// What a run prints as JSON, but for the times that it took.
Json untimed(const std::string& text) {
  Json document = Json::parse(text);
  EXPECT_EQ(document.at("times").at("step_ns").size(), document.at("losses").size());
  document.erase("times");
  return document;
}

std::string start_job(int processes) {
  return PIPEWRIGHT_SOURCE_DIR "/tests/support/start_job " + std::to_string(processes) + " ";
}

/// The command in a job of so many processes, over sockets, and by mpirun where there is one.
std::vector<std::string> jobs_of(int processes, const std::string& words, const Folder& folder) {
  std::vector<std::string> jobs = {start_job(processes) + "$PW " + words + " --transport tcp"};
  if (shell("command -v mpirun && $PW doctor | grep 'mpi *works'", folder).status == 0) {
    jobs.push_back(kMpirun + ("-np " + std::to_string(processes)) + " $PW " + words +
                   " --transport mpi");
  }
  return jobs;
}

/// Processes sum in the order of threads here, so what they print and leave is the same.
TEST(SpmdRun, TrainsInProcessesAsInThreads) {
  const Folder folder;
  const std::string words =
      "spmd run " + example("small-gpt") + " --optimizer adamw --sharding-stage 3 --json";
  const auto threads = pipewright(words + " --save threads", folder);
  ASSERT_EQ(threads.status, 0) << threads.err;
  for (const std::string& job : jobs_of(4, words, folder)) {
    // A second save into one folder would have other names.
    const auto processes = shell("rm -rf processes; " + job + " --save processes", folder);
    ASSERT_EQ(processes.status, 0) << processes.err;
    EXPECT_EQ(untimed(processes.out), untimed(threads.out));
    EXPECT_EQ(shell("diff -r threads processes", folder).out, "");
    const auto again = shell(job + " --load processes", folder);
    ASSERT_EQ(again.status, 0) << again.err;
    EXPECT_EQ(Json::parse(again.out).at("agrees"), true);
  }
}

TEST(SpmdRun, HasPipelinesOfProcessesWithTheBitsOfThreads) {
  const Folder folder;
  const std::string chunks = std::string(PIPEWRIGHT_SOURCE_DIR) + "/examples/graph-chunks.json";
  const std::string end = " --accumulate-steps 4 --optimizer momentum --json";
  for (const auto& [ranks, words] :
       {std::pair{8, example("hybrid-words") + " --schedule-mode 1F1B"},
        std::pair{4, chunks + " --vpp-degree 2"},
        std::pair{4, chunks + " --vpp-degree 2 --schedule-mode ZBVPP"}}) {
    SCOPED_TRACE(words);
    const auto threads = pipewright("spmd run " + words + end + " --save threads", folder);
    ASSERT_EQ(threads.status, 0) << threads.err;
    for (const std::string& job : jobs_of(ranks, "spmd run " + words + end, folder)) {
      const auto processes = shell("rm -rf processes; " + job + " --save processes", folder);
      ASSERT_EQ(processes.status, 0) << processes.err;
      EXPECT_EQ(untimed(processes.out), untimed(threads.out));
      EXPECT_EQ(shell("diff -r threads processes", folder).out, "");
    }
    shell("rm -r threads", folder);
  }
}

/// Two stages of two ranks, and 4 MiB from each to its successor: more than a socket holds.
TEST(SpmdRun, SendsMoreThanSocketsHoldFromStageToStage) {
  const Folder folder;
  Json graph = parse_json(read_text(example("pipeline-parallel")), "pipeline-parallel.json");
  graph["meshes"]["first"] = {{"shape", {2}}, {"dim_names", {"tp"}}, {"ranks", {0, 1}}};
  graph["meshes"]["second"] = {{"shape", {2}}, {"dim_names", {"tp"}}, {"ranks", {2, 3}}};
  for (auto& [name, tensor] : graph["tensors"].items()) {
    for (Json& size : tensor["shape"]) {
      if (size == 8) size = 4096;
      if (size == 64) size = 512;
    }
  }
  graph["tensors"]["w_up"]["annotation"]["placements"] = {"S1"};
  graph["tensors"]["w_down"]["annotation"]["placements"] = {"S0"};
  folder.write("graph.json", graph.dump());
  const std::string words = "spmd run graph.json --schedule-mode 1F1B --accumulate-steps 3 --json";
  const auto threads = pipewright(words, folder);
  ASSERT_EQ(threads.status, 0) << threads.err;
  for (const std::string& job : jobs_of(4, words, folder)) {
    const auto processes = shell(job, folder);
    ASSERT_EQ(processes.status, 0) << processes.err;
    EXPECT_EQ(untimed(processes.out), untimed(threads.out));
  }
}

TEST(SpmdRun, TrainsMicroBatchesInTheOrderOfASchedule) {
  const Folder folder;
  const std::string chunks = std::string(PIPEWRIGHT_SOURCE_DIR) + "/examples/graph-chunks.json";
  const SchemaSet schemas(std::string(PIPEWRIGHT_SOURCE_DIR) + "/docs/schemas");
  for (const auto& [words, title] :
       {std::pair{example("hybrid-words") + " --schedule-mode 1F1B", "1f1b: p=2 m=4"},
        std::pair{chunks + " --vpp-degree 2", "interleaved: p=2 m=4 v=2"},
        std::pair{chunks + " --vpp-degree 2 --schedule-mode ZBVPP", "zbvpp: p=2 m=4 v=2"}}) {
    SCOPED_TRACE(words);
    const auto result = pipewright(
        "spmd run " + words + " --accumulate-steps 4 --order order.csv --trace ran.json --json",
        folder);
    ASSERT_EQ(result.status, 0) << result.err << result.out;
    const Json document = Json::parse(result.out);
    for (const std::string& problem : schemas.problems("result", document))
      ADD_FAILURE() << problem;
    EXPECT_EQ(document.at("pipeline").at("title"), title);
    EXPECT_GT(document.at("pipeline").at("makespan_ns"), 0);
    EXPECT_LT(document.at("losses").back(), document.at("losses").front());
    EXPECT_EQ(pipewright("check order.csv", folder).status, 0);
    const std::string order = shell("cat order.csv", folder).out;
    EXPECT_NE(order.find("# parts 0F: "), std::string::npos) << order;
    EXPECT_EQ(pipewright("simulate order.csv", folder).status, 0);
    const auto ran = pipewright("analyze ran.json --json", folder);
    ASSERT_EQ(ran.status, 0) << ran.err;
    EXPECT_GT(Json::parse(ran.out).at("makespan_ns"), 0);
  }
}

TEST(SpmdRun, NamesWhatNoPipelineOfGraphsDoes) {
  const Folder folder;
  const std::string words = "spmd run " + example("hybrid-words");
  const std::string pipeline = words + " --schedule-mode 1F1B --accumulate-steps 2";
  for (const auto& [asked, part] :
       {std::pair{words + " --schedule-mode pipedream", "updates weights within a step"},
        std::pair{words + " --schedule-mode dualpipe", "has a stage on several ranks"},
        std::pair{words + " --schedule-mode 1f2b", "there is no schedule \"1f2b\""},
        std::pair{words + " --order order.csv", "the graph is no pipeline"},
        std::pair{words + " --trace ran.json", "--trace: the graph is no pipeline"},
        std::pair{words + " --schedule-mode VPP --vpp-degree 2", "nothing says where layers begin"},
        std::pair{words + " --vpp-degree 2 --vpp-seg-method layer:e",
                  "with the schedule \"1F1B\" a"},
        std::pair{"spmd run " + example("small-gpt") + " --accumulate-steps 10000",
                  "\"accumulate_steps\" is 10000; of this graph a step has at most"},
        std::pair{pipeline + " --calls calls.csv", "do not all call in one order"}}) {
    const auto result = pipewright(asked, folder);
    EXPECT_EQ(result.status, 2) << asked;
    EXPECT_NE(result.err.find(part), std::string::npos) << asked << "\n" << result.err;
  }
}

TEST(SpmdRun, NeedsAProcessForEachRank) {
  const Folder folder;
  const std::string words = "spmd run " + example("small-gpt") + " --transport tcp";
  const auto alone = pipewright(words, folder);
  EXPECT_EQ(alone.status, 3);
  EXPECT_NE(alone.err.find("--nproc-per-node 4"), std::string::npos) << alone.err;
  const auto few = shell(PIPEWRIGHT_SOURCE_DIR "/tests/support/start_job 3 $PW " + words, folder);
  EXPECT_NE(few.status, 0);
  EXPECT_NE(few.err.find("the graph's ranks are 0 to 3, and the job has 3 processes: start 4"),
            std::string::npos)
      << few.err;
}

TEST(SpmdRun, TrainsWhatPlacementFound) {
  const Folder folder;
  const auto placed =
      pipewright("spmd place " + example("tensor-parallel") + " --mesh 4 -o placed.json", folder);
  ASSERT_EQ(placed.status, 0) << placed.err;
  const auto result = pipewright("spmd run placed.json", folder);
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_NE(result.out.find("against one rank: losses "), std::string::npos) << result.out;
}

/// A model that PyTorch exported: captured with its weights, placed under a memory limit, trained
/// with them and a batch of its own; losses are PyTorch's (tests/golden/spmd/captured).
TEST(SpmdRun, TrainsWhatWasCapturedFromPyTorch) {
  const std::string golden = std::string(PIPEWRIGHT_SOURCE_DIR) + "/tests/golden/spmd/captured/";
  const Folder folder;
  for (const std::string& words :
       {"capture " + golden + "gpt.onnx --dimension batch=4 --mesh 2x2 -o gpt.json --weights w.st",
        std::string("place gpt.json --memory 14KiB -o placed.json")}) {
    const auto result = pipewright("spmd " + words, folder);
    ASSERT_EQ(result.status, 0) << result.out << result.err;
  }
  const auto result = pipewright(
      "spmd run placed.json --json --weights w.st --weights " + golden + "words-data.safetensors",
      folder);
  ASSERT_EQ(result.status, 0) << result.out << result.err;
  const Json document = Json::parse(result.out);
  EXPECT_GT(document.at("bytes"), 0);
  const Json expected = parse_json(read_text(golden + "losses.json"), "losses.json").at("gpt");
  for (std::size_t step = 0; step < 3; ++step) {
    EXPECT_NEAR(document.at("losses")[step], expected[step], 3e-5);
  }
}

TEST(SpmdRun, SaysWhatIsWrongWithWeights) {
  const std::string golden = std::string(PIPEWRIGHT_SOURCE_DIR) + "/tests/golden/spmd/captured/";
  const Folder folder;
  const auto result = pipewright(
      "spmd run " + example("small-gpt") + " --weights " + golden + "words-data.safetensors",
      folder);
  EXPECT_EQ(result.status, 2);
  EXPECT_NE(result.err.find("/ids: has the shape [4, 4], and in the graph [4, 8]"),
            std::string::npos)
      << result.err;
  const auto other = pipewright(
      "spmd run " + example("tensor-parallel") + " --weights " + golden + "words-data.safetensors",
      folder);
  EXPECT_NE(other.err.find("/ids: the graph has no tensor of that name"), std::string::npos)
      << other.err;
}

TEST(SpmdRun, NamesWhatItCannotTrain) {
  const Folder folder;
  const auto complaint = [&](const std::string& tensors, const std::string& rule,
                             const std::string& more = "") {
    folder.write("graph.json", R"({"schema": "pipewright.graph/1",
        "meshes": {"m": {"shape": [2], "ranks": [0, 1]}}, "tensors": {)" +
                                   tensors + R"(}, "operators": [{"name": "act", "rule": ")" +
                                   rule + R"(", "inputs": ["x"], "outputs": ["y"]}]})");
    const auto result = pipewright("spmd run graph.json" + more, folder);
    EXPECT_EQ(result.status, 2) << result.out;
    return result.err;
  };
  const std::string parameter = R"("x": {"shape": [1], "type": "float32", "role": "parameter"}, )",
                    made = R"("y": {"shape": [1], "type": "float32"})";
  EXPECT_NE(complaint(parameter + made, "clip").find("operator \"act\" (clip): is not computed"),
            std::string::npos);
  EXPECT_NE(complaint(R"("x": {"shape": [1], "type": "float32"}, )" + made, "relu")
                .find("\"y\" depends on no tensor with \"role\": \"parameter\""),
            std::string::npos);
  EXPECT_NE(complaint(parameter + made, "relu", " --loss z").find("no tensor is called \"z\""),
            std::string::npos);
  EXPECT_NE(complaint(R"("x": {"shape": [4], "type": "float32", "role": "parameter"},
                         "y": {"shape": [4], "type": "float32"})",
                      "relu")
                .find("name the loss with --loss"),
            std::string::npos);
  EXPECT_NE(complaint(parameter + made, "relu", " --learning-rate fast").find("--learning-rate"),
            std::string::npos);
}

}  // namespace spmd_run_test
}  // namespace pipewright::test
