// The critical path of every Program, on random ones: it covers the step, it is a longest path by
// Boost.Graph through all that the page of semantics lets an instruction wait for, and an action on
// it that takes longer makes the step longer. And what is held over time has the peaks of the
// figures.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/dag_shortest_paths.hpp>
#include <vector>

#include "core/program/start_rules.hpp"
#include "sim/engine.hpp"
#include "tests/property/two_readings.hpp"
#include "traces/analysis/critical_path.hpp"
#include "traces/analysis/memory_profile.hpp"

namespace pipewright::tests {
namespace critical_path_test {

using traces::PathKind;
using traces::PathStep;

struct Simulated {
  Case c;
  Program program;
  CostTable costs;
  sim::Result result;

  std::int64_t makespan() const { return result.timeline.makespan_ns; }
};

template <class Visit>
void for_finished_cases(std::uint64_t seed, int count, Visit visit) {
  reference::Dice dice(seed);
  for (int i = 0; i < count; ++i) {
    Case c;
    c.order = reference::random_order(dice, {}).order;
    c.policy = reference::random_policy(dice);
    c.costs = reference::random_costs(dice, c.order);
    if (reference::parse_order(reference::to_csv(c.order)).empty()) continue;
    Simulated s{c, program_of(c), costs_of(c), {}};
    s.result = sim::simulate(s.program, s.costs);
    if (s.result.finished && s.makespan() > 0) visit(s);
  }
}

/// Whether nothing waits for credit, connections, places or others on a link: then what an
/// instruction waits for is known before times are.
bool has_fixed_reasons(const Simulated& s) {
  const auto is_fixed = [](const Protocol& protocol) {
    return protocol.kind == Protocol::Kind::Rendezvous ||
           protocol.kind == Protocol::Kind::EagerUnlimited;
  };
  const CommPolicy& policy = s.program.policy;
  const bool shared = std::any_of(s.costs.links.begin(), s.costs.links.end(),
                                  [](const Link& link) { return link.sharing != Sharing::None; });
  return is_fixed(policy.send_f) && is_fixed(policy.send_b) && policy.connect == Connect::Ready &&
         policy.in_flight == 0 && policy.batches == Batches::Apart && !shared;
}

/// The events of a Program as a graph: of each instruction that it stands ready, that its data
/// moves, that it has ended.
class Events {
 public:
  explicit Events(const Simulated& s)
      : s_(s), n_(s.program.code.size()), graph_(3 * n_ + 1), lanes_(lane_table(s.program)) {
    for (std::uint32_t lane = 0; lane < lanes_.count(); ++lane) {
      InstructionId before = kNoInstruction;
      for (const InstructionId id : lanes_.instructions_of(lane)) {
        if (before != kNoInstruction) edge(ended(before), ready(id), 0);
        before = id;
      }
    }
    for (InstructionId id = 0; id < n_; ++id) {
      edge(start(), ready(id), 0);
      add(id);
    }
  }

  /// The length of a longest path from the start to any event.
  std::int64_t longest() const {
    std::vector<std::int64_t> to(3 * n_ + 1);
    boost::dag_shortest_paths(graph_, start(),
                              boost::distance_map(boost::make_iterator_property_map(
                                  to.begin(), boost::get(boost::vertex_index, graph_))));
    std::int64_t most = 0;
    for (const std::int64_t distance : to) most = std::max(most, -distance);
    return most;
  }

 private:
  using Graph =
      boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, boost::no_property,
                            boost::property<boost::edge_weight_t, std::int64_t>>;

  std::size_t ready(InstructionId id) const { return 3 * id; }
  std::size_t moving(InstructionId id) const { return 3 * id + 1; }
  std::size_t ended(InstructionId id) const { return 3 * id + 2; }
  std::size_t start() const { return 3 * n_; }
  /// Longest paths are shortest ones of negative lengths.
  void edge(std::size_t from, std::size_t to, std::int64_t ns) {
    boost::add_edge(from, to, -ns, graph_);
  }

  void add(InstructionId id) {
    const Program& program = s_.program;
    const Instruction& in = program.code[id];
    const std::int64_t ns =
        s_.result.timeline.end[id] - std::max(s_.result.timeline.moving[id], std::int64_t{0});
    const InstructionId first =
        program.rank_begin[static_cast<std::size_t>(lanes_.rank_of_lane[lanes_.lane_of[id]].value)];
    if (!in.has(Instruction::kOnComputeLane) && !in.has(Instruction::kAtStart)) {
      for (InstructionId before = id; before-- > first;) {
        if (program.code[before].has(Instruction::kOnComputeLane)) {
          edge(ended(before), ready(id), 0);
          break;
        }
      }
    }
    for_each_input(program, id, first, [&](InstructionId input) {
      edge(ended(input), ready(id), 0);
      return true;
    });
    if (in.in_collective()) {
      for (const auto& member : program.collectives[in.route].members)
        edge(ready(member.instruction), moving(id), 0);
      return edge(moving(id), ended(id), ns);
    }
    if (!is_transfer(in.kind)) return edge(ready(id), ended(id), ns);
    if (is_recv(in.kind)) return edge(ready(id), ended(id), 0);
    const Protocol& protocol =
        in.kind == ActionKind::SendB ? program.policy.send_b : program.policy.send_f;
    const bool eager =
        protocol.kind == Protocol::Kind::EagerUnlimited && !in.has(Instruction::kRendezvous);
    edge(ready(id), moving(id), 0);
    const std::int64_t message =
        in.link == kNoInstruction
            ? ns
            : std::max<std::int64_t>(
                  0, s_.result.timeline.end[in.link] - s_.result.timeline.moving[in.link]);
    edge(moving(id), ended(id), eager ? 0 : message);
    if (in.link == kNoInstruction) return;
    if (!eager) edge(ready(in.link), moving(id), 0);
    // What was received after it had come tells nothing about the message: it was there.
    const bool was_there = s_.result.timeline.end[in.link] == s_.result.timeline.start[in.link];
    edge(moving(id), ended(in.link), eager && was_there ? 0 : message);
  }

  const Simulated& s_;
  const std::size_t n_;
  Graph graph_;
  const LaneTable lanes_;
};

std::int64_t length_of(const std::vector<PathStep>& path, bool waits) {
  std::int64_t sum = 0;
  for (const PathStep& step : path) {
    if ((step.kind == PathKind::Wait) == waits) sum += step.end_ns - step.start_ns;
  }
  return sum;
}

TEST(CriticalPathOfRandomPrograms, CoversTheStepWithoutAGap) {
  int cases = 0;
  for_finished_cases(11, 1500, [&](const Simulated& s) {
    ++cases;
    std::int64_t cursor = 0;
    for (const PathStep& step : traces::critical_path(s.program, s.result.timeline)) {
      EXPECT_EQ(step.start_ns, cursor) << shown(s.c);
      EXPECT_GT(step.end_ns, step.start_ns) << shown(s.c);
      cursor = step.end_ns;
    }
    EXPECT_EQ(cursor, s.makespan()) << shown(s.c);
  });
  EXPECT_GT(cases, 250);
}

TEST(CriticalPathOfRandomPrograms, IsALongestPath) {
  int cases = 0;
  for_finished_cases(12, 3000, [&](const Simulated& s) {
    if (!has_fixed_reasons(s)) return;
    ++cases;
    const auto path = traces::critical_path(s.program, s.result.timeline);
    EXPECT_EQ(length_of(path, true), 0) << shown(s.c);
    EXPECT_EQ(length_of(path, false), Events(s).longest()) << shown(s.c);
  });
  EXPECT_GT(cases, 150);
}

TEST(CriticalPathOfRandomPrograms, ALongerActionOnItMakesALongerStep) {
  constexpr std::int64_t kMore = 1000;
  int actions = 0;
  for_finished_cases(13, 500, [&](const Simulated& s) {
    if (!has_fixed_reasons(s)) return;
    std::vector<std::int64_t> durations;
    for (InstructionId id = 0; id < s.program.code.size(); ++id)
      durations.push_back(s.result.timeline.end[id] - s.result.timeline.start[id]);
    for (const PathStep& step : traces::critical_path(s.program, s.result.timeline)) {
      if (step.kind != PathKind::Compute) continue;
      ++actions;
      durations[step.instruction] += kMore;
      const auto slower = sim::simulate(s.program, s.costs, {.compute_ns = durations});
      durations[step.instruction] -= kMore;
      EXPECT_EQ(slower.timeline.makespan_ns, s.makespan() + kMore)
          << s.program.text(step.instruction) << "\n"
          << shown(s.c);
    }
  });
  EXPECT_GT(actions, 300);
}

TEST(MemoryOfRandomPrograms, ReachesThePeaksOfTheFigures) {
  for_finished_cases(14, 1000, [&](Simulated s) {
    reference::Dice dice(s.program.code.size());
    const auto bytes = [&](int least, int most) { return Bytes(dice.between(least, most)); };
    for (int stage = 0; stage < s.program.stages; ++stage) {
      s.costs.memory.push_back({.f = bytes(1, 9),
                                .i = bytes(-3, 3),
                                .w = bytes(-9, 0),
                                .constant = bytes(0, 50),
                                .in_f = bytes(0, 20),
                                .in_i = bytes(0, 20),
                                .in_w = bytes(0, 20),
                                .in_b = bytes(0, 20),
                                .version = bytes(0, 5),
                                .whole_gradients = bytes(0, 9),
                                .whole_weights = bytes(0, 9),
                                .copied_gradients = bytes(0, 9),
                                .copied_weights = bytes(0, 9)});
    }
    const Figures figures = figures_of(s.program, s.result.timeline, s.costs);
    const auto profiles = traces::memory_profiles(s.program, s.result.timeline, s.costs);
    ASSERT_EQ(profiles.size(), figures.ranks.size());
    for (std::size_t r = 0; r < profiles.size(); ++r) {
      std::int64_t most = 0;
      int activations = 0;
      std::int64_t before = -1;
      for (const traces::HeldStep& step : profiles[r].steps) {
        most = std::max(most, step.bytes);
        activations = std::max(activations, step.activations);
        EXPECT_GE(step.at_ns, before);
        before = step.at_ns;
      }
      EXPECT_EQ(most, figures.ranks[r].peak_bytes) << shown(s.c);
      EXPECT_EQ(activations, figures.ranks[r].peak_activations) << shown(s.c);
      EXPECT_EQ(profiles[r].peak.bytes, figures.ranks[r].peak_bytes) << shown(s.c);
    }
  });
}

}  // namespace critical_path_test
}  // namespace pipewright::tests
