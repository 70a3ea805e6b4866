// What a profiler tells of GPUs' work, brought together and told apart by rank: the module's part
// on its own, and ours on a table whose profiler tells what the test says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "core/base/error.hpp"
#include "core/program/lower.hpp"
#include "exec/devices/cuda/activities.hpp"
#include "exec/devices/cuda/module/activity_records.hpp"

namespace pipewright::exec::cuda {
namespace activities_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Activity = pipewright_cuda_activity;

Activity piece(std::uint64_t about, std::int64_t start, std::int64_t end, std::uint32_t stream = 1,
               int gpu = 0) {
  return {PIPEWRIGHT_CUDA_KERNEL, gpu, 1, stream, about, start, end, 0, "kernel"};
}

std::vector<std::uint64_t> taken_about(ActivityRecords& records) {
  std::vector<std::uint64_t> about;
  records.take([&](const Activity& one) { about.push_back(one.about); });
  return about;
}

TEST(ActivityRecords, WorkIsAboutWhatItsCallWas) {
  ActivityRecords records;
  records.begin(100);
  records.note_work(piece(0, 10, 20), 7, 0);  // before its call: buffers come in any order
  records.note_call(7, 41);
  records.note_call(8, 42);
  EXPECT_THAT(taken_about(records), ElementsAre(41));
  records.note_work(piece(0, 30, 40), 8, 0);  // its call was in a buffer of the last time
  records.note_work(piece(0, 50, 60), 9, 0);  // a thread that is about nothing
  EXPECT_THAT(taken_about(records), ElementsAre(42, 0));
  records.note_work(piece(0, 70, 80), 8, 0);
  EXPECT_THAT(taken_about(records), ElementsAre(0)) << "a call is forgotten after two times";
}

TEST(ActivityRecords, AGraphsWorkIsAboutWhatItsNodeWas) {
  ActivityRecords records;
  records.begin(100);
  records.note_node(1, 41);
  records.note_copied_node(2, 1);  // of the graph that is launched
  records.note_copied_node(3, 99);
  records.note_call(7, 50);  // the launch
  for (int launch = 0; launch < 3; ++launch) {
    records.note_work(piece(0, 10, 20), 7, 2);
    records.note_work(piece(0, 10, 20), 7, 3);
    EXPECT_THAT(taken_about(records), ElementsAre(41, 0));
  }
}

TEST(ActivityRecords, WhatThereIsNoRoomForIsCounted) {
  ActivityRecords records;
  records.begin(2);
  for (int i = 0; i < 5; ++i) records.note_work(piece(0, 10, 20), 7, 0);
  records.note_dropped(4);
  int pieces = 0;
  EXPECT_EQ(records.take([&](const Activity&) { ++pieces; }), 3 + 4);
  EXPECT_EQ(pieces, 2);
  records.note_work(piece(0, 0, 0), 7, 0);  // without times
  records.note_work(piece(0, 10, 20), 7, 0);
  EXPECT_EQ(records.take([&](const Activity&) { ++pieces; }), 1);
  EXPECT_EQ(pieces, 3);
}

TEST(ActivityRecords, KeepNamesThatGo) {
  ActivityRecords records;
  records.begin(100);
  for (const char* name : {"one", "two"}) {
    std::string gone = name;
    Activity work = piece(0, 10, 20);
    work.name = gone.c_str();
    records.note_work(work, 1, 0);
    gone.assign(gone.size(), 'x');
  }
  std::vector<std::string> names;
  records.take([&](const Activity& one) { names.emplace_back(one.name); });
  EXPECT_THAT(names, ElementsAre("one", "two"));
}

TEST(ActivityRecords, TakeFromManyThreads) {
  constexpr int kThreads = 4, kEach = 500;
  ActivityRecords records;
  records.begin(kThreads * kEach);
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&records, t] {
      for (std::uint32_t i = 0; i < kEach; ++i) {
        const std::uint32_t call = t * kEach + i;
        records.note_work(piece(0, 10, 20), call, 0);
        records.note_call(call, call + 1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  auto about = taken_about(records);
  ASSERT_EQ(about.size(), std::size_t{kThreads * kEach});
  std::sort(about.begin(), about.end());
  for (std::size_t i = 0; i < about.size(); ++i) EXPECT_EQ(about[i], i + 1);
}

TEST(KernelName, IsThatOfTheSource) {
  // void a::(anonymous namespace)::element_kernel<a::Bias<float>>(unsigned long, a::Bias<float>)
  EXPECT_EQ(kernel_name("_ZN1a12_GLOBAL__N_114element_kernelINS_4BiasIfEEEEvmT_"),
            "element_kernel<Bias<float>>");
  EXPECT_EQ(kernel_name("_ZN1a4BiasIfEE"), "Bias<float>");  // without parameters
  EXPECT_EQ(kernel_name("N1a4BiasIfEE"), "Bias<float>");    // a type's
  EXPECT_EQ(kernel_name("nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NNT"),
            "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NNT");
  EXPECT_EQ(kernel_name("quoted\"\\\n"), "quoted___");
  EXPECT_EQ(kernel_name(nullptr), "");
}

/// A profiler that tells this.
struct Told {
  std::vector<Activity> work;
  std::int64_t dropped = 0;
};
Told& told() {
  static Told one;
  return one;
}
bool is_recording = false;

pipewright_cuda telling() {
  pipewright_cuda table{};
  table.why = [] { return "the library says why"; };
  table.activities_are_there = [] { return 0; };
  table.record_activities = [](std::int64_t (*)(), std::size_t) {
    is_recording = true;
    return 0;
  };
  table.take_activities = [](void (*taken)(void*, const Activity*), void* by,
                             std::int64_t* dropped) {
    for (const Activity& one : told().work) taken(by, &one);
    *dropped = told().dropped;
    return 0;
  };
  table.stop_activities = [] { is_recording = false; };
  return table;
}

Program two_ranks() {
  return lower(read_order_csv("0F0,0B0\n1F0,1B0\n", "order.csv"), comm_policy_preset("ideal"));
}

TEST(Activities, AreOfTheRankThatHasPutThemThere) {
  const Program program = two_ranks();
  const AboutNumbers numbers{program};
  const InstructionId first = program.rank_begin[1];  // rank 1's
  const pipewright_cuda cuda = telling();
  Activities activities(cuda, program);
  told() = {{piece(AboutNumbers::of(first), 1100, 1200), piece(numbers.of(RankId(0)), 1300, 1400)},
            3};
  const GpuWorkLog log = activities.take(-1000);
  ASSERT_EQ(log.work.size(), 2U);
  EXPECT_EQ(log.dropped, 3);
  EXPECT_EQ(log.work[0].rank, RankId(1));
  EXPECT_EQ(log.work[0].instruction, first);
  EXPECT_EQ(log.work[0].start_ns, 100);
  EXPECT_EQ(log.work[0].end_ns, 200);
  EXPECT_EQ(log.work[0].name, "kernel");
  EXPECT_EQ(log.work[1].rank, RankId(0));
  EXPECT_EQ(log.work[1].instruction, kNoInstruction);
}

/// NCCL launches by threads of its own.
TEST(Activities, WithoutAThreadAreOfWhoHasTheStreamOrTheGpuAlone) {
  const Program program = two_ranks();
  const AboutNumbers numbers{program};
  const auto zero = numbers.of(RankId(0)), one = numbers.of(RankId(1));
  const pipewright_cuda cuda = telling();
  Activities activities(cuda, program);
  told() = {{piece(zero, 1, 2, 1, 0), piece(one, 1, 2, 2, 0), piece(one, 1, 2, 5, 1),
             piece(0, 1, 2, 1, 0),   // rank 0's stream
             piece(0, 1, 2, 9, 1),   // rank 1's GPU
             piece(0, 1, 2, 9, 0)},  // whose?
            0};
  GpuWorkLog log = activities.take(0);
  ASSERT_EQ(log.work.size(), 6U);
  EXPECT_EQ(log.work[3].rank, RankId(0));
  EXPECT_EQ(log.work[4].rank, RankId(1));
  Timeline timeline;
  timeline.start.assign(program.code.size(), 0);
  timeline.end.assign(program.code.size(), 10);
  timeline.makespan_ns = 10;
  fit_to_step(log, program, timeline);
  EXPECT_EQ(log.work.size(), 5U);
  EXPECT_EQ(log.strays, 1);
}

TEST(Activities, GoToAnotherProcessAndBack) {
  GpuWorkLog log;
  log.dropped = 2;
  log.work = {{GpuWork::Kind::Copy, RankId(3), 17, 4, "", 5, 6, 7},
              {GpuWork::Kind::Kernel, RankId(1), kNoInstruction, 9, "gemm", -3, 8, 0}};
  GpuWorkLog all;
  for (int process = 0; process < 2; ++process) add_packed(packed(log), all);
  EXPECT_EQ(all.dropped, 4);
  ASSERT_EQ(all.work.size(), 4U);
  EXPECT_EQ(all.work[2].kind, GpuWork::Kind::Copy);
  EXPECT_EQ(all.work[2].instruction, 17U);
  EXPECT_EQ(all.work[2].bytes, 7);
  EXPECT_EQ(all.work[3].name, "gemm");
  EXPECT_EQ(all.work[3].start_ns, -3);
  EXPECT_EQ(all.work[3].stream, 9U);
}

TEST(Activities, AreThoseOfTheStepAndSayHowFarTheClocksAreApart) {
  const Program program = two_ranks();
  const InstructionId id = program.rank_begin[0];  // computes from 100 to 200
  Timeline timeline;
  timeline.start.assign(program.code.size(), 100);
  timeline.end.assign(program.code.size(), 200);
  timeline.makespan_ns = 200;
  GpuWorkLog log;
  const auto add = [&](InstructionId of, std::int64_t from, std::int64_t to) {
    log.work.push_back({GpuWork::Kind::Kernel, RankId(0), of, 1, "k", from, to, 0});
  };
  add(id, 150, 207);
  add(id, 97, 110);
  add(kNoInstruction, -5, 3);
  add(kNoInstruction, -9, 0);     // of the step before
  add(kNoInstruction, 200, 300);  // behind the step
  fit_to_step(log, program, timeline);
  ASSERT_EQ(log.work.size(), 3U);
  EXPECT_EQ(log.work[0].start_ns, 0);
  EXPECT_EQ(log.work[1].start_ns, 97);
  EXPECT_EQ(log.work[2].start_ns, 150);
  EXPECT_EQ(log.apart_ns, 7);
}

TEST(Activities, SayWhatIsMissing) {
  const Program program = two_ranks();
  const auto why = [&](const pipewright_cuda& cuda) -> std::string {
    try {
      const Activities activities(cuda, program);
    } catch (const MachineError& error) {
      return error.what();
    }
    return "";
  };
  pipewright_cuda cuda = telling();
  EXPECT_EQ(why(cuda), "");
  EXPECT_FALSE(is_recording) << "it stops with the run";
  cuda.record_activities = [](std::int64_t (*)(), std::size_t) { return 1; };
  EXPECT_THAT(why(cuda), HasSubstr("the library says why"));
  cuda.activities_are_there = [] { return 1; };
  EXPECT_THAT(why(cuda), HasSubstr("nvidia-cuda-cupti"));
  cuda.activities_are_there = nullptr;
  EXPECT_THAT(why(cuda), HasSubstr("built without CUPTI's header"));
}

}  // namespace activities_test
}  // namespace pipewright::exec::cuda
