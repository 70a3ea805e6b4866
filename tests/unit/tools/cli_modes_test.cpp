// `run` beyond a plain training: checkpoints, evaluation, predictions, the phases, and the three
// modes of a job's tuner, as a user would ask for them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/json_schema.hpp"
#include "tests/support/small_job.hpp"

namespace pipewright::test {
namespace cli_modes_test {

class Modes : public testing::Test {
 protected:
  Modes() {
    const CommandResult tuned = write_small_job(folder_);
    EXPECT_EQ(tuned.status, 0) << tuned.err;
  }

  Json run_json(const std::string& words, int status = 0) const {
    const CommandResult result = pipewright("run " + words + " --json", folder_);
    EXPECT_EQ(result.status, status) << result.err;
    Json document = Json::parse(result.out, nullptr, false);
    const SchemaSet schemas(std::string(PIPEWRIGHT_SOURCE_DIR) + "/docs/schemas");
    for (const std::string& problem : schemas.problems("result", document))
      ADD_FAILURE() << words << ": " << problem;
    return document;
  }
  void expect_refused(const std::string& words, const std::string& says, int status = 2) const {
    const CommandResult result = pipewright("run " + words, folder_);
    EXPECT_EQ(result.status, status) << result.err;
    EXPECT_NE(result.err.find(says), std::string::npos) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }

  Folder folder_;
};

TEST_F(Modes, ATrainingGoesOnFromItsCheckpointWithTheSameLosses) {
  const Json whole = run_json("plan.json --save-checkpoint saved --checkpoint-every 2");
  EXPECT_EQ(whole["checkpoint"], "saved/step-00000006");
  EXPECT_EQ(whole["first_step"], 0);
  ASSERT_EQ(whole["steps"].size(), 6U);
  const Json rest = run_json("plan.json --load-checkpoint saved/step-00000002");
  EXPECT_EQ(rest["first_step"], 2);
  ASSERT_EQ(rest["steps"].size(), 4U);
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_EQ(rest["steps"][i]["loss"], whole["steps"][i + 2]["loss"]) << i;
  expect_refused("plan.json --load-checkpoint saved", "ask for more with --steps");
}

TEST_F(Modes, InAPipeStepsAreWrittenAsTheyEnd) {
  // Killed at some moment: what had ended by then is there.
  const CommandResult killed = shell(
      "timeout -s KILL 3 $PW run -s 1f1b -p 2 -m 2 --cost F=20ms,B=40ms --steps 100000 >log; "
      "cat log",
      folder_);
  EXPECT_EQ(killed.out.rfind("1f1b", 0), 0U) << killed.out;
  const auto lines_of_steps = [](const std::string& text) {
    int count = 0;
    for (std::size_t at = text.find("\nstep "); at != text.npos; at = text.find("\nstep ", at + 1))
      ++count;
    return count;
  };
  EXPECT_GE(lines_of_steps(killed.out), 3) << killed.out;
  // Short steps do not fill the file; the first and the last are there, each once.
  const CommandResult whole = pipewright("run plan.json --steps 300", folder_);
  EXPECT_EQ(whole.status, 0) << whole.err;
  EXPECT_NE(whole.out.find("\nstep 1 "), std::string::npos) << whole.out;
  EXPECT_NE(whole.out.find("\nstep 300 "), std::string::npos) << whole.out;
  EXPECT_EQ(whole.out.find("\nstep 300 "), whole.out.rfind("\nstep 300  ")) << whole.out;
  EXPECT_LT(lines_of_steps(whole.out), 300);
  const CommandResult document = pipewright("run plan.json --json", folder_);
  EXPECT_EQ(document.out.front(), '{') << document.out;
  EXPECT_TRUE(Json::accept(document.out));
}

/// README.md as data, batches of 16: the first loss is that of the same samples.
TEST_F(Modes, TheCutIntoMicroBatchesLeavesTheLossesOfATextAlone) {
  std::vector<double> losses;
  for (const char* cut : {"1", "2", "4", "8"}) {
    std::string job = small_job(R"(, "tuner_save_path": "cut.json")");
    const std::string batch = "\"global_batch\": 8", steps = "\"accumulate_steps\": 4";
    job.replace(job.find(batch), batch.size(), "\"global_batch\": 16");
    job.replace(job.find(steps), steps.size(), std::string("\"micro_batch_size\": ") + cut);
    folder_.write("cut-job.json", job);
    ASSERT_EQ(pipewright("tune cut-job.json -q", folder_).status, 0) << job;
    losses.push_back(run_json("cut.json --steps 1")["steps"][0]["loss"]);
    EXPECT_NEAR(losses.back(), losses.front(), 1e-5) << cut;
  }
}

/// Predictions for the run that is asked for, and not for the plan's training.
TEST_F(Modes, PeaksOfMemoryArePredictedForTheRunThatIsAskedFor) {
  for (const char* words : {"", "--numerics exact", "--mode evaluate"}) {
    const Json result = run_json(std::string("plan.json ") + words);
    const Json &held = result["peak_bytes"], &said = result["predicted_peak_bytes"];
    ASSERT_EQ(held.size(), said.size());
    for (std::size_t r = 0; r < held.size(); ++r)
      EXPECT_NEAR(said[r].get<double>(), held[r].get<double>(), 0.05 * held[r].get<double>())
          << words << " rank " << r;
  }
}

TEST_F(Modes, ACheckOfARunThatGoesOnNamesItsOwnFirstStep) {
  run_json("plan.json --steps 2 --save-checkpoint saved");
  const CommandResult rest = pipewright("run plan.json --load-checkpoint saved --verify", folder_);
  EXPECT_EQ(rest.status, 0) << rest.err;
  EXPECT_NE(rest.out.find("gradients of step 3 agree"), std::string::npos) << rest.out;
}

TEST_F(Modes, OldCheckpointsGoWhenAskedTo) {
  run_json("plan.json --save-checkpoint saved --checkpoint-every 1 --keep-checkpoints 2");
  int left = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path() / "saved"))
    left += entry.path().filename() >= "step-00000005" ? 1 : 100;
  EXPECT_EQ(left, 2);
}

TEST_F(Modes, ALearnedModelEvaluatesBetterThanAFreshOne) {
  run_json("plan.json --steps 40 --save-checkpoint saved");
  const Json fresh = run_json("plan.json --mode evaluate")["evaluation"];
  const Json learned = run_json("plan.json --mode evaluate --load-checkpoint saved")["evaluation"];
  const auto bytes = std::filesystem::file_size(folder_.path() / "text");
  EXPECT_EQ(fresh["samples"], (bytes - 1) / 8);
  EXPECT_LT(learned["loss"].get<double>(), fresh["loss"].get<double>() - 1);
  EXPECT_GT(learned["accuracy"].get<double>(), fresh["accuracy"].get<double>());
  EXPECT_NEAR(learned["perplexity"].get<double>(), std::exp(learned["loss"].get<double>()), 1e-6);
}

TEST_F(Modes, PredictionsAreAnArrayInTheOrderOfTheSamples) {
  const Json result = run_json("plan.json --mode predict --output out.npy --steps 2");
  EXPECT_EQ(result["evaluation"]["samples"], 16);
  std::ifstream file(folder_.path() / "out.npy", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  EXPECT_NE(bytes.find("'shape': (16, 8, 256)"), std::string::npos);
  EXPECT_EQ(bytes.size() % 64, 0U);
  EXPECT_EQ(bytes.size() - 128, 16U * 8 * 256 * 4);
}

TEST_F(Modes, FlagsThatDoNotFitAreRefused) {
  expect_refused("plan.json --output out.npy", "--output belongs to --mode predict");
  expect_refused("plan.json --mode predict", "--output predictions.npy");
  expect_refused("plan.json --mode evaluate --verify", "--verify belongs to a training");
  expect_refused("plan.json --mode evaluate --save-checkpoint s", "changes no weights");
  expect_refused("plan.json --checkpoint-every 2", "belong to --save-checkpoint");
  expect_refused("plan.json --load-checkpoint .", "holds no checkpoint");
  expect_refused("plan.json --load-checkpoint gone", "is no folder");
  expect_refused("-s 1f1b -p 2 -m 2 --save-checkpoint s", "paced trains nothing");
}

TEST_F(Modes, AnOrderWithoutABackwardIsWholeForCheckAndThePacedDevice) {
  folder_.write("order.csv", "0F0,0F1\n1F0,1F1\n");
  EXPECT_EQ(pipewright("check order.csv", folder_).status, 0);
  EXPECT_EQ(pipewright("run order.csv --clock virtual", folder_).status, 0);
  const CommandResult forwards = pipewright(
      "run -s 1f1b -p 2 -m 2 --mode evaluate --clock virtual --cost F=5ms --json", folder_);
  EXPECT_EQ(forwards.status, 0) << forwards.err;
  // Two micro-batches through two stages.
  EXPECT_EQ(Json::parse(forwards.out)["steps"][0]["step_ns"], 15'000'000);
}

std::vector<std::string> phases_of(const Json& result) {
  std::vector<std::string> names;
  for (const Json& phase : result["phases"]) names.push_back(phase["name"]);
  return names;
}

const std::vector<std::string> kAll = {"build",     "plan",       "parallel",
                                       "init_comm", "initialize", "steps"};

TEST_F(Modes, TunerAndRunTunesSavesAndTrains) {
  std::filesystem::remove(folder_.path() / "plan.json");
  const Json result = run_json("job.json");
  EXPECT_EQ(phases_of(result), kAll);
  EXPECT_EQ(result["steps"].size(), 6U);
  EXPECT_TRUE(std::filesystem::exists(folder_.path() / "plan.json"));
}

TEST_F(Modes, TunerOnlyStopsAfterThePlan) {
  std::filesystem::remove(folder_.path() / "plan.json");
  folder_.write("job.json",
                small_job(R"(, "tuner_run_mode": "tuner_only", "tuner_save_path": "plan.json")"));
  const Json result = run_json("job.json");
  EXPECT_EQ(phases_of(result), (std::vector<std::string>{"build", "plan"}));
  EXPECT_FALSE(result.contains("steps"));
  EXPECT_TRUE(std::filesystem::exists(folder_.path() / "plan.json"));
  folder_.write("job.json", small_job(R"(, "tuner_run_mode": "tuner_only")"));
  expect_refused("job.json", "tuner_save_path");
}

TEST_F(Modes, SynthesisOnWinnersIsInTheResultUnlessItIsLeftOut) {
  std::string job = small_job("");
  job.replace(job.find("1f1b"), 4, "auto");
  folder_.write("job.json", job);
  const Json with = Json::parse(pipewright("tune job.json --json", folder_).out);
  ASSERT_TRUE(with.contains("synthesis_on_winners"));
  EXPECT_GE(with["synthesis_on_winners"]["winners"], with["synthesis_on_winners"]["better"]);
  const Json without = Json::parse(pipewright("tune job.json --json --no-synthesis", folder_).out);
  EXPECT_FALSE(without.contains("synthesis_on_winners"));
  const CommandResult both = pipewright("tune job.json --synthesise --no-synthesis", folder_);
  EXPECT_EQ(both.status, 2);
  EXPECT_NE(both.err.find("leave one out"), std::string::npos) << both.err;
}

TEST_F(Modes, RunOnlyStartsFromTheSavedPlan) {
  folder_.write("job.json",
                small_job(R"(, "tuner_run_mode": "run_only", "tuner_load_path": "plan.json")"));
  const auto before = std::filesystem::last_write_time(folder_.path() / "plan.json");
  const Json result = run_json("job.json");
  EXPECT_EQ(phases_of(result), kAll);
  EXPECT_EQ(result["steps"].size(), 6U);
  EXPECT_EQ(std::filesystem::last_write_time(folder_.path() / "plan.json"), before);
  std::filesystem::remove(folder_.path() / "plan.json");
  const CommandResult gone = pipewright("run job.json", folder_);
  EXPECT_EQ(gone.status, 2);
  EXPECT_NE(gone.err.find("plan.json"), std::string::npos) << gone.err;
}

TEST_F(Modes, ATraceHasTheHostsPhasesAndTheReaderPassesOverThem) {
  ASSERT_EQ(pipewright("run plan.json -q --trace t.json", folder_).status, 0);
  std::ifstream file(folder_.path() / "t.json");
  const Json trace = Json::parse(file);
  std::vector<std::string> phases, parts;
  double end = 0;
  for (const Json& event : trace["traceEvents"]) {
    if (event.value("cat", "") != "phase") continue;
    (event["tid"] == 2 ? phases : parts).push_back(event["name"]);
    EXPECT_EQ(event["pid"], 3);
    EXPECT_GE(event["ts"].get<double>(), 0);
    EXPECT_GT(event["args"]["duration_ns"].get<std::int64_t>(), 0);
    end = std::max(end, event["ts"].get<double>() + event["dur"].get<double>());
  }
  EXPECT_EQ(phases, kAll);
  EXPECT_EQ(parts, (std::vector<std::string>{"forward", "backward", "update"}));
  const Json& facts = trace["metadata"];
  EXPECT_NEAR(end * 1000, facts["makespan_ns"].get<double>() * facts["time_scale"].get<double>(),
              1);
  const CommandResult read = pipewright("analyze t.json --json", folder_);
  EXPECT_EQ(read.status, 0) << read.err;
}

/// Names of parts hold their checksums.
std::vector<std::string> parts_in(const std::filesystem::path& checkpoint) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

TEST_F(Modes, ProcessesSaveTheirPartsAndEvaluateAsThreadsDo) {
  const std::string job =
      std::string(kMpirun) + "-np 2 $PW run plan.json --transport mpi --numerics exact --json ";
  if (shell("command -v mpirun", folder_).status != 0) GTEST_SKIP() << "there is no mpirun here";
  const CommandResult half = shell(job + "--steps 3 --save-checkpoint half", folder_);
  if (half.err.find("cannot be loaded") != std::string::npos)
    GTEST_SKIP() << "the module of Open MPI was not built";
  ASSERT_EQ(half.status, 0) << half.err;
  const CommandResult rest =
      shell(job + "--load-checkpoint half --save-checkpoint processes", folder_);
  ASSERT_EQ(rest.status, 0) << rest.err;
  run_json("plan.json --numerics exact --save-checkpoint threads");
  EXPECT_EQ(parts_in(folder_.path() / "processes/step-00000006"),
            parts_in(folder_.path() / "threads/step-00000006"));

  // The same processes by sockets.
  const std::string by_tcp = PIPEWRIGHT_SOURCE_DIR
      "/tests/support/start_job 2 $PW run plan.json --transport tcp --numerics exact --json ";
  const CommandResult tcp =
      shell(by_tcp + "--load-checkpoint half --save-checkpoint sockets", folder_);
  ASSERT_EQ(tcp.status, 0) << tcp.err;
  EXPECT_EQ(parts_in(folder_.path() / "sockets/step-00000006"),
            parts_in(folder_.path() / "threads/step-00000006"));

  const CommandResult evaluated =
      shell(job + "--mode evaluate --load-checkpoint processes", folder_);
  ASSERT_EQ(evaluated.status, 0) << evaluated.err;
  EXPECT_EQ(
      Json::parse(evaluated.out)["evaluation"],
      run_json(
          "plan.json --numerics exact --mode evaluate --load-checkpoint threads")["evaluation"]);
}

/// A plan with tp, or cp: a process for each device trains, and evaluates.
class DividedModes : public Modes, public testing::WithParamInterface<const char*> {};

TEST_P(DividedModes, APlanThatDividesLayersIsAJobOfItsDevices) {
  const std::string job = PIPEWRIGHT_SOURCE_DIR "/examples/" + std::string(GetParam()) + ".json";
  ASSERT_EQ(pipewright("tune " + job + " -o divided.json", folder_).status, 0);
  const std::string run = "divided.json --data " PIPEWRIGHT_SOURCE_DIR "/LICENSE --numerics exact ";
  const CommandResult alone = pipewright("run " + run + "--transport tcp", folder_);
  EXPECT_EQ(alone.status, 3);
  EXPECT_NE(alone.err.find(" 4 pipewright run"), std::string::npos) << alone.err;

  const CommandResult tcp =
      shell(PIPEWRIGHT_SOURCE_DIR "/tests/support/start_job 4 $PW run " + run +
                "--transport tcp --steps 2 --verify --save-checkpoint sockets --json",
            folder_);
  ASSERT_EQ(tcp.status, 0) << tcp.err;
  EXPECT_EQ(Json::parse(tcp.out)["verify"]["bitwise"], true);
  run_json(run + "--steps 2 --save-checkpoint threads");
  EXPECT_EQ(parts_in(folder_.path() / "sockets/step-00000002"),
            parts_in(folder_.path() / "threads/step-00000002"));

  const Json here = run_json(run + "--mode evaluate --load-checkpoint sockets")["evaluation"];
  EXPECT_GT(here["samples"], 0);
  const std::string job_of_4 = PIPEWRIGHT_SOURCE_DIR "/tests/support/start_job 4 $PW run " + run +
                               "--transport tcp --load-checkpoint threads --json --mode ";
  const CommandResult there = shell(job_of_4 + "evaluate", folder_);
  ASSERT_EQ(there.status, 0) << there.err;
  EXPECT_EQ(Json::parse(there.out)["evaluation"], here);

  run_json(run + "--mode predict --load-checkpoint threads --steps 1 --output here.npy");
  ASSERT_EQ(shell(job_of_4 + "predict --steps 1 --output there.npy", folder_).status, 0);
  EXPECT_GT(std::filesystem::file_size(folder_.path() / "here.npy"), 128U);
  EXPECT_EQ(shell("cmp here.npy there.npy", folder_).status, 0);
}

INSTANTIATE_TEST_SUITE_P(Examples, DividedModes,
                         testing::Values("tensor-parallel", "sequence-parallel",
                                         "context-parallel"),
                         [](const auto& one) {
                           const std::string name = one.param;
                           return name.substr(0, name.find('-'));
                         });

}  // namespace cli_modes_test
}  // namespace pipewright::test
