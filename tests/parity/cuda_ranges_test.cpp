// The ranges that a rank's thread tells profilers are the Program: in a step each instruction of
// its list once, by its name, in the order in which the host puts its work on the GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "exec/devices/cuda/run.hpp"
#include "exec/transports/nccl/run.hpp"
#include "planner/plans/data_parallel.hpp"
#include "tests/parity/outcome.hpp"
#include "tests/parity/update_cases.hpp"
#include "tests/support/host_cuda.hpp"
#include "tests/support/host_nccl.hpp"

namespace pipewright::tests {
namespace cuda_ranges_test {

using exec::cuda::CudaTraining;
using exec::cuda::Precision;

/// What a profiler is told, thread by thread.
struct Profiler {
  struct Thread {
    std::vector<std::string> open;                           // the innermost last
    std::map<std::string, std::vector<std::string>> inside;  // of the outermost ranges
    bool is_odd = false;                                     // nested too deep, or ended too often
  };
  std::mutex mutex;
  std::set<std::string> names;  // as registered; they stay where they are
  std::map<std::thread::id, Thread> threads;
};

Profiler& profiler() {
  static auto* const one = new Profiler;
  return *one;
}

void* registered(const char* text) {
  const std::scoped_lock lock(profiler().mutex);
  return const_cast<std::string*>(&*profiler().names.insert(text).first);
}

void begin_range(void* name) {
  const std::scoped_lock lock(profiler().mutex);
  Profiler::Thread& thread = profiler().threads[std::this_thread::get_id()];
  const std::string& text = *static_cast<const std::string*>(name);
  if (thread.open.empty()) thread.inside[text];
  if (thread.open.size() == 1) thread.inside[thread.open.front()].push_back(text);
  thread.is_odd = thread.is_odd || thread.open.size() > 1;
  thread.open.push_back(text);
}

void end_range() {
  const std::scoped_lock lock(profiler().mutex);
  Profiler::Thread& thread = profiler().threads[std::this_thread::get_id()];
  thread.is_odd = thread.is_odd || thread.open.empty();
  if (!thread.open.empty()) thread.open.pop_back();
}

/// The host's table with so many GPUs, which a profiler watches.
pipewright_cuda watched(HostOrder order, int (*gpus)()) {
  pipewright_cuda table = host_cuda(order);
  table.gpus = gpus;
  table.is_profiled = [] { return 1; };
  table.range_name = registered;
  table.begin_range = begin_range;
  table.end_range = end_range;
  return table;
}

/// What the threads said since the last call: of each "rank R step S" the names inside.
std::map<std::string, std::vector<std::string>> told() {
  const std::scoped_lock lock(profiler().mutex);
  std::map<std::string, std::vector<std::string>> all;
  for (const auto& [id, thread] : profiler().threads) {
    EXPECT_FALSE(thread.is_odd);
    EXPECT_TRUE(thread.open.empty());
    for (const auto& [outer, inside] : thread.inside) {
      EXPECT_FALSE(all.contains(outer)) << outer;
      all[outer] = inside;
    }
  }
  profiler().threads.clear();
  return all;
}

std::vector<std::string> names_of(const Program& program, int rank) {
  std::vector<std::string> names;
  const auto r = static_cast<std::size_t>(rank);
  for (InstructionId id = program.rank_begin[r]; id < program.rank_begin[r + 1]; ++id)
    names.push_back(program.text(id));
  return names;
}

std::vector<std::string> sorted(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  return names;
}

/// Without what moves data, whose place in the list is not where its data is there.
std::vector<std::string> computations(const Program& program, const std::vector<std::string>& of,
                                      int rank) {
  std::set<std::string> moves;
  const auto r = static_cast<std::size_t>(rank);
  for (InstructionId id = program.rank_begin[r]; id < program.rank_begin[r + 1]; ++id) {
    if (program.code[id].is_communication()) moves.insert(program.text(id));
  }
  std::vector<std::string> rest;
  std::copy_if(of.begin(), of.end(), std::back_inserter(rest),
               [&](const std::string& name) { return !moves.contains(name); });
  return rest;
}

void expect_program(const Program& program, int steps) {
  const auto all = told();
  EXPECT_EQ(all.size(), static_cast<std::size_t>(program.ranks() * steps));
  for (int rank = 0; rank < program.ranks(); ++rank) {
    const std::vector<std::string> listed = names_of(program, rank);
    for (int step = 0; step < steps; ++step) {
      const std::string name = "rank " + std::to_string(rank) + " step " + std::to_string(step);
      const auto found = all.find(name);
      ASSERT_NE(found, all.end()) << name;
      EXPECT_EQ(sorted(found->second), sorted(listed)) << name;
      EXPECT_EQ(computations(program, found->second, rank), computations(program, listed, rank))
          << name;
    }
  }
}

CudaTraining training_of(const Setting& setting, bool as_graph = false) {
  return {setting.training, Precision::Exact, {}, {}, as_graph};
}

TEST(CudaRanges, AreTheInstructionsOfEverySchedule) {
  const pipewright_cuda cuda = watched(HostOrder::Lazy, [] { return 2; });
  for (const planner::Schedule* schedule : synchronous_schedules()) {
    const std::optional<Program> program = program_of(*schedule, 4);
    if (!program) continue;
    SCOPED_TRACE(schedule->name);
    const Setting setting(*program);
    const auto run = exec::cuda::run_on_cuda(cuda, *program, costs_of(*program, 1000),
                                             training_of(setting), {.steps = 2});
    ASSERT_TRUE(run.finished());
    expect_program(*program, 2);
    if (HasFailure()) return;
  }
}

TEST(CudaRanges, AreTheSumsOfReplicasToo) {
  const pipewright_cuda cuda = watched(HostOrder::Shuffled, [] { return 2; });
  for (const UpdateCase& one : update_cases()) {
    const Program program = lower(one.order, comm_policy_preset("torch"), {.optimizer = true});
    if (program.asynchronous) continue;
    SCOPED_TRACE(one.name);
    const Setting setting(program);
    const auto run = exec::cuda::run_on_cuda(cuda, program, costs_of(program, 1000),
                                             training_of(setting), {.steps = 1});
    ASSERT_TRUE(run.finished());
    expect_program(program, 1);
  }
}

/// There a RECV's call is made where the list has it: each rank's ranges are its list.
TEST(CudaRanges, OverNcclAreTheListItself) {
  const pipewright_cuda cuda = watched(HostOrder::Eager, [] { return 4; });
  const Order order = planner::replicate(planner::make_order("1f1b", {2, 4, 1, {}}), 2);
  const Program program = lower(order, {.post = Post::Deferred}, {.optimizer = true});
  const Setting setting(program);
  CudaTraining how = training_of(setting);
  how.precision = Precision::Float32;
  const auto run = exec::nccl::run_on_nccl(cuda, host_nccl(cuda), program, costs_of(program, 1000),
                                           how, {.steps = 1});
  ASSERT_TRUE(run.finished());
  const auto all = told();
  ASSERT_EQ(all.size(), 4U);
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(all.at("rank " + std::to_string(rank) + " step 0"), names_of(program, rank));
}

/// Nothing is enqueued in them: a profiler sees the launch.
TEST(CudaRanges, StepsOfAGraphAreOneRange) {
  const pipewright_cuda cuda = watched(HostOrder::Eager, [] { return 1; });
  const Program program = program_of({"1f1b", 2, 4, 1, "torch"});
  const Setting setting(program);
  const auto run = exec::cuda::run_on_cuda(cuda, program, costs_of(program, 1000),
                                           training_of(setting, true), {.steps = 4});
  ASSERT_TRUE(run.finished());
  const auto all = told();
  ASSERT_EQ(all.size(), 8U);
  for (int rank = 0; rank < 2; ++rank) {
    const std::string of_rank = "rank " + std::to_string(rank) + " step ";
    EXPECT_EQ(sorted(all.at(of_rank + "0")), sorted(names_of(program, rank)));
    for (const char* step : {"1", "2", "3"}) EXPECT_TRUE(all.at(of_rank + step).empty());
  }
}

TEST(CudaRanges, NobodyIsToldWhereNobodyLooks) {
  pipewright_cuda cuda = watched(HostOrder::Eager, [] { return 1; });
  cuda.is_profiled = [] { return 0; };
  const Program program = program_of({"1f1b", 2, 4, 1, "torch"});
  const Setting setting(program);
  for (const bool is_built_with : {true, false}) {
    if (!is_built_with) cuda.is_profiled = nullptr;
    const auto run = exec::cuda::run_on_cuda(cuda, program, costs_of(program, 1000),
                                             training_of(setting), {.steps = 1});
    ASSERT_TRUE(run.finished());
    EXPECT_TRUE(told().empty());
  }
}

}  // namespace cuda_ranges_test
}  // namespace pipewright::tests
