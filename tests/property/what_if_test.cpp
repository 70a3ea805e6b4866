// What-ifs on random Programs: each is, to the nanosecond and instruction by instruction, what
// simulating a table gives whose costs were changed by hand; and those that are shown are the ones
// with the largest gain.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "core/costs/action_times.hpp"
#include "core/costs/time_rules.hpp"
#include "core/program/program.hpp"
#include "sim/engine.hpp"
#include "sim/what_if/what_if.hpp"
#include "tests/property/two_readings.hpp"
#include "traces/analysis/critical_path.hpp"

namespace pipewright::tests {
namespace what_if_test {

using sim::Becomes;
using sim::Change;
using sim::WhatOf;

/// An action and what it takes, as a row of --costs has it.
struct Row {
  RankId rank;
  Cell cell;
  std::int64_t ns = 0;

  bool is_pair() const { return cell.partner.has_value(); }
  ActionKind kind() const { return cell.action.kind; }
  int stage() const { return cell.action.stage.value; }
  int micro_batch() const { return cell.action.micro_batch.value; }
};

Cell unversioned(Cell cell) {
  cell.action.version = -1;
  if (cell.partner) cell.partner->version = -1;
  return cell;
}

/// Once for each action, whatever it is lowered to.
std::vector<Row> rows_of(const Program& program, const CostTable& costs) {
  std::vector<Row> rows;
  std::set<std::pair<int, std::string>> seen;
  const auto add = [&](RankId rank, const Cell& cell, Nanoseconds time) {
    if (seen.emplace(rank.value, to_string(cell)).second) rows.push_back({rank, cell, time.value});
  };
  for (InstructionId id = 0; id < program.code.size(); ++id) {
    const RankId rank = program.rank_of(id);
    const Cell cell = unversioned(program.cell(id));
    if (cell.action.kind == ActionKind::Opt) {
      add(rank, cell, costs.update_time(rank, program.placement.stages_of(rank)));
    } else if (is_compute(cell.action.kind) && !cell.partner) {
      add(rank, cell, costs.compute_time(cell.action));
    } else if (cell.partner) {
      const bool has_parts = !program.part_of.empty() && program.ends_parts(id);
      const auto own = own_pair_time(costs, cell.action, *cell.partner);
      if (own && !has_parts) {
        add(rank, cell, *own);
        continue;
      }
      for (const Action& action : {cell.action, *cell.partner})
        add(rank, {action, {}}, costs.compute_time(action));
    }
  }
  return rows;
}

std::int64_t times_factor(std::int64_t ns, std::int64_t millionths) {
  return std::llround(std::floor(static_cast<long double>(ns) * millionths / 1e6L + 0.5L));
}

bool is_of(const Change& change, const Row& row) {
  switch (change.of) {
    case WhatOf::Kind:
      return !row.is_pair() && row.kind() == change.kind;
    case WhatOf::Pairs:
      return row.is_pair();
    case WhatOf::Rank:
      return row.rank.value == change.number;
    case WhatOf::Stage:
      return !row.is_pair() && row.kind() != ActionKind::Opt && row.stage() == change.number;
    case WhatOf::MicroBatch:
      return !row.is_pair() && row.kind() != ActionKind::Opt && row.micro_batch() == change.number;
    case WhatOf::Action:
      return row.cell == change.action;
    default:
      return false;
  }
}

/// By looking at all others.
std::int64_t capped_at_median(const std::vector<Row>& rows, const Row& row) {
  std::vector<std::int64_t> same_stage, same_kind;
  for (const Row& other : rows) {
    if (other.rank == row.rank || other.is_pair() != row.is_pair()) continue;
    if (!row.is_pair() && other.kind() != row.kind()) continue;
    same_kind.push_back(other.ns);
    if (!row.is_pair() && row.kind() != ActionKind::Opt && other.stage() == row.stage())
      same_stage.push_back(other.ns);
  }
  std::vector<std::int64_t>& of = same_stage.empty() ? same_kind : same_stage;
  if (of.empty()) return row.ns;
  std::sort(of.begin(), of.end());
  return std::min(row.ns, of[(of.size() - 1) / 2]);
}

std::int64_t mean_of_alike(const std::vector<Row>& rows, const Row& row, WhatOf of) {
  const bool update = row.kind() == ActionKind::Opt;
  if (update && of == WhatOf::MicroBatches) return row.ns;
  std::int64_t sum = 0, count = 0;
  for (const Row& other : rows) {
    if (other.is_pair() != row.is_pair() || (!row.is_pair() && other.kind() != row.kind()))
      continue;
    const bool alike = of == WhatOf::Stages ? other.micro_batch() == row.micro_batch()
                                            : other.stage() == row.stage();
    if (!row.is_pair() && !update && !alike) continue;
    sum += other.ns;
    ++count;
  }
  return std::llround(std::floor(static_cast<long double>(sum) / count + 0.5L));
}

void change_by_hand(std::vector<Row>& rows, const Change& change) {
  const std::vector<Row> before = rows;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (change.becomes == Becomes::Mean) {
      rows[r].ns = mean_of_alike(before, before[r], change.of);
    } else if (is_of(change, before[r])) {
      rows[r].ns = change.becomes == Becomes::Median
                       ? capped_at_median(before, before[r])
                       : times_factor(before[r].ns, change.factor.millionths);
    }
  }
}

/// The costs as a user would write them down: --costs for the actions, the links of a plan.
CostTable table_of(const Program& program, CostTable costs, const std::vector<Row>& rows,
                   const std::vector<Change>& changes) {
  std::vector<ActionTime> times;
  for (const Row& row : rows)
    times.push_back({.rank = row.rank, .action = row.cell, .time = Nanoseconds(row.ns)});
  costs.actions = std::make_shared<ActionTimes>(
      std::move(times), ReplicaShape{1, program.ranks(), program.micro_batches});
  const int ranks = program.ranks();
  if (costs.route_of_edge.empty())
    costs.route_of_edge.assign(static_cast<std::size_t>(ranks) * ranks, costs.every_route);
  for (int from = 0; from < ranks; ++from) {
    for (int to = 0; to < ranks; ++to) {
      std::int64_t millionths = 1'000'000;  // of all changes together
      for (const Change& change : changes) {
        const bool link = change.of == WhatOf::Link && from == change.number && to == change.to;
        if (link || change.of == WhatOf::Messages)
          millionths = times_factor(millionths, change.factor.millionths);
      }
      RouteCosts& way = costs.route_of_edge[static_cast<std::size_t>(from * ranks + to)];
      way.latency = Nanoseconds(times_factor(way.latency.value, millionths));
      way.bytes_per_second =
          millionths > 0 ? way.bytes_per_second / (static_cast<double>(millionths) / 1e6) : 0;
    }
  }
  return costs;
}

struct Simulated {
  Case c;
  Program program;
  CostTable costs;
  Timeline timeline;
};

/// In which nothing but data and order holds anything back.
reference::Policy papers_model() {
  using Credit = reference::Protocol::Credit;
  return {.channel = reference::Channel::Tag,
          .post = reference::Post::AtStart,
          .forward = {Credit::Unlimited, 0},
          .backward = {Credit::Unlimited, 0}};
}

template <class Visit>
void for_finished_cases(std::uint64_t seed, int count, Visit visit) {
  reference::Dice dice(seed);
  for (int i = 0; i < count; ++i) {
    Case c;
    c.order = reference::random_order(dice, {}).order;
    c.policy = dice.chance(20) ? papers_model() : reference::random_policy(dice);
    c.costs = reference::random_costs(dice, c.order);
    add_parts_to_some(reference::Dice(seed + static_cast<std::uint64_t>(i)), c);
    drop_idle_parts(c);
    if (reference::parse_order(reference::to_csv(c.order)).empty() || contradicts_itself(c.order) ||
        loses_a_rank(c))
      continue;
    Simulated s{c, program_of(c), costs_of(c), {}};
    sim::Result result = sim::simulate(s.program, s.costs);
    if (!result.finished || result.timeline.makespan_ns == 0) continue;
    s.timeline = std::move(result.timeline);
    visit(s, dice);
  }
}

Change random_change(const sim::TimedProgram& timed, reference::Dice& dice) {
  const auto& actions = timed.actions();
  constexpr ActionKind kKinds[] = {ActionKind::F, ActionKind::I, ActionKind::W, ActionKind::B,
                                   ActionKind::Opt};
  Change change;
  change.of = static_cast<WhatOf>(dice.below(static_cast<int>(WhatOf::MicroBatches) + 1));
  change.factor = {dice.chance(20) ? 0 : dice.between(1, 40) * 50'000};
  change.kind = kKinds[dice.below(5)];
  change.number = dice.below(timed.program().ranks());
  change.to = dice.below(timed.program().ranks());
  if (change.of == WhatOf::Action && !actions.empty())
    change.action = unversioned(
        actions[static_cast<std::size_t>(dice.below(static_cast<int>(actions.size())))].cell);
  if (change.of == WhatOf::Rank && dice.chance(40)) change.becomes = Becomes::Median;
  if (change.of >= WhatOf::Stages) change.becomes = Becomes::Mean;
  return change;
}

/// One to three changes that say something about the Program; collectives are looked at elsewhere.
std::vector<Change> random_changes(const sim::TimedProgram& timed, reference::Dice& dice) {
  std::vector<Change> changes;
  for (int tries = 0; tries < 12 && changes.size() < 3; ++tries) {
    const Change change = random_change(timed, dice);
    if (change.of != WhatOf::Collectives && timed.fault_of(change).empty())
      changes.push_back(change);
    if (!changes.empty() && dice.chance(50)) break;
  }
  return changes;
}

TEST(WhatIfsOfRandomPrograms, AreSimulationsOfCostsThatWereChangedByHand) {
  std::map<WhatOf, int> tried;
  int gains = 0;
  for_finished_cases(21, 3000, [&](const Simulated& s, reference::Dice& dice) {
    const sim::TimedProgram timed(s.program, s.costs);
    const std::vector<Change> changes = random_changes(timed, dice);
    std::vector<Row> rows = rows_of(s.program, s.costs);
    sim::Times times = timed.times();
    for (const Change& change : changes) {
      change_by_hand(rows, change);
      timed.apply(change, times);
      ++tried[change.of];
    }
    // A ring of replicas goes over the same links, and keeps its time.
    std::vector<std::int64_t> rings;
    for (const Collective& each : s.program.collectives)
      rings.push_back(s.costs.collective_time(each, s.program.ranks()).value);
    const CostTable table = table_of(s.program, s.costs, rows, changes);
    const sim::Result by_hand = sim::simulate(s.program, table, {.collective_ns = rings});
    const sim::Result found = timed.simulate(times);
    const std::string what = to_string(changes) + "\n" + shown(s.c);
    EXPECT_EQ(found.finished, by_hand.finished) << what;
    EXPECT_EQ(found.timeline.end, by_hand.timeline.end) << what;
    EXPECT_EQ(found.timeline.start, by_hand.timeline.start) << what;
    EXPECT_EQ(found.timeline.makespan_ns, by_hand.timeline.makespan_ns) << what;
    gains += found.timeline.makespan_ns != s.timeline.makespan_ns ? 1 : 0;
  });
  for (int of = 0; of <= static_cast<int>(WhatOf::MicroBatches); ++of) {
    if (static_cast<WhatOf>(of) == WhatOf::Collectives) continue;
    EXPECT_GT(tried[static_cast<WhatOf>(of)], 5) << of;
  }
  EXPECT_GT(gains, 300);
}

TEST(WhatIfsOfRandomPrograms, CollectivesTakeTheirFactor) {
  int cases = 0;
  for_finished_cases(22, 3000, [&](const Simulated& s, reference::Dice& dice) {
    if (s.program.collectives.empty()) return;
    ++cases;
    const Change change{.of = WhatOf::Collectives, .factor = {dice.below(21) * 100'000}};
    std::vector<std::int64_t> by_hand;
    for (const Collective& each : s.program.collectives)
      by_hand.push_back(times_factor(s.costs.collective_time(each, s.program.ranks()).value,
                                     change.factor.millionths));
    const sim::TimedProgram timed(s.program, s.costs);
    EXPECT_EQ(what_if(timed, s.timeline, {change}).makespan_ns,
              sim::simulate(s.program, s.costs, {.collective_ns = by_hand}).timeline.makespan_ns)
        << to_string(change) << "\n"
        << shown(s.c);
  });
  EXPECT_GT(cases, 30);
}

TEST(WhatIfsOfRandomPrograms, WithoutAChangeTheStepIsAsItIs) {
  for_finished_cases(23, 600, [&](const Simulated& s, reference::Dice&) {
    const sim::TimedProgram timed(s.program, s.costs);
    const sim::Result again = timed.simulate(timed.times());
    EXPECT_EQ(again.timeline.end, s.timeline.end) << shown(s.c);
    EXPECT_EQ(again.timeline.start, s.timeline.start) << shown(s.c);
    EXPECT_EQ(again.timeline.moving, s.timeline.moving) << shown(s.c);
  });
}

TEST(WhatIfsOfRandomPrograms, ThoseThatAreShownGainMost) {
  int cases = 0;
  for_finished_cases(24, 2500, [&](const Simulated& s, reference::Dice&) {
    const sim::TimedProgram timed(s.program, s.costs);
    const std::vector<sim::WhatIf> shown_ones = sim::what_ifs(timed, s.timeline);
    std::int64_t most = std::numeric_limits<std::int64_t>::max(), most_of_ranks = 0;
    for (const sim::WhatIf& one : shown_ones) {
      EXPECT_LE(one.gain_ns, most) << "by gain";
      most = one.gain_ns;
      ASSERT_EQ(one.changes.size(), 1U);
      // Each can be asked for by its name.
      const auto asked = sim::parse_changes(to_string(one.changes), "a test");
      EXPECT_EQ(asked, one.changes);
      EXPECT_EQ(sim::what_if(timed, s.timeline, asked).makespan_ns, one.makespan_ns);
      const Change& change = one.changes.front();
      if (change.of == WhatOf::Rank && change.becomes == Becomes::Scaled)
        most_of_ranks = std::max(most_of_ranks, one.gain_ns);
    }
    if (!s.program.policy.is_free_of_waits()) return;
    ++cases;
    for (int rank = 0; rank < s.program.ranks(); ++rank) {
      const Change change{.of = WhatOf::Rank, .factor = {900'000}, .number = rank};
      if (!timed.fault_of(change).empty()) continue;
      EXPECT_LE(sim::what_if(timed, s.timeline, {change}).gain_ns, most_of_ranks) << shown(s.c);
    }
  });
  EXPECT_GT(cases, 40);
}

}  // namespace what_if_test
}  // namespace pipewright::tests
