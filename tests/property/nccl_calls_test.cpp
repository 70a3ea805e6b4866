// The NCCL calls of a Program, read back, get stuck exactly where the Program does: for every
// schedule under every policy that NCCL can give, and for random orders. And one GPU's issue order
// exists exactly where check says ok.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/base/error.hpp"
#include "core/order/devices.hpp"
#include "core/program/lower.hpp"
#include "exec/devices/cuda/issue_order.hpp"
#include "exec/transports/nccl/calls.hpp"
#include "exec/transports/nccl/policy_support.hpp"
#include "exec/transports/nccl/read_back.hpp"
#include "planner/schedules/registry.hpp"
#include "sim/engine.hpp"
#include "tests/support/nccl_policies.hpp"
#include "tests/support/random_program.hpp"

namespace pipewright::tests {
namespace nccl_calls_test {

using exec::nccl::calls_of;
using exec::nccl::read_back;
using exec::nccl::ReadBack;
using exec::nccl::refusals_of;
using exec::nccl::StepCalls;

std::string all_of(const std::vector<std::string>& sentences) {
  std::string text;
  for (const std::string& one : sentences) text += one + "\n";
  return text;
}

Verdict expect_same_verdict(const Program& program, const CostTable& costs) {
  const StepCalls step = calls_of(program, costs);
  const ReadBack read = read_back(step, program.fragment);
  const WaitReport of_program = sim::check(program, costs);
  const WaitReport of_calls = sim::check(read.program, costs);
  EXPECT_EQ(to_string(of_calls.verdict), to_string(of_program.verdict));
  EXPECT_EQ(read.program.code.size(), program.code.size());
  if (of_program.verdict == Verdict::Ok) {
    EXPECT_TRUE(read.problems.empty()) << all_of(read.problems);
    for (const auto& rank : step.ranks) EXPECT_TRUE(rank.problems.empty()) << all_of(rank.problems);
  }
  return of_program.verdict;
}

/// Each lane's instructions in their order, each wait before who waits, and nothing left out.
void expect_in_order(const Program& program, const exec::cuda::IssueOrder& issued) {
  const LaneTable lanes = lane_table(program);
  std::vector<std::size_t> next(lanes.count(), 0);
  std::vector<bool> done(program.code.size(), false);
  for (std::size_t place = 0; place < issued.order.size(); ++place) {
    const InstructionId id = issued.order[place];
    const std::uint32_t lane = lanes.lane_of[id];
    ASSERT_EQ(lanes.instructions_of(lane)[next[lane]++], id) << program.text(id);
    for (const InstructionId wait : issued.waits_of(place)) {
      ASSERT_TRUE(done[wait]) << program.text(id) << " before " << program.text(wait);
      ASSERT_NE(lanes.lane_of[wait], lane);
    }
    const Instruction& in = program.code[id];
    if (is_recv(in.kind)) {
      const auto waits = issued.waits_of(place);
      ASSERT_NE(std::find(waits.begin(), waits.end(), in.link), waits.end()) << program.text(id);
    }
    done[id] = true;
  }
}

Verdict expect_issue_order_iff_ok(const Program& program, const CostTable& costs) {
  const exec::cuda::IssueOrder issued = exec::cuda::issue_order_of(program, costs);
  const WaitReport checked = sim::check(program, costs);
  EXPECT_EQ(text_of(program, issued.stuck), text_of(program, checked));
  EXPECT_EQ(issued.is_whole(), checked.verdict == Verdict::Ok);
  if (issued.is_whole()) {
    EXPECT_EQ(issued.order.size(), program.code.size());
  }
  expect_in_order(program, issued);
  return checked.verdict;
}

class NcclSchedule : public testing::TestWithParam<const planner::Schedule*> {};

TEST_P(NcclSchedule, TheCallsGetStuckWhereTheProgramDoesUnderEveryPolicy) {
  const planner::Schedule& schedule = *GetParam();
  int asked = 0;
  for (const int ranks : {2, 3, 4, 8}) {
    for (const int m : {ranks, 2 * ranks, 3 * ranks}) {
      const planner::ScheduleRequest request{ranks, m, schedule.default_chunks, {}};
      if (refusal_of(schedule, request) || m > 16) continue;
      const Order order = planner::make_order(schedule.name, request);
      for (const CommPolicy& policy : test::nccl_policies()) {
        SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(m) + " micro-batches, " +
                     std::string(to_string(policy.issue)) + " " +
                     std::string(to_string(policy.channel)) + " " +
                     std::string(to_string(policy.post)) + " " +
                     std::string(to_string(policy.connect)) + " in_flight " +
                     std::to_string(policy.in_flight));
        const Program program = lower(order, policy, {.optimizer = true});
        ASSERT_TRUE(refusals_of(program).empty()) << refusals_of(program).front();
        const CostTable costs = CostTable::uniform(program.stages, {});
        expect_same_verdict(program, costs);
        if (policy.connect == Connect::Ready) expect_issue_order_iff_ok(program, costs);
        if (HasFailure()) return;
        ++asked;
      }
    }
  }
  EXPECT_GE(asked, 26);
}

/// Two tensors that go over one edge, exchanged on their way out: on any rank, at any place.
TEST_P(NcclSchedule, TwoSendsExchangedOnOneRankAreCaught) {
  const planner::Schedule& schedule = *GetParam();
  const planner::ScheduleRequest request{4, 8, schedule.default_chunks, {}};
  if (refusal_of(schedule, request)) GTEST_SKIP() << "not made for 4 ranks and 8 micro-batches";
  const Program program = lower(planner::make_order(schedule.name, request), {});
  const CostTable costs = CostTable::uniform(program.stages, {});
  StepCalls step = calls_of(program, costs);
  int exchanged = 0;
  for (auto& rank : step.ranks) {
    for (std::size_t i = 0; i < rank.calls.size(); ++i) {
      for (std::size_t k = i + 1; k < rank.calls.size(); ++k) {
        auto &a = rank.calls[i], &b = rank.calls[k];
        if (a.kind != exec::nccl::CallKind::Send || b.kind != a.kind) continue;
        if (a.communicator != b.communicator) continue;
        std::swap(a.cell, b.cell);
        const ReadBack read = read_back(step);
        EXPECT_TRUE(!read.problems.empty() ||
                    sim::check(read.program, costs).verdict == Verdict::Mismatch)
            << program.text(a.instruction) << " " << program.text(b.instruction);
        std::swap(a.cell, b.cell);
        ++exchanged;
        break;
      }
    }
  }
  EXPECT_GE(exchanged, 8);
}

std::vector<const planner::Schedule*> all_schedules() {
  std::vector<const planner::Schedule*> all;
  for (const planner::Schedule& schedule : planner::schedules()) {
    if (!schedule.traits.searched) all.push_back(&schedule);
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Registry, NcclSchedule, testing::ValuesIn(all_schedules()),
                         [](const auto& one) {
                           std::string name(one.param->name);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

/// The policy as it is, where NCCL can give it; else the nearest that it can.
CommPolicy for_nccl(CommPolicy policy) {
  policy.send_f = policy.send_b = {};
  if (policy.issue == Issue::Stream && policy.channel == Channel::Tag)
    policy.channel = Channel::Edge;
  return policy;
}

TEST(NcclCalls, OfRandomOrdersGetStuckWhereTheProgramDoes) {
  int ok = 0, stuck = 0, refused = 0;
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    const Case c = random_case(seed);
    if (!is_usable(c)) continue;
    const Program raw = program_of(c);
    const Program program = lower(order_of(c), for_nccl(raw.policy), {.fragment = c.fragment});
    if (!refusals_of(program).empty()) {
      EXPECT_THROW(calls_of(program, costs_of(c)), InputError);
      ++refused;
      continue;
    }
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + shown(c));
    ++(expect_same_verdict(program, costs_of(c)) == Verdict::Ok ? ok : stuck);
    if (HasFailure()) return;
  }
  EXPECT_GT(ok, 300);
  EXPECT_GT(stuck, 300);
  EXPECT_LT(refused, 300);
}

/// The same with collectives of groups between the cells. Those of which NCCL has no call are
/// refused. Where a Program is stuck twice over, the calls, which come later than a list that sends
/// before it computes, may show the other reason.
TEST(NcclCalls, OfRandomOrdersWithGroupsEndWhereTheProgramDoes) {
  int ok = 0, stuck = 0;
  for (std::uint64_t seed = 1; seed <= 6000; ++seed) {
    Case c = random_case(seed);
    add_calls_to_some(reference::Dice(seed), c);
    if (!is_usable(c)) continue;
    const CommPolicy policy = for_nccl(program_of(c).policy);
    const Program program = lower(order_of(c), policy, {.fragment = c.fragment});
    const bool has_groups = std::ranges::any_of(
        program.collectives, [](const Collective& one) { return is_group_collective(one.kind); });
    if (!has_groups || !refusals_of(program).empty()) continue;
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + shown(c));
    const CostTable costs = costs_of(c);
    const ReadBack read = read_back(calls_of(program, costs), program.fragment);
    const bool ends = sim::check(program, costs).verdict == Verdict::Ok;
    EXPECT_EQ(sim::check(read.program, costs).verdict == Verdict::Ok, ends);
    EXPECT_EQ(read.program.code.size(), program.code.size());
    EXPECT_TRUE(!ends || read.problems.empty()) << all_of(read.problems);
    ++(ends ? ok : stuck);
    if (HasFailure()) return;
  }
  EXPECT_GT(ok, 100);
  EXPECT_GT(stuck, 100);
}

/// Every action of two devices a rank computes in three parts with sums between them, of which one
/// goes on beside the next.
TEST_P(NcclSchedule, PartsOfActionsGetStuckWhereTheProgramDoes) {
  const planner::Schedule& schedule = *GetParam();
  const planner::ScheduleRequest request{2, 4, schedule.default_chunks, {}};
  if (refusal_of(schedule, request)) GTEST_SKIP() << "not made for 2 ranks and 4 micro-batches";
  Order order = planner::make_order(schedule.name, request);
  const Part computes{.call = {.kind = ActionKind::Part, .data = "mlp"}, .weight = 3};
  const auto sum = [](ActionKind kind, const char* data) {
    return Part{.call = {.kind = kind, .group = "tp", .data = data}};
  };
  Part beside = sum(ActionKind::AllGather, "b");
  beside.beside = true;
  for (int stage = 0; stage < order.stages(); ++stage) {
    for (const ActionKind kind : {ActionKind::F, ActionKind::I, ActionKind::W, ActionKind::B})
      order.parts.push_back({StageId(stage),
                             kind,
                             {computes, sum(ActionKind::AllReduce, "a"), computes, beside, computes,
                              sum(ActionKind::ReduceScatter, "c")}});
  }
  order.mesh = {{"tp", 2}};
  order = written_out(order);
  int asked = 0;
  for (CommPolicy policy : test::nccl_policies()) {
    for (const int queues : {0, 1, 2}) {
      policy.device_queues = queues;
      SCOPED_TRACE(std::string(to_string(policy.issue)) + " " +
                   std::string(to_string(policy.channel)) + " " +
                   std::string(to_string(policy.post)) + " in_flight " +
                   std::to_string(policy.in_flight) + " queues " + std::to_string(queues));
      const Program program = lower(order, policy, {.optimizer = true});
      if (!refusals_of(program).empty()) continue;
      expect_same_verdict(program, CostTable::uniform(program.stages, {}));
      if (HasFailure()) return;
      ++asked;
    }
  }
  EXPECT_GE(asked, 78);
}

TEST(IssueOrder, OfRandomProgramsExistsExactlyWhereCheckSaysOk) {
  int ok = 0, stuck = 0;
  for (std::uint64_t seed = 1; seed <= 2500; ++seed) {
    const Case c = random_case(seed);
    if (!is_usable(c)) continue;
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + shown(c));
    ++(expect_issue_order_iff_ok(program_of(c), costs_of(c)) == Verdict::Ok ? ok : stuck);
    if (HasFailure()) return;
  }
  EXPECT_GT(ok, 300);
  EXPECT_GT(stuck, 300);
}

}  // namespace nccl_calls_test
}  // namespace pipewright::tests
