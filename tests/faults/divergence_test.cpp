// `run` of a training that diverges, as a user meets it: exit status 5, one sentence, the last
// finite checkpoint; alike over processes. And of a model that has diverged before.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/json_schema.hpp"
#include "tests/support/small_job.hpp"

namespace pipewright::test {
namespace divergence_test {

using nlohmann::json;

class Diverging : public testing::Test {
 protected:
  Diverging() {
    EXPECT_EQ(write_small_job(folder_).status, 0);
    std::string plan = shell("cat plan.json", folder_).out;
    json document = json::parse(plan);
    document["training"]["optimizer"] = "sgd";
    document["training"]["learning_rate"] = 1000;
    document["training"]["steps"] = 60;
    folder_.write("plan.json", document.dump());
  }

  json run_json(const std::string& words, int status) const {
    return document_of(pipewright("run " + words + " --json", folder_), status);
  }
  json document_of(const CommandResult& result, int status) const {
    EXPECT_EQ(result.status, status) << result.err;
    const json document = json::parse(result.out, nullptr, false);
    const SchemaSet schemas(std::string(PIPEWRIGHT_SOURCE_DIR) + "/docs/schemas");
    for (const std::string& problem : schemas.problems("result", document))
      ADD_FAILURE() << problem;
    return document;
  }

  Folder folder_;
};

TEST_F(Diverging, ATrainingEndsWithStatus5InEveryKindOfNumerics) {
  for (const char* numerics : {"fast", "exact"}) {
    SCOPED_TRACE(numerics);
    const std::string words = std::string("plan.json --numerics ") + numerics;
    const json result = run_json(words, 5);
    EXPECT_EQ(result["outcome"], "diverged");
    EXPECT_LT(result["steps"].size(), 60U);
    EXPECT_NE(result["failure"].get<std::string>().find("lower the learning rate"),
              std::string::npos);
    const CommandResult text = pipewright("run " + words, folder_);
    EXPECT_EQ(text.status, 5);
    EXPECT_EQ(text.err.rfind("pipewright run: the training diverges: in step ", 0), 0U) << text.err;
    EXPECT_EQ(std::count(text.err.begin(), text.err.end(), '\n'), 1) << text.err;
    EXPECT_NE(text.out.find("step 1 "), std::string::npos) << text.out;
  }
  EXPECT_EQ(run_json("plan.json --steps 1", 0)["outcome"], "finished");
}

TEST_F(Diverging, TheLastFiniteCheckpointStaysAndNoOtherIsSaved) {
  const CommandResult text =
      pipewright("run plan.json --save-checkpoint saved --checkpoint-every 1", folder_);
  EXPECT_EQ(text.status, 5);
  std::vector<std::string> saved;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path() / "saved"))
    saved.push_back(entry.path().filename().string());
  std::sort(saved.begin(), saved.end());
  ASSERT_FALSE(saved.empty());
  EXPECT_NE(
      text.err.find("the last checkpoint before the step that diverged is saved/" + saved.back()),
      std::string::npos)
      << text.err;
  // It loads, and goes wrong at the same step again.
  const json again = run_json("plan.json --load-checkpoint saved", 5);
  EXPECT_EQ(again["first_step"], saved.size());
  EXPECT_EQ(again["steps"].size(), 1U);
  const CommandResult none = pipewright("run plan.json --save-checkpoint other", folder_);
  EXPECT_EQ(none.status, 5);
  EXPECT_NE(none.err.find("no checkpoint was saved"), std::string::npos) << none.err;
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "other"));
}

TEST_F(Diverging, EveryProcessLeavesWithStatus5AndOneSpeaks) {
  const std::string rank =
      "sh -c '\"$PW\" run plan.json --transport tcp --json; s=$?; echo $s "
      ">status.$PIPEWRIGHT_RANK; exit 0'";
  for (const char* numerics : {"fast", "exact"}) {
    SCOPED_TRACE(numerics);
    std::string words = rank;
    words.insert(words.find("--json"), std::string("--numerics ") + numerics + " ");
    const CommandResult job =
        shell(PIPEWRIGHT_SOURCE_DIR "/tests/support/start_job 2 " + words, folder_);
    EXPECT_EQ(shell("cat status.0 status.1", folder_).out, "5\n5\n");
    EXPECT_EQ(document_of({job.status, job.out, job.err}, 0)["outcome"], "diverged");
    EXPECT_EQ(job.err.rfind("pipewright run: the training diverges", 0), 0U) << job.err;
    EXPECT_EQ(std::count(job.err.begin(), job.err.end(), '\n'), 1) << job.err;
  }
}

TEST_F(Diverging, MpirunEndsWithStatus5) {
  if (shell("command -v mpirun", folder_).status != 0) GTEST_SKIP() << "there is no mpirun here";
  const CommandResult job =
      shell(std::string(kMpirun) + "-np 2 $PW run plan.json --transport mpi", folder_);
  if (job.err.find("cannot be loaded") != std::string::npos)
    GTEST_SKIP() << "the module of Open MPI was not built";
  EXPECT_EQ(job.status, 5) << job.err;
  EXPECT_NE(job.err.find("pipewright run: the training diverges"), std::string::npos) << job.err;
}

/// A .npy file of float32, [numbers / width, width].
std::string npy(const std::vector<float>& numbers, std::size_t width) {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" +
                       std::to_string(numbers.size() / width) + ", " + std::to_string(width) +
                       "), }";
  header.resize(117, ' ');
  header += '\n';
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(header.size());
  file += '\0';
  file += header;
  file.append(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float));
  return file;
}

/// Two of eleven samples are not finite, so their outputs are not.
TEST_F(Diverging, EvaluationsAndPredictionsSayHowManyOutputsAreNotFinite) {
  folder_.write("job.json", R"({"schema": "pipewright.job/1", "model": {"name": "lines",
      "loss": "mse", "layers": [{"kind": "linear", "in": 3, "out": 4},
      {"kind": "linear", "out": 2}]},
      "cluster": {"preset": "local-cpu", "devices": 2}, "global_batch": 4,
      "strategy": {"pp_degree": 2, "accumulate_steps": 2, "schedule_mode": "1f1b"},
      "tuner_save_path": "lines.json"})");
  ASSERT_EQ(pipewright("tune job.json -q", folder_).status, 0);
  std::vector<float> inputs(33, 0.5F), targets(22, 1.0F);
  folder_.write("x.npy", npy(inputs, 3));
  folder_.write("y.npy", npy(targets, 2));
  inputs[4] = NAN;
  inputs[32] = INFINITY;
  folder_.write("bad.npy", npy(inputs, 3));
  EXPECT_EQ(run_json("lines.json --mode evaluate --data x.npy --targets y.npy",
                     0)["evaluation"]["not_finite_rows"],
            0);
  const std::string evaluate = "lines.json --mode evaluate --data bad.npy --targets y.npy";
  const json evaluated = run_json(evaluate, 5);
  EXPECT_EQ(evaluated["outcome"], "diverged");
  EXPECT_EQ(evaluated["evaluation"]["samples"], 11);
  EXPECT_EQ(evaluated["evaluation"]["not_finite_rows"], 2);
  EXPECT_TRUE(evaluated["evaluation"]["loss"].is_null());
  const CommandResult text = pipewright("run " + evaluate, folder_);
  EXPECT_EQ(text.status, 5);
  EXPECT_NE(text.out.find("11 samples: loss not finite; 2 of 11 rows of outputs"),
            std::string::npos)
      << text.out;
  const std::string predict = "lines.json --mode predict --output o.npy --data bad.npy";
  const CommandResult predicted = pipewright("run " + predict, folder_);
  EXPECT_EQ(predicted.status, 5);
  EXPECT_NE(predicted.out.find("2 of 11 rows of outputs"), std::string::npos) << predicted.out;
  EXPECT_TRUE(std::filesystem::exists(folder_.path() / "o.npy"));
}

}  // namespace divergence_test
}  // namespace pipewright::test
