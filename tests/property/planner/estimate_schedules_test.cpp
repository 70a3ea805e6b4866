// What the analytical estimate says of pipelines against the closed forms of the schedules, which
// tests/golden/closed_form_test.cpp holds equal to the simulator.
#include <gtest/gtest.h>

#include <cmath>

#include "planner/bounds/closed_form.hpp"
#include "planner/estimate/step_estimate.hpp"

namespace pipewright::planner {
namespace estimate_schedules_test {

/// Hardly an embedding and hardly a head, so that stages are equal.
Architecture equal_blocks() {
  Architecture model = gpt_architecture("gpt", 4096, 96, 32, 8, 2048);
  model.learned_positions = false;
  return model;
}

ParallelSetup setup_of(int ranks, int micro_batches, int chunks) {
  ParallelSetup setup;
  setup.pipeline = ranks;
  setup.micro_batches = micro_batches;
  setup.chunks = chunks;
  return setup;
}

TEST(EstimateOfSchedules, KeepsAsManyActivationsAsTheSchedulesDo) {
  for (const int ranks : {2, 3, 4, 8}) {
    for (const int rounds : {1, 2, 5}) {
      for (const int chunks : {1, 2, 4}) {
        const int m = ranks * rounds;
        const auto peaks =
            closed_form_peaks(chunks == 1 ? "1f1b" : "interleaved", {ranks, m, chunks, {}});
        ASSERT_TRUE(peaks);
        const auto memory =
            estimate_memory(equal_blocks(), megatron_lm(), setup_of(ranks, m, chunks));
        for (int rank = 0; rank < ranks; ++rank) {
          const auto r = static_cast<std::size_t>(rank);
          EXPECT_EQ(memory[r].in_flight * chunks, (*peaks)[r])
              << "rank " << rank << " of " << ranks << ", m " << m << ", v " << chunks;
        }
      }
    }
  }
}

TEST(EstimateOfSchedules, TakesAsLongAsTheClosedFormWithoutTransfers) {
  const Machine machine = nvlink_machine("A100", 1e15);
  for (const int ranks : {2, 4, 8}) {
    for (const int chunks : {1, 2, 4}) {
      const int m = 4 * ranks;
      const StepEstimate estimate =
          estimate_step(equal_blocks(), megatron_lm(), machine, setup_of(ranks, m, chunks));
      // A rank's work in thirds: a forward, and a backward of twice that, for each chunk.
      const double rank_seconds = estimate.busy / m;
      const auto third = Nanoseconds(std::llround(rank_seconds / chunks / 3 * 1e9));
      StageCosts each;
      each.f = each.i = each.w = third;
      each.b = third + third;
      const auto form =
          closed_form(chunks == 1 ? "1f1b" : "interleaved", {ranks, m, chunks, {}}, each);
      ASSERT_TRUE(form);
      EXPECT_NEAR((estimate.pipeline - estimate.transfers) * 1e9,
                  static_cast<double>(form->makespan_ns),
                  0.002 * static_cast<double>(form->makespan_ns))
          << "p " << ranks << ", v " << chunks;
    }
  }
}

}  // namespace estimate_schedules_test
}  // namespace pipewright::planner
