// The processes of a job train together only if they have been given the same. Every flag of `run`
// is tried on one of two ranks: if it changes what is computed, the job is refused by both, in
// words that name it. The command's own table is walked, so that a flag without a trial fails.
#include <gtest/gtest.h>

#include <map>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/json.hpp"
#include "exec/data/npy.hpp"
#include "tests/support/command_runner.hpp"
#include "tests/support/small_job.hpp"
#include "tools/cli/command.hpp"

namespace pipewright::tools {
namespace run_inputs_test {

using test::CommandResult;
using test::Folder;

/// To what a flag is added.
enum class Base : std::uint8_t {
  Training,  // of the small plan
  Order,     // of 1f1b, on the paced device
  Nothing,   // it is not of a job: `why`
};
struct Trial {
  Base base = Base::Training;
  std::string words;  // the flag and its value
  std::string why;
  std::string name = {};  // of the input in the refusal, where it has another than the flag
};

Trial training(const std::string& words, const std::string& name = "") {
  return {Base::Training, words, "", name};
}
Trial order(const std::string& words, const std::string& name = "") {
  return {Base::Order, words, "", name};
}
Trial nothing(const std::string& why) { return {Base::Nothing, "", why}; }

const std::map<std::string, Trial, std::less<>>& trials() {
  static const std::map<std::string, Trial, std::less<>> kTrials = {
      {"--steps", training("--steps 5")},
      {"--data", training("--data other")},
      {"--labels", nothing("of models that take arrays: a test of their own has them")},
      {"--targets", nothing("of models that take arrays: a test of their own has them")},
      {"--numerics", training("--numerics exact")},
      {"--verify", training("--verify")},
      {"--verify-payloads", training("--verify-payloads")},
      {"--watchdog", training("--watchdog 20s")},
      {"--report", training("--report r.json")},
      {"--log", training("--log run.log")},
      {"--flight-recorder", training("--flight-recorder 7")},
      {"--mode", training("--mode evaluate")},
      {"--output", training("--mode predict --output predictions.npy", "mode")},
      {"--save-checkpoint", training("--save-checkpoint elsewhere")},
      {"--checkpoint-every", training("--save-checkpoint saved --checkpoint-every 1")},
      {"--keep-checkpoints", training("--save-checkpoint saved --keep-checkpoints 1")},
      {"--load-checkpoint", training("--load-checkpoint before")},
      {"--device", training("--device paced")},
      {"--trace", training("--trace t.json")},
      {"--svg", training("--svg t.svg")},
      {"--html", training("--html t.html")},
      {"--json", training("--json")},
      {"--color", training("--color always")},
      {"--quiet", training("--quiet")},
      {"--schedule", order("-s gpipe", "order of work")},
      {"--pp", order("-p 3", "order of work")},
      {"--micro-batches", order("-m 5", "order of work")},
      {"--dp", order("--dp 2", "order of work")},
      {"--vpp", order("-s interleaved-1f1b -v 2", "order of work")},
      {"--param", order("-s interleaved-1f1b -v 2 --param group=4", "order of work")},
      {"--jobs", order("--jobs fused", "order of work")},
      {"--cost", order("--cost F=2ms,B=3ms", "costs")},
      {"--mem", order("--mem F=4MiB,W=-4MiB", "")},
      {"--rank-cost", order("--rank-cost F=2ms,B=3ms", "costs")},
      {"--rank-mem", order("--rank-mem F=4MiB,W=-4MiB", "")},
      {"--costs", order("--costs times.csv", "costs")},
      {"--message-bytes", order("--message-bytes 4096", "costs")},
      {"--collectives", nothing("prices of calls, of which this order has none")},
      {"--preset", order("--preset torch-gloo", "policy")},
      {"--issue", order("--issue inline", "policy")},
      {"--channel", order("--channel rank", "policy")},
      {"--protocol", order("--protocol eager", "policy")},
      {"--post", order("--post at-start", "policy")},
      {"--run-order", order("--issue grouped --run-order even-odd", "policy")},
      {"--connect", order("--connect first-use", "policy")},
      {"--buffers", order("--buffers registered --protocol eager", "policy")},
      {"--in-flight", order("--in-flight 1", "policy")},
      {"--device-queues", order("--device-queues 1", "policy")},
      {"--batches", order("--batches mixed", "policy")},
      {"--fragment", order("--fragment")},
      {"--budget", order("-s auto --budget 10ms", "order of work")},
      {"--prove", order("-s auto --prove", "order of work")},
      {"--objective", order("-s auto --budget 10ms --objective span", "order of work")},
      {"--placement", order("-s auto --budget 10ms -v 2 --placement v", "order of work")},
      {"--seed", order("-s auto --budget 10ms --seed 7", "order of work")},
      {"--transport", nothing("each job has its own")},
      {"--clock", nothing("refused in a job")},
      {"--dry-run", nothing("runs nothing")},
      {"--precision", nothing("of GPUs; unit.run_inputs has it")},
      {"--slow-link", nothing("of GPUs; unit.run_inputs has it")},
      {"--cuda-graph", nothing("of GPUs; unit.run_inputs has it")},
      {"--trace-kernels", nothing("of GPUs; unit.run_inputs has it")},
      {"--no-cuda-graph", nothing("of GPUs; unit.run_inputs has it")},
      {"--help", nothing("runs nothing")},
      {"--width", nothing("how text looks")},
  };
  return kTrials;
}

Command run_itself() {
  for (Command& command : all_commands()) {
    if (command.name == "run") return command;
  }
  return {};
}

/// What two processes of a job have said.
struct JobResult {
  int status[2] = {-1, -1};
  std::string err[2];
  std::string out;

  bool refused() const { return status[0] == 2 && status[1] == 2; }
  bool finished() const { return status[0] == 0 && status[1] == 0; }
  bool names(const std::string& input) const {
    return err[0].find("\n  " + input + ": ") != std::string::npos;
  }
};

class JobInputs : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(test::write_small_job(folder_).status, 0);
    std::string other;
    for (int i = 0; i < 100; ++i) other += "another text of about that length " + std::to_string(i);
    folder_.write("other", other);
    folder_.write("times.csv", "replica,rank,action,ns\n0,0,0F0,123456\n");
    ASSERT_EQ(sh("$PW run plan.json --steps 1 --save-checkpoint before -q").status, 0);
  }

  CommandResult sh(const std::string& line) { return test::shell(line, folder_); }
  std::string text(const std::string& name) const {
    return read_text((folder_.path() / name).string());
  }

  /// Rank 1 and then rank 0 run these words over sockets; each is given up after a minute.
  JobResult job(const std::string& words0, const std::string& words1) {
    const std::string place = "PIPEWRIGHT_WORLD_SIZE=2 PIPEWRIGHT_RENDEZVOUS=file://$PWD/meet" +
                              std::to_string(++jobs_) + " timeout 60 $PW run --transport tcp ";
    return result(sh("PIPEWRIGHT_RANK=1 " + place + words1 + " >o.1 2>e.1 & PIPEWRIGHT_RANK=0 " +
                     place + words0 + " >o.0 2>e.0; echo $? >s.0; wait $!; echo $? >s.1"));
  }
  JobResult mpi_job(const std::string& words0, const std::string& words1) {
    folder_.write("rank",
                  "#!/bin/sh\nr=$OMPI_COMM_WORLD_RANK\nif [ $r = 0 ]; then\n"
                  "timeout 60 $PW run --transport mpi " +
                      words0 + " >o.0 2>e.0; s=$?\nelse\ntimeout 60 $PW run --transport mpi " +
                      words1 + " >o.1 2>e.1; s=$?\nfi\necho $s >s.$r\n");
    return result(sh("rm -f s.0 s.1; export TMPDIR=/tmp; " PIPEWRIGHT_MPIRUN
                     " --oversubscribe -np 2 sh ./rank"));
  }

  /// What is computed, alone: losses or times by step, and the files of weights by their names,
  /// which hold their checksums.
  std::string computed(const std::string& words, bool is_training) {
    sh("rm -rf saved elsewhere");
    const std::string all = words + (is_training ? "" : " --clock virtual") +
                            (words.find(" --json") == std::string::npos ? " --json" : "");
    const CommandResult alone =
        sh("$PW run " + all + " && ls -R saved elsewhere 2>/dev/null; true");
    std::string kept;
    std::istringstream lines(alone.out);
    for (std::string line; std::getline(lines, line);) {
      const bool is_time = line.find("\"step_ns\"") != std::string::npos && is_training;
      const bool says = line.find("\"loss\"") != std::string::npos ||
                        line.find("\"step_ns\"") != std::string::npos ||
                        line.find(".bin") != std::string::npos ||
                        line.find("\"samples\"") != std::string::npos;
      if (says && !is_time) kept += line + "\n";
    }
    sh("rm -rf saved elsewhere");
    return kept;
  }

  static constexpr const char* kTraining = "plan.json --save-checkpoint saved";
  static constexpr const char* kOrder = "-s 1f1b -p 2 -m 4 --steps 2";

  const Folder folder_;

 private:
  JobResult result(const CommandResult& shell) const {
    JobResult result;
    for (const int rank : {0, 1}) {
      const std::string r = std::to_string(rank);
      result.err[rank] = text("e." + r) + shell.err;
      result.status[rank] = std::stoi(text("s." + r));
    }
    result.out = text("o.0");
    return result;
  }

  int jobs_ = 0;
};

TEST_F(JobInputs, EveryFlagOfRunHasATrial) {
  const Command run = run_itself();
  std::vector<Flag> flags = run.flags;
  for (Flag& flag : common_flags()) flags.push_back(std::move(flag));
  for (const Flag& flag : flags)
    EXPECT_TRUE(trials().contains(flag.name))
        << "the flag " << flag.name
        << " has no trial in this file: two ranks of a job are given it differently";
}

/// A flag of the base gives way to that of the trial.
std::string with(const std::string& base, const std::string& words) {
  std::string text = base;
  const auto drop = [&](const std::string& flag) {
    const std::size_t at = text.find(" " + flag + " ");
    if (at == text.npos || (" " + words).find(" " + flag + " ") == std::string::npos) return;
    const std::size_t value = at + flag.size() + 2;
    text.erase(at, text.find(' ', value) == text.npos ? text.npos : text.find(' ', value) - at);
  };
  std::string padded = " " + text;
  text = padded;
  for (const char* flag : {"-s", "-p", "-m", "--steps", "--save-checkpoint"}) drop(flag);
  const bool saves_nothing =
      words.find("--mode") != std::string::npos || words.find("--device") != std::string::npos;
  if (const std::size_t save = text.find(" --save-checkpoint saved");
      saves_nothing && save != text.npos)
    text.erase(save, std::string(" --save-checkpoint saved").size());
  return text.substr(1) + " " + words;
}

TEST_F(JobInputs, AFlagThatChangesWhatIsComputedOnOneRankIsRefusedByBothAndNamed) {
  const std::map<Base, std::string> bases = {{Base::Training, kTraining}, {Base::Order, kOrder}};
  std::map<Base, std::string> expected;
  for (const auto& [base, words] : bases) {
    expected[base] = computed(words, base == Base::Training);
    ASSERT_NE(expected[base], "");
  }
  int changes = 0;
  for (const auto& [flag, trial] : trials()) {
    if (trial.base == Base::Nothing) continue;
    SCOPED_TRACE(flag);
    const std::string base = bases.at(trial.base), changed = with(base, trial.words);
    const bool is_training = trial.base == Base::Training && flag != "--device";
    const std::string own = computed(changed, is_training);
    const bool changes_result = own != expected[trial.base];
    const JobResult job = this->job(base, changed);
    if (changes_result) {
      ++changes;
      EXPECT_TRUE(job.refused()) << changed << ": " << job.status[0] << " and " << job.status[1]
                                 << "\n"
                                 << job.err[0] << job.err[1];
    }
    if (job.refused()) {
      EXPECT_NE(job.err[0].find("have not been given the same"), std::string::npos) << job.err[0];
      const std::string name = trial.name.empty() ? flag.substr(2) : trial.name;
      EXPECT_TRUE(job.names(name)) << name << "\n" << job.err[0];
      EXPECT_NE(job.err[0].find(" on rank 0; "), std::string::npos) << job.err[0];
      EXPECT_NE(job.err[0].find(" on rank 1\n"), std::string::npos) << job.err[0];
    } else {
      EXPECT_TRUE(job.finished()) << changed << ": " << job.status[0] << " and " << job.status[1]
                                  << "\n"
                                  << job.err[0] << job.err[1];
    }
  }
  EXPECT_GE(changes, 15);
}

/// A change of the plan on rank 1, and what the refusal calls it; "": it changes no run.
struct Edit {
  std::string pointer;
  Json value;
  std::string name;
};

TEST_F(JobInputs, AnotherPlanOnOneRankIsRefusedByWhatDiffers) {
  const Json plan = Json::parse(text("plan.json"));
  const std::vector<Edit> edits = {
      {"/training/seed", 7, "training.seed"},
      {"/training/learning_rate", 0.02, "training.learning_rate"},
      {"/training/optimizer", "sgd", "training.optimizer"},
      {"/training/clip_grad_norm", 0.5, "training.clip_grad_norm"},
      {"/training/recompute", "full", "training.recompute"},
      {"/training/steps", 5, "steps"},
      {"/training/data", "other", "data"},
      {"/model/name", "another", "model"},
      {"/model/layers/2/kind", "relu", "model"},
      {"/micro_batch_size", 4, "micro_batch_size"},
      {"/micro_batches", 8, "micro_batches"},
      {"/stages/0/layers/1", 1, "stages"},
      {"/schedule/name", "gpipe", "schedule"},
      {"/policy/issue", "inline", "policy"},
      {"/costs/stages/0/f_ns", 12345, "costs"},
      {"/tuner/evaluated", 12345, ""},
      {"/predicted/step_ns", 12345, ""},
  };
  for (const Edit& edit : edits) {
    SCOPED_TRACE(edit.pointer);
    Json other = plan;
    other[Json::json_pointer(edit.pointer)] = edit.value;
    if (edit.name == "stages") other["stages"][1]["layers"][0] = edit.value;
    folder_.write("other.json", other.dump());
    const JobResult job = this->job("plan.json", "other.json");
    if (edit.name.empty()) {
      EXPECT_TRUE(job.finished()) << job.err[0] << job.err[1];
      continue;
    }
    EXPECT_TRUE(job.refused()) << job.status[0] << " and " << job.status[1] << "\n"
                               << job.err[0] << job.err[1];
    EXPECT_TRUE(job.names(edit.name)) << job.err[0];
  }
}

TEST_F(JobInputs, EqualFilesUnderOtherNamesAreTheSameInput) {
  sh("mkdir other-host; cp text other-host/corpus; cp -r before other-host/saved");
  const JobResult job =
      this->job("plan.json --data text --load-checkpoint before",
                "plan.json --data other-host/corpus --load-checkpoint other-host/saved");
  EXPECT_TRUE(job.finished()) << job.err[0] << job.err[1];
}

TEST_F(JobInputs, TheSameValueFromTheFlagAndFromThePlanIsTheSameInput) {
  const JobResult job = this->job("plan.json", "plan.json --steps 6 --numerics fast --data text");
  EXPECT_TRUE(job.finished()) << job.err[0] << job.err[1];
}

TEST_F(JobInputs, OtherArraysOnOneRankAreRefusedByName) {
  const std::vector<std::int64_t> inputs = {4, 4}, labels = {4, 1};
  const auto write = [&](const std::string& name, const std::vector<std::int64_t>& shape,
                         auto elements) {
    folder_.write(
        name,
        exec::npy_bytes(shape, std::span<const typename decltype(elements)::value_type>(elements)));
  };
  std::vector<float> values(16);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.125F * static_cast<float>(i);
  write("x.npy", inputs, values);
  values[3] += 1;
  write("x2.npy", inputs, values);
  write("y.npy", labels, std::vector<std::int32_t>{0, 1, 2, 0});
  write("y2.npy", labels, std::vector<std::int32_t>{0, 1, 2, 1});
  folder_.write("arrays.json", R"({"schema": "pipewright.job/1", "model": {"name": "arrays",
      "loss": "softmax_cross_entropy", "layers": [
      {"kind": "linear", "in": 4, "out": 8}, {"kind": "gelu"}, {"kind": "linear", "out": 3}]},
      "cluster": {"preset": "local-cpu", "devices": 2}, "global_batch": 4,
      "strategy": {"pp_degree": 2, "accumulate_steps": 2, "schedule_mode": "1f1b"},
      "training": {"steps": 3}, "tuner_save_path": "arrays.plan.json"})");
  const CommandResult tuned = sh("$PW tune arrays.json -q");
  ASSERT_EQ(tuned.status, 0) << tuned.err;
  const std::string base = "arrays.plan.json --data x.npy --labels y.npy";
  EXPECT_TRUE(job(base, base).finished());
  const JobResult data = job(base, "arrays.plan.json --data x2.npy --labels y.npy");
  EXPECT_TRUE(data.refused() && data.names("data") && !data.names("labels")) << data.err[0];
  const JobResult answers = job(base, "arrays.plan.json --data x.npy --labels y2.npy");
  EXPECT_TRUE(answers.refused() && answers.names("labels") && !answers.names("data"))
      << answers.err[0];
}

TEST_F(JobInputs, OverMpiTooBothRefuseAndNameTheInput) {
  if (std::string(PIPEWRIGHT_MPIRUN).empty()) GTEST_SKIP() << "there is no mpirun here";
  Json other = Json::parse(text("plan.json"));
  other["training"]["seed"] = 7;
  folder_.write("other.json", other.dump());
  for (const auto& [words, name] : std::map<std::string, std::string>{
           {"other.json", "training.seed"},
           {"plan.json --data other", "data"},
           {"plan.json --numerics exact", "numerics"},
           {"plan.json --load-checkpoint before", "load-checkpoint"}}) {
    const JobResult job = mpi_job("plan.json", words);
    EXPECT_TRUE(job.refused()) << words << ": " << job.status[0] << " and " << job.status[1] << "\n"
                               << job.err[0] << job.err[1];
    EXPECT_TRUE(job.names(name)) << words << "\n" << job.err[0];
  }
  const JobResult alike = mpi_job("plan.json", "plan.json --watchdog 20s");
  EXPECT_TRUE(alike.finished()) << alike.err[0] << alike.err[1];
}

}  // namespace run_inputs_test
}  // namespace pipewright::tools
