// What holds for the trace of every Program, tried on random ones: bubbles add up to the
// nanosecond, the file obeys the viewers' rules, and it is read back as it was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "sim/engine.hpp"
#include "tests/property/two_readings.hpp"
#include "tests/reference/random_order.hpp"
#include "tests/support/trace_rules.hpp"
#include "traces/analysis/bubbles.hpp"
#include "traces/analysis/compare.hpp"
#include "traces/analysis/root_causes.hpp"
#include "traces/chrome/read_trace.hpp"
#include "traces/chrome/trace.hpp"
#include "traces/pictures/terminal.hpp"

namespace pipewright::tests {
namespace traces_random_test {

struct Simulated {
  Case c;
  Program program;
  CostTable costs;
  sim::Result result;
};

/// Random cases, whole and broken, that finish and that get stuck.
template <class Visit>
int for_random_cases(std::uint64_t seed, int count, Visit visit) {
  reference::Dice dice(seed);
  int stuck = 0;
  for (int i = 0; i < count; ++i) {
    Case c;
    c.order = reference::random_order(dice, {}).order;
    c.policy = reference::random_policy(dice);
    c.costs = reference::random_costs(dice, c.order);
    c.fragment = dice.chance(30);
    if (reference::parse_order(reference::to_csv(c.order)).empty()) continue;
    if (c.fragment && contradicts_itself(c.order)) continue;
    Simulated s{c, program_of(c), costs_of(c), {}};
    s.result = sim::simulate(s.program, s.costs);
    if (!s.result.finished) ++stuck;
    visit(s);
  }
  return stuck;
}

std::int64_t not_busy(const Simulated& s) {
  const Figures figures = figures_of(s.program, s.result.timeline, s.costs);
  std::int64_t rest = figures.makespan_ns * s.program.ranks();
  for (const RankFigures& rank : figures.ranks) rest -= rank.busy_ns;
  return rest;
}

TEST(TracesOfRandomPrograms, BubblesAddUpAndDoNotOverlap) {
  const int stuck = for_random_cases(1, 4000, [](const Simulated& s) {
    const traces::BubbleReport report = traces::explain_bubbles(s.program, s.result.timeline);
    EXPECT_EQ(report.total.sum(), not_busy(s)) << shown(s.c);
    std::int64_t listed = 0;
    for (std::size_t i = 0; i < report.bubbles.size(); ++i) {
      const traces::Bubble& b = report.bubbles[i];
      EXPECT_LT(b.start_ns, b.end_ns);
      listed += b.end_ns - b.start_ns;
      if (i == 0 || report.bubbles[i - 1].rank != b.rank) continue;
      EXPECT_LE(report.bubbles[i - 1].end_ns, b.start_ns) << shown(s.c);
    }
    EXPECT_EQ(listed, report.total.sum());
    // In a simulation everything that waits waits for something.
    EXPECT_EQ(report.total.of(traces::BubbleCause::Overhead), 0) << shown(s.c);
    if (s.result.finished) {
      EXPECT_EQ(report.total.of(traces::BubbleCause::Stuck), 0);
    }
  });
  EXPECT_GT(stuck, 100) << "the cases are too tame";
}

TEST(TracesOfRandomPrograms, RootsDivideTheBubbles) {
  std::int64_t upstream = 0, queued = 0;
  for_random_cases(5, 4000, [&](const Simulated& s) {
    const traces::BubbleReport bubbles = traces::explain_bubbles(s.program, s.result.timeline);
    const traces::RootReport report =
        traces::root_causes(s.program, s.result.timeline, s.costs, bubbles);
    std::vector<traces::BubbleTotals> of_ranks(bubbles.ranks.size());
    for (std::size_t i = 0; i < report.spans.size(); ++i) {
      const traces::RootSpan& span = report.spans[i];
      EXPECT_LT(span.start_ns, span.end_ns);
      of_ranks[static_cast<std::size_t>(span.rank.value)]
          .ns[static_cast<std::size_t>(span.bubble)] += span.end_ns - span.start_ns;
      if (i == 0 || report.spans[i - 1].rank != span.rank) continue;
      EXPECT_LE(report.spans[i - 1].end_ns, span.start_ns) << shown(s.c);
    }
    for (std::size_t r = 0; r < of_ranks.size(); ++r)
      EXPECT_EQ(of_ranks[r].ns, bubbles.ranks[r].ns) << shown(s.c);
    // In a simulation everything has a reason.
    EXPECT_EQ(report.total.of(traces::RootCause::Unexplained), 0) << shown(s.c);
    EXPECT_EQ(report.total.of(traces::RootCause::Host), 0);
    upstream += report.total.of(traces::RootCause::Upstream);
    queued += report.total.of(traces::RootCause::Queue);
  });
  EXPECT_GT(upstream, 0);
  EXPECT_GT(queued, 0);
}

TEST(TracesOfRandomPrograms, FilesObeyTheRulesAndComeBackAsTheyWere) {
  for_random_cases(2, 600, [](const Simulated& s) {
    const std::string text =
        traces::chrome_trace(s.program, s.result.timeline, s.costs, {.title = "random"});
    EXPECT_THAT(test::trace_facts(text).problems, ::testing::IsEmpty()) << shown(s.c);
    const traces::TraceTimeline direct = traces::trace_timeline(s.program, s.result.timeline);
    std::size_t spans = 0;
    for (const traces::TraceRank& rank : direct.ranks) spans += rank.spans.size();
    if (spans == 0) return;  // nothing to read
    const traces::TraceTimeline back = traces::parse_trace(text, "random.json");
    std::size_t read = 0;
    for (const traces::TraceRank& rank : back.ranks) read += rank.spans.size();
    EXPECT_EQ(read, spans) << shown(s.c);
    const traces::Comparison c = traces::compare(direct, back);
    EXPECT_EQ(c.step.error_ns(), 0) << shown(s.c);
    EXPECT_EQ(c.only_predicted + c.only_measured, 0) << shown(s.c);
    EXPECT_EQ(c.mean_absolute_error_ns, 0) << shown(s.c);
    EXPECT_FALSE(traces::terminal_timeline(back).empty());
  });
}

}  // namespace traces_random_test
}  // namespace pipewright::tests
