// Closed forms against the simulator for random sizes and costs: wherever a form is given, it is
// right to the nanosecond, and it is given at all sizes and costs that its words promise.
#include "planner/bounds/closed_form.hpp"

#include <gtest/gtest.h>

#include <random>

#include "core/order/comm_policy.hpp"
#include "core/program/lower.hpp"
#include "core/timeline/timeline.hpp"
#include "sim/engine.hpp"

namespace pipewright {
namespace closed_form_test {

using planner::ScheduleRequest;

struct Case {
  const char* schedule;
  int chunks;  // at most
  std::map<std::string, std::string> parameters;
  bool (*promised)(int p, int m, int v, const StageCosts& each);
};

bool always(int, int, int, const StageCosts&) { return true; }
bool no_long_w(const StageCosts& c) { return c.f == c.i && c.i >= c.w; }

const Case kCases[] = {
    {"eager-1f1b", 1, {}, always},
    {"looped-bfs", 4, {}, always},
    {"zb-h1", 1, {}, always},
    {"zb-h2", 1, {}, [](int p, int m, int, const StageCosts&) { return m >= 2 * p - 1; }},
    {"interleaved-zb",
     4,
     {},
     [](int p, int m, int v, const StageCosts&) { return v == 1 || m >= p; }},
    {"zbv",
     2,
     {},
     [](int p, int m, int, const StageCosts& c) { return m >= 2 * p - 1 && no_long_w(c); }},
    {"dualpipev", 2, {}, [](int, int, int, const StageCosts& c) { return no_long_w(c); }},
    {"dualpipe", 1, {}, [](int, int, int, const StageCosts& c) { return no_long_w(c); }},
    {"chimera", 1, {}, [](int, int, int, const StageCosts& c) { return c.f == c.b; }},
    {"hanayo",
     6,
     {},
     [](int p, int m, int, const StageCosts& c) { return m >= p && c.f <= c.i + c.w; }},
    {"hanayo",
     6,
     {{"backward", "fused"}},
     [](int p, int m, int, const StageCosts& c) { return m >= p && c.f <= c.b; }},
};

class ClosedFormProperty : public ::testing::TestWithParam<Case> {
 protected:
  int up_to(int most) { return std::uniform_int_distribution<int>(1, most)(random_); }

  /// Some costs are equal on purpose: the forms have branches there.
  StageCosts costs() {
    StageCosts each;
    each.f = Nanoseconds(up_to(40));
    each.i = up_to(2) == 1 ? each.f : Nanoseconds(up_to(40));
    each.w = up_to(4) == 1 ? each.i : Nanoseconds(up_to(40));
    each.b = each.i + each.w;
    if (up_to(4) == 1) each.f = each.b;
    return each;
  }

  void expect_equal(const ScheduleRequest& request, const StageCosts& each,
                    const planner::ClosedForm& form) {
    const Order order = planner::make_order(GetParam().schedule, request);
    const Program program = lower(order, comm_policy_preset("ideal"));
    const CostTable costs = CostTable::uniform(order.stages(), each);
    const sim::Result result = sim::simulate(program, costs);
    const Figures figures = figures_of(program, result.timeline, costs);
    EXPECT_EQ(figures.makespan_ns, form.makespan_ns);
    std::int64_t longest = 0;
    for (const RankFigures& rank : figures.ranks) {
      longest = std::max(longest, rank.span_ns - rank.busy_ns);
    }
    const std::string name = GetParam().schedule;
    EXPECT_EQ(form.span_bubble_ns.has_value(), name == "zb-h2" || name == "zbv");
    if (form.span_bubble_ns) {
      EXPECT_EQ(longest, *form.span_bubble_ns);
    }
    for (std::size_t r = 0; r < figures.ranks.size(); ++r) {
      EXPECT_EQ(figures.makespan_ns - figures.ranks[r].busy_ns, form.bubble_ns);
      EXPECT_EQ(figures.ranks[r].peak_activations, form.peak_activations[r]) << "rank " << r;
    }
  }

  std::mt19937 random_{20240611};
};

TEST_P(ClosedFormProperty, IsTheSimulatorsAnswerWhereverItIsGiven) {
  const Case& given = GetParam();
  const auto& schedule = planner::find_schedule(given.schedule);
  int compared = 0;
  for (int k = 0; k < 3000; ++k) {
    const ScheduleRequest request{up_to(12), up_to(40), up_to(given.chunks), given.parameters};
    if (refusal_of(schedule, request)) continue;
    const StageCosts each = costs();
    SCOPED_TRACE(std::string(given.schedule) + " p " + std::to_string(request.ranks) + " m " +
                 std::to_string(request.micro_batches) + " v " + std::to_string(request.chunks) +
                 " F " + std::to_string(each.f.value) + " I " + std::to_string(each.i.value) +
                 " W " + std::to_string(each.w.value));
    const auto form = planner::closed_form(given.schedule, request, each);
    ASSERT_EQ(form.has_value(),
              given.promised(request.ranks, request.micro_batches, request.chunks, each));
    if (!form) continue;
    expect_equal(request, each, *form);
    if (HasFailure()) return;
    ++compared;
  }
  EXPECT_GT(compared, 40);
}

/// Peaks have a form also where the bubble has none.
TEST_P(ClosedFormProperty, PeaksHoldForAllSizes) {
  const Case& given = GetParam();
  for (int k = 0; k < 1000; ++k) {
    const ScheduleRequest request{up_to(12), up_to(40), up_to(given.chunks), given.parameters};
    const auto peaks = planner::closed_form_peaks(given.schedule, request);
    if (!peaks) continue;  // refused
    const Order order = planner::make_order(given.schedule, request);
    const Program program = lower(order, comm_policy_preset("ideal"));
    const auto ranks = peaks_of(program, CostTable::uniform(order.stages(), {}));
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      ASSERT_EQ(ranks[r].peak_activations, (*peaks)[r])
          << given.schedule << " p " << request.ranks << " m " << request.micro_batches << " v "
          << request.chunks << " rank " << r;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ClosedFormProperty, ::testing::ValuesIn(kCases),
                         [](const auto& given) {
                           std::string name = given.param.schedule;
                           for (char& letter : name) {
                             if (letter == '-') letter = '_';
                           }
                           return name + (given.param.parameters.empty() ? "" : "_fused");
                         });

TEST(ClosedFormPeaks, OfPaddlesZbh1) {
  for (int p = 1; p <= 8; ++p) {
    for (int m = p; m <= 3 * p; ++m) {
      const ScheduleRequest request{p, m, 1, {}};
      const auto peaks = planner::closed_form_peaks("paddle-zbh1", request);
      const Program program =
          lower(planner::make_order("paddle-zbh1", request), comm_policy_preset("ideal"));
      const auto ranks = peaks_of(program, CostTable::uniform(p, {}));
      ASSERT_TRUE(peaks);
      for (std::size_t r = 0; r < ranks.size(); ++r) {
        EXPECT_EQ(ranks[r].peak_activations, (*peaks)[r]);
      }
    }
  }
}

}  // namespace closed_form_test
}  // namespace pipewright
