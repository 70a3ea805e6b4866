// What run --dry-run prints of NCCL is what a run calls: on the host's tables, in which each rank
// notes its calls, the same calls of each communicator in the same order, and of those that are of
// replicas and of all ranks one order over all communicators. As the members' calls of one
// communicator meet by their order, and a host goes on only when all members have called, none can
// wait for ever.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "exec/transports/nccl/calls.hpp"
#include "planner/schedules/registry.hpp"
#include "tests/parity/divided/cuda_divided.hpp"
#include "tests/parity/divided/mixtures.hpp"

namespace pipewright::tests {
namespace nccl_same_calls_test {

using namespace cuda_divided;
using exec::nccl::Call;
using exec::nccl::CallKind;
using exec::nccl::Communicator;
using exec::nccl::StepCalls;

/// A call as both tell it; a count of 0 says that one of them does not know.
struct One {
  std::string kind;
  std::int64_t count = 0;
  int type = PIPEWRIGHT_NCCL_BYTES;
  int peer = -1;
};
bool operator==(const One& a, const One& b) {
  return a.kind == b.kind && a.type == b.type && a.peer == b.peer &&
         (a.count == b.count || a.count == 0 || b.count == 0);
}
std::ostream& operator<<(std::ostream& out, const One& one) {
  return out << one.kind << " count " << one.count << " type " << one.type << " peer " << one.peer;
}
/// By communicator and member; and by rank those of no group, with the communicator.
using Lists = std::map<std::pair<std::string, int>, std::vector<One>>;
using Orders = std::map<int, std::vector<std::string>>;

struct Told {
  Lists lists;
  Orders orders;
};

// --- Of a dry run ---

bool is_counted(const Program& program, const Call& call) {
  return call.part_of && call.part_of->kind == ActionKind::F &&
         program.text(call.instruction).find("/dispatch") != std::string::npos;
}

/// Those of replicas are of arrays with gaps.
One one_of(const Call& call, const Communicator& communicator) {
  const bool of_group = communicator.use == Communicator::Use::Group;
  const ActionKind kind = call.cell.action.kind;
  const int type =
      kind == ActionKind::ReduceNorm ? PIPEWRIGHT_NCCL_FLOAT64 : PIPEWRIGHT_NCCL_FLOAT32;
  const std::int64_t count = of_group || kind == ActionKind::ReduceNorm ? call.count : 0;
  switch (call.kind) {
    case CallKind::Send:
      return {"send", 0, PIPEWRIGHT_NCCL_BYTES, call.peer};
    case CallKind::Recv:
      return {"receive", 0, PIPEWRIGHT_NCCL_BYTES, call.peer};
    case CallKind::AllReduce:
      return {"all-reduce", count, type};
    case CallKind::ReduceScatter:
      return {"reduce-scatter", count, type};
    case CallKind::AllGather:
      return {"all-gather", count * call.element_bytes};
    default:
      return {"group"};
  }
}

Told told_by(const Program& program, const StepCalls& step) {
  Told told;
  for (std::size_t r = 0; r < step.ranks.size(); ++r) {
    const RankId rank(static_cast<std::int64_t>(r));
    for (const Call& call : step.ranks[r].calls) {
      if (call.communicator == exec::nccl::kNoCommunicator) continue;
      const Communicator& communicator = step.plan.communicators[call.communicator];
      const std::string name = name_of(communicator);
      const One one = one_of(call, communicator);
      auto& list = told.lists[{name, communicator.index_of(rank)}];
      if (is_counted(program, call)) list.push_back(one);
      list.push_back(one);
      if (communicator.use == Communicator::Use::Replicas)
        told.orders[rank.value].push_back(one.kind + " " + name);
    }
  }
  return told;
}

// --- Of a run ---

One one_of(const HostNcclCall& call) {
  const auto count = static_cast<std::int64_t>(call.count);
  switch (call.kind) {
    case HostNcclCall::Kind::Send:
      return {"send", count, call.type, call.peer};
    case HostNcclCall::Kind::Receive:
      return {"receive", count, call.type, call.peer};
    case HostNcclCall::Kind::AllReduce:
      return {"all-reduce", count, call.type};
    case HostNcclCall::Kind::ReduceScatter:
      return {"reduce-scatter", count, call.type};
    case HostNcclCall::Kind::AllGather:
      break;
  }
  return {"all-gather", count, call.type};
}

/// Without what connects communicators, which comes first on each of them.
Told told_by(const StepCalls& step, const std::vector<HostNcclCall>& noted) {
  Told told;
  std::map<std::pair<std::string, int>, int> to_skip;
  std::map<std::string, const Communicator*> by_name;
  for (const Communicator& one : step.plan.communicators) by_name[name_of(one)] = &one;
  for (const auto& warm_up : step.plan.warm_ups) {
    const Communicator& communicator = step.plan.communicators[warm_up.communicator];
    for (int m = 0; m < static_cast<int>(communicator.members.size()); ++m) {
      int& calls = to_skip[{name_of(communicator), m}];
      if (warm_up.edges.empty()) ++calls;
      for (const auto& [from, to] : warm_up.edges) calls += (from == m ? 1 : 0) + (to == m ? 1 : 0);
    }
  }
  std::map<std::pair<std::string, int>, int> last_group;
  for (const HostNcclCall& call : noted) {
    const std::pair key(call.communicator, call.member);
    if (to_skip[key]-- > 0) continue;
    const Communicator& communicator = *by_name.at(call.communicator);
    const bool is_grouped = communicator.use == Communicator::Use::Group && call.group >= 0;
    if (is_grouped && last_group.contains(key) && last_group[key] == call.group) continue;
    last_group[key] = call.group;
    const One one = is_grouped ? One{"group"} : one_of(call);
    told.lists[key].push_back(one);
    if (communicator.use == Communicator::Use::Replicas)
      told.orders[communicator.members[static_cast<std::size_t>(call.member)].value].push_back(
          one.kind + " " + call.communicator);
  }
  return told;
}

template <class Map>
Map times(int steps, const Map& once) {
  Map all;
  for (const auto& [key, list] : once) {
    for (int step = 0; step < steps; ++step)
      all[key].insert(all[key].end(), list.begin(), list.end());
  }
  return all;
}

/// The k-th calls of a communicator's members are the same, but for transfers.
void expect_met(const Lists& lists) {
  std::map<std::string, std::vector<One>> first;
  for (const auto& [key, list] : lists) {
    std::vector<One> sums;
    std::copy_if(list.begin(), list.end(), std::back_inserter(sums),
                 [](const One& one) { return one.kind != "send" && one.kind != "receive"; });
    const auto [known, is_first] = first.emplace(key.first, sums);
    EXPECT_TRUE(is_first || known->second == sums) << key.first << ", member " << key.second;
  }
}

struct Case {
  const char* schedule;
  Model model;
  Layout layout;
  double clip = 0.5;
  int chunks = 1;
  int ranks = 2;
};

void expect_the_same_calls(const Case& of, const CommPolicy& policy,
                           Numerics numerics = Numerics::Fast) {
  const Order order = planner::make_order(of.schedule, {of.ranks, 4, of.chunks, {}});
  const Program program = divided(order, of.model, of.layout, policy, numerics);
  const DividedSetting setting(program, of.model, numerics, of.layout);
  const bool is_exact = numerics == Numerics::Exact;
  CudaTraining how = training_of(setting, is_exact ? Precision::Exact : Precision::Float32);
  how.training.optimizer.clip_grad_norm = of.clip;
  how.training.verified_steps = 0;
  const CostTable costs = costs_of(program, 1000);
  const StepCalls step = exec::nccl::calls_of(
      program, costs, exec::nccl::by_hosts(program, of.model, setting.training.stages, numerics));
  const Told printed = told_by(program, step);
  for (const HostOrder streams : {HostOrder::Lazy, HostOrder::Shuffled}) {
    host_nccl_note_calls();
    const CudaResult run = trained(Over::Nccl, streams, program, how);
    const Told made = told_by(step, host_nccl_noted_calls());
    ASSERT_TRUE(run.finished());
    EXPECT_EQ(made.lists, times(kSteps, printed.lists));
    EXPECT_EQ(made.orders, times(kSteps, printed.orders));
    expect_met(made.lists);
  }
}

void expect_the_same_calls(const std::vector<Case>& cases) {
  for (const Case& one : cases) {
    for (const CommPolicy& policy : policies_of(Over::Nccl)) {
      const Layout& of = one.layout;
      SCOPED_TRACE(std::string(one.schedule) + ", tp " + std::to_string(of.tensor) + ", dp " +
                   std::to_string(of.replicas) + ", ep " + std::to_string(of.experts) + ", cp " +
                   std::to_string(of.context) + (of.sharded ? ", sharded" : "") + ", " +
                   std::string(to_string(policy.issue)));
      expect_the_same_calls(one, policy);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(NcclSameCalls, OfReplicasNormsAndTiedTables) {
  std::vector<Case> cases;
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "interleaved"}) {
    const int chunks = std::string(schedule) == "interleaved" ? 2 : 1;
    for (const bool sharded : {false, true})
      cases.push_back({schedule,
                       divisible_tied(),
                       {.tensor = 1, .replicas = 2, .sharded = sharded},
                       0.5,
                       chunks});
    cases.push_back(
        {schedule, divisible_model(), {.tensor = 1, .replicas = 2, .clips = false}, 0, chunks});
  }
  cases.push_back({"1f1b", divisible_tied(), {.tensor = 1, .replicas = 4}});
  // Both tables are on one rank.
  cases.push_back({"1f1b", divisible_tied(), {.tensor = 1, .replicas = 2}, 0.5, 1, 1});
  expect_the_same_calls(cases);
}

TEST(NcclSameCalls, OfLayersThatRanksDivide) {
  const Model model = divisible_llama();
  expect_the_same_calls({{"1f1b", model, {.tensor = 2}},
                         {"zb-h1", model, {.tensor = 2, .replicas = 2}},
                         {"1f1b", divisible_tied(), {.tensor = 2, .replicas = 2}},
                         {"gpipe", with_eight_tokens({}), {.tensor = 2, .rows = true}},
                         {"1f1b", model, {.tensor = 2, .replicas = 2, .sharded = true}},
                         {"1f1b", with_eight_tokens({}), {.tensor = 1, .context = 2}},
                         {"1f1b", with_eight_tokens({}), {.context = 2, .ring = true}}});
}

TEST(NcclSameCalls, OfExperts) {
  const Model balanced = mixture({{"scoring", "sigmoid"}, {"balance_rate", 0.01}});
  expect_the_same_calls(
      {{"1f1b", mixtral(), {.tensor = 1, .experts = 2}},
       {"gpipe", mixtral(), {.tensor = 1, .replicas = 2, .experts = 2}},
       {"zb-h1", balanced, {.tensor = 1, .replicas = 2, .experts = 2}},
       {"1f1b", mixtral(), {.tensor = 2, .experts = 2}},
       {"1f1b", mixtral(), {.tensor = 1, .experts = 2, .context = 2}},
       {"1f1b", mixtral(), {.tensor = 1, .replicas = 2, .sharded = true}},
       {"1f1b", balanced, {.tensor = 1, .replicas = 2}},
       {"1f1b", mixtral(), {.tensor = 1, .replicas = 2, .sharded = true, .experts = 2}}});
}

/// A Program may ask for norms by which nothing is clipped.
TEST(NcclSameCalls, OfANormThatNobodyUses) {
  expect_the_same_calls({{"1f1b", divisible_model(), {.tensor = 1, .replicas = 2}, 0}});
}

/// All but transfers goes by way of the hosts.
TEST(NcclSameCalls, OfExactNumerics) {
  for (const Case& one : {Case{"1f1b", divisible_tied(), {.tensor = 2, .replicas = 2}},
                          Case{"1f1b", mixtral(), {.tensor = 1, .replicas = 2, .experts = 2}}})
    expect_the_same_calls(one, {.post = Post::Deferred}, Numerics::Exact);
}

}  // namespace nccl_same_calls_test
}  // namespace pipewright::tests
