// A graph's pipeline whose ranks are processes, with its collectives through windows of memory or
// over the wire: it has the bits of threads, and says who has died or failed. Processes are real
// ones, started and killed here.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>

#include "core/program/lower.hpp"
#include "core/spmd/graph/completion.hpp"
#include "core/spmd/graph/graph_json.hpp"
#include "exec/collectives/process/job_groups.hpp"
#include "exec/collectives/process/wire_group.hpp"
#include "exec/spmd/graph_training.hpp"
#include "exec/transports/process/all_gather.hpp"
#include "exec/transports/process/tcp/wire.hpp"
#include "planner/schedules/registry.hpp"
#include "tests/support/command_runner.hpp"

namespace pipewright::tests {
namespace graph_deaths_test {

using namespace exec::graphs;
using exec::collectives::JobGroups;
using exec::collectives::Letters;
using exec::collectives::Mail;

enum class Fault { None, Dies, Fails };

constexpr int kProcesses = 4, kFaulty = 3;

/// Two stages that divide a product each by two ranks; the second one has a function of its own.
constexpr const char* kGraph = R"({
  "schema": "pipewright.graph/1",
  "pipeline": {"schedule_mode": "1F1B", "accumulate_steps": 4},
  "meshes": {"first": {"shape": [2], "ranks": [0, 1]}, "second": {"shape": [2], "ranks": [2, 3]}},
  "tensors": {
    "x": {"shape": [6, 8], "type": "float32", "annotation": {"mesh": "first", "placements": ["R"]}},
    "up": {"shape": [8, 16], "type": "float32", "role": "parameter",
           "annotation": {"mesh": "first", "placements": ["S1"]}},
    "h": {"shape": [6, 16], "type": "float32"},
    "down": {"shape": [16, 8], "type": "float32", "role": "parameter",
             "annotation": {"mesh": "second", "placements": ["S0"]}},
    "y": {"shape": [6, 8], "type": "float32"},
    "z": {"shape": [6, 8], "type": "float32"},
    "squares": {"shape": [6, 8], "type": "float32"},
    "loss": {"shape": [], "type": "float32"}},
  "operators": [
    {"name": "up", "rule": "matmul", "inputs": ["x", "up"], "outputs": ["h"]},
    {"name": "down", "rule": "matmul", "inputs": ["h", "down"], "outputs": ["y"]},
    {"name": "own", "rule": "local_map", "attributes": ["own"], "inputs": [["y"]],
     "outputs": [["z"]]},
    {"name": "square", "rule": "square", "inputs": ["z"], "outputs": ["squares"]},
    {"name": "mean", "rule": "mean", "inputs": ["squares"], "outputs": ["loss"],
     "attributes": [[0, 1], false]}]})";

/// Hands on what it gets; something happens in the tenth call.
LocalFunctions functions(Fault fault) {
  const auto calls = std::make_shared<int>(0);
  return {{"own",
           {[=](const LocalCall& call) {
              const bool is_due = ++*calls == 10;
              if (is_due && fault == Fault::Dies) raise(SIGKILL);
              if (is_due && fault == Fault::Fails) throw RunError("the device fell off the bus");
              call.outputs[0]->values = call.inputs[0]->values;
            },
            [](const LocalCall& call) {
              for (std::size_t i = 0; i < call.gradients[0]->values.size(); ++i)
                call.gradients[0]->values[i] += call.of_outputs[0]->values[i];
            }}}};
}

std::string trained(Fault fault, const GraphProcess* process) {
  const Json json = parse_json(kGraph, "graph");
  const spmd::OperatorGraph graph = completed(spmd::read_graph(JsonCursor(json, "graph"))).graph;
  const spmd::PipelineStages stages = spmd::pipeline_stages(graph);
  const Program program = lower(planner::make_order("1f1b", {2, 4, 1, {}}), {});
  const auto steps = training_steps(graph, loss_of(graph, "loss"), stages.order_of(graph));
  const GraphTraining training = train_graph(
      graph, steps,
      {.steps = 5, .functions = functions(fault), .schedule = schedule_of(stages, program)},
      process);
  std::string words;
  for (const double loss : training.losses) words += std::to_string(loss) + " ";
  for (const auto& [name, values] : training.parameters) {
    for (const float value : values) words += std::to_string(value) + " ";
  }
  return words;
}

std::string trained_in_process(exec::mpi::Link& link, Fault fault, bool over_wire) {
  JobGroups groups(link);
  const auto mail = std::make_shared<Mail>(link);
  Letters letters(mail);
  const exec::collectives::Look look = [&] { letters.advance(); };
  GraphProcess process;
  process.process = link.process();
  process.group = [&](std::span<const RankId> ranks) {
    std::vector<int> who;
    for (const RankId rank : ranks) who.push_back(rank.value);
    return over_wire ? exec::collectives::wire_group(mail, who, look) : groups.group(ranks, look);
  };
  process.share = [&](const std::string& own) { return exec::mpi::all_gather(link, own); };
  process.post = {
      .post = [&](int to, exec::PackedBytes bytes) { letters.post(to, std::move(bytes)); },
      .take = [&](int from) { return letters.take(from); }};
  try {
    return trained(link.process() == kFaulty ? fault : Fault::None, &process);
  } catch (const std::exception& error) {
    const std::scoped_lock lock(link.mutex());
    link.say_failure({.status = 1, .text = error.what()});
    return error.what();
  }
}

std::filesystem::path words_of(const test::Folder& folder, int process) {
  return folder.path() / ("said." + std::to_string(process));
}

[[noreturn]] void take_part(const test::Folder& folder, int self, Fault fault, bool over_wire) {
  alarm(60);  // a hang is a failure, too
  exec::tcp::JobPlace place;
  place.process = self;
  place.processes = kProcesses;
  place.folder = folder.path().string();
  {
    exec::mpi::Link link(std::make_unique<exec::tcp::TcpWire>(place));
    std::ofstream(words_of(folder, self)) << trained_in_process(link, fault, over_wire);
    link.close();
  }
  _exit(0);
}

/// What every process says at the end; none of them takes long.
std::vector<std::string> words_of_job(Fault fault, bool over_wire) {
  const test::Folder folder;
  std::vector<pid_t> children;
  for (int self = 0; self < kProcesses; ++self) {
    children.push_back(fork());
    if (children.back() == 0) take_part(folder, self, fault, over_wire);
  }
  std::vector<std::string> said;
  for (int self = 0; self < kProcesses; ++self) {
    int status = 0;
    waitpid(children[static_cast<std::size_t>(self)], &status, 0);
    EXPECT_EQ(WIFEXITED(status), self != kFaulty || fault != Fault::Dies) << "process " << self;
    std::ifstream words(words_of(folder, self));
    said.emplace_back(std::istreambuf_iterator<char>(words), std::istreambuf_iterator<char>());
  }
  return said;
}

class GraphDeaths : public testing::TestWithParam<bool> {};

TEST_P(GraphDeaths, HealthyProcessesTrainAsThreads) {
  const std::vector<std::string> said = words_of_job(Fault::None, GetParam());
  const std::string threads = trained(Fault::None, nullptr);
  for (const std::string& words : said) EXPECT_EQ(words, threads);
}

TEST_P(GraphDeaths, NameTheProcessThatWasKilled) {
  const std::vector<std::string> said = words_of_job(Fault::Dies, GetParam());
  for (const int other : {0, 1, 2}) {
    EXPECT_NE(said[static_cast<std::size_t>(other)].find("process 3 "), std::string::npos)
        << other << ": " << said[static_cast<std::size_t>(other)];
  }
}

TEST_P(GraphDeaths, AProcessThatFailsSaysWhy) {
  for (const std::string& words : words_of_job(Fault::Fails, GetParam())) {
    EXPECT_NE(words.find("the device fell off the bus"), std::string::npos) << words;
  }
}

INSTANTIATE_TEST_SUITE_P(Through, GraphDeaths, testing::Bool(), [](const auto& instance) {
  return std::string(instance.param ? "TheWire" : "Windows");
});

}  // namespace graph_deaths_test
}  // namespace pipewright::tests
