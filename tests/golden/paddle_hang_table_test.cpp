// reference/paddle.md §1.4: under which models of communication Paddle's hang and its fix show.
// Each of its sentences is a policy here, tried at every size that the page names.
#include <gtest/gtest.h>

#include <tuple>

#include "core/order/problems.hpp"
#include "core/program/lower.hpp"
#include "planner/schedules/registry.hpp"
#include "sim/engine.hpp"

namespace pipewright {
namespace paddle_hang_table_test {

constexpr Protocol kRendezvous{};
constexpr Protocol kOneMessage{Protocol::Kind::EagerMessages, 1};
constexpr Protocol kUnlimited{Protocol::Kind::EagerUnlimited, 0};

struct Sizes {
  int ranks, micro_batches, chunks;
};
constexpr Sizes kSizes[] = {{4, 8, 2}, {4, 12, 2}, {4, 16, 2}, {8, 16, 2}, {4, 8, 4}, {3, 6, 2}};

CommPolicy pair_queues(Protocol send_f, Protocol send_b) {
  return {.channel = Channel::Pair, .send_f = send_f, .send_b = send_b};
}

Verdict verdict(const Order& order, const CommPolicy& policy) {
  EXPECT_TRUE(problems_of(order).empty());
  return sim::check(lower(order, policy), CostTable::uniform(order.stages(), {})).verdict;
}

Order order_of(const char* schedule, const Sizes& s, const char* jobs) {
  return planner::make_order(schedule, {s.ranks, s.micro_batches, s.chunks, {{"jobs", jobs}}});
}

/// The verdicts before and after the fix.
using Both = std::pair<Verdict, Verdict>;
constexpr Both kBothPass{Verdict::Ok, Verdict::Ok};
constexpr Both kBothHang{Verdict::Deadlock, Verdict::Deadlock};
constexpr Both kFixed{Verdict::Deadlock, Verdict::Ok};

Both vpp(const Sizes& s, const CommPolicy& policy) {
  return {verdict(order_of("paddle-vpp", s, "fused"), policy),
          verdict(order_of("paddle-vpp", s, "split"), policy)};
}

Both one_f_one_b(const Sizes& s, const CommPolicy& policy) {
  const Sizes single{s.ranks, s.micro_batches, 1};
  return {verdict(order_of("1f1b", single, "fused"), policy),
          verdict(order_of("1f1b", single, "split"), policy)};
}

std::string text(const Sizes& s) {
  return std::to_string(s.ranks) + " ranks, " + std::to_string(s.micro_batches) +
         " micro-batches, " + std::to_string(s.chunks) + " chunks";
}

TEST(PaddleModels, UnlimitedBuffersAndQueuesOfAnEdgeHideTheHang) {
  for (const Sizes& s : kSizes) {
    SCOPED_TRACE(text(s));
    EXPECT_EQ(vpp(s, pair_queues(kUnlimited, kUnlimited)), kBothPass);
    EXPECT_EQ(vpp(s, {.channel = Channel::Edge}), kBothPass);
  }
}

TEST(PaddleModels, BlockingSendsHangVppBothWaysAndShowTheFixOf1F1B) {
  for (const Sizes& s : kSizes) {
    SCOPED_TRACE(text(s));
    for (const CommPolicy& policy :
         {CommPolicy{.issue = Issue::Inline}, CommPolicy{.channel = Channel::Rank}}) {
      EXPECT_EQ(vpp(s, policy), kBothHang);
      EXPECT_EQ(one_f_one_b(s, policy), kFixed);
    }
  }
}

TEST(PaddleModels, AQueueOfAPairShowsTheFixOf1F1BAndHangsVppBothWays) {
  for (const Sizes& s : kSizes) {
    SCOPED_TRACE(text(s));
    EXPECT_EQ(one_f_one_b(s, pair_queues(kRendezvous, kRendezvous)), kFixed);
    EXPECT_EQ(vpp(s, pair_queues(kRendezvous, kRendezvous)), kBothHang);
  }
}

TEST(PaddleModels, OneMessageOfSlackForActivationsShowsTheFixOfVpp) {
  EXPECT_EQ(comm_policy_preset("paddle-vpp"), pair_queues(kOneMessage, kRendezvous));
  for (const Sizes& s : kSizes) {
    SCOPED_TRACE(text(s));
    EXPECT_EQ(vpp(s, pair_queues(kOneMessage, kRendezvous)), kFixed);
    EXPECT_EQ(vpp(s, pair_queues(kRendezvous, kOneMessage)), kBothHang);
    EXPECT_EQ(vpp(s, pair_queues(kOneMessage, kOneMessage)), kBothPass);
  }
}

TEST(PaddleModels, OfTwoRanksTheFixHangsToo) {
  for (const int micro_batches : {4, 6, 8, 16}) {
    EXPECT_EQ(vpp({2, micro_batches, 2}, comm_policy_preset("paddle-vpp")), kBothHang);
  }
}

/// A rank's jobs in Paddle's split lists: r receive forward, F forward with its send, B backward
/// with its receive, s send backward. Forwards and backwards keep their own order; how many
/// forwards come first, and how the four stand in the steady state, is what the fix changed.
class Jobs {
 public:
  explicit Jobs(const Order& split) : order_(split) {
    for (const auto& row : split.ranks) {
      Rank& rank = ranks_.emplace_back();
      bool warm = true;
      for (std::size_t k = 0; k < row.size(); ++k) {
        const ActionKind kind = row[k].action.kind;
        if (kind == ActionKind::F || kind == ActionKind::B) {
          const bool forward = kind == ActionKind::F;
          rank.warm_up += forward && warm ? 1 : 0;
          warm = warm && forward;
          (forward ? rank.forwards : rank.backwards).push_back(row[k].action);
        }
      }
    }
  }

  /// `pattern` of the steady state, such as "BrsF"; `more` forwards in the warm-up.
  Order with(const std::string& pattern, int more = 0) const {
    Order order = order_;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const Rank& rank = ranks_[r];
      auto& row = order.ranks[r];
      row.clear();
      const std::size_t warm = static_cast<std::size_t>(rank.warm_up + more);
      for (std::size_t f = 0; f < warm; ++f) append(row, "rF", rank.forwards[f], {});
      for (std::size_t b = 0; b < rank.backwards.size(); ++b) {
        const bool steady = warm + b < rank.forwards.size();
        append(row, steady ? pattern : "Bs", steady ? rank.forwards[warm + b] : Action{},
               rank.backwards[b]);
      }
    }
    return order;
  }

 private:
  struct Rank {
    std::vector<Action> forwards, backwards;
    int warm_up = 0;
  };

  void append(std::vector<Cell>& row, const std::string& jobs, const Action& f,
              const Action& b) const {
    const auto add = [&row](ActionKind kind, const Action& of) {
      row.push_back({{kind, of.stage, of.micro_batch}, std::nullopt});
    };
    const int last = order_.stages() - 1;
    for (const char job : jobs) {
      if (job == 'r' && f.stage.value > 0) add(ActionKind::RecvF, f);
      if (job == 'F') add(ActionKind::F, f);
      if (job == 'F' && f.stage.value < last) add(ActionKind::SendF, f);
      if (job == 'B' && b.stage.value < last) add(ActionKind::RecvB, b);
      if (job == 'B') add(ActionKind::B, b);
      if (job == 's' && b.stage.value > 0) add(ActionKind::SendB, b);
    }
  }

  Order order_;
  std::vector<Rank> ranks_;
};

TEST(PaddleModels, WhatFixIsTheReceiveBeforeTheSend) {
  const CommPolicy& policy = comm_policy_preset("paddle-vpp");
  for (const Sizes& s : kSizes) {
    SCOPED_TRACE(text(s));
    const Order split = order_of("paddle-vpp", s, "split");
    const Jobs jobs(split);
    EXPECT_EQ(write_order_csv(jobs.with("BrsF")), write_order_csv(split));
    for (const char* pattern : {"BrsF", "rBsF"}) {
      EXPECT_EQ(verdict(jobs.with(pattern), policy), Verdict::Ok) << pattern;
    }
    for (const char* pattern : {"BsrF", "rFBs"}) {
      EXPECT_EQ(verdict(jobs.with(pattern), policy), Verdict::Deadlock) << pattern;
    }
  }
}

TEST(PaddleModels, TheForwardMoreInTheWarmUpIsNeeded) {
  const Jobs jobs(order_of("paddle-vpp", {4, 9, 2}, "split"));
  const CommPolicy& policy = comm_policy_preset("paddle-vpp");
  EXPECT_EQ(verdict(jobs.with("BrsF"), policy), Verdict::Ok);
  // Without it the last rank takes a backward before its forward: said before the run, and a
  // deadlock if it is run all the same.
  const Order short_of_one = jobs.with("BrsF", -1);
  const auto problems = problems_of(short_of_one);
  ASSERT_FALSE(problems.empty());
  EXPECT_EQ(problems.front().rfind("rank 3, ", 0), 0U) << problems.front();
  EXPECT_NE(problems.front().find("7B0 stands before the 7F0 that it needs"), std::string::npos);
  const Program program = lower(short_of_one, policy);
  EXPECT_EQ(sim::check(program, CostTable::uniform(program.stages, {})).verdict, Verdict::Deadlock);
}

TEST(PaddleModels, TenMicroBatchesOnFourRanksNeedReceivesAndSendsApart) {
  const Order split = order_of("paddle-vpp", {4, 10, 2}, "split");
  EXPECT_EQ(verdict(split, {.issue = Issue::Inline, .send_f = kUnlimited, .send_b = kUnlimited}),
            Verdict::Deadlock);
  EXPECT_EQ(verdict(split, {.channel = Channel::Edge, .send_f = kUnlimited, .send_b = kUnlimited}),
            Verdict::Ok);
}

TEST(PaddleModels, BothListsSendAndReceiveInTheSameOrderUnlessMicroBatchesAreNoMultipleOfRanks) {
  for (const char* jobs : {"fused", "split"}) {
    for (const Sizes& s : kSizes) {
      const Program program = lower(order_of("paddle-vpp", s, jobs), {});
      for (const Instruction& in : program.code) {
        EXPECT_FALSE(in.has(Instruction::kMismatch)) << text(s);
      }
    }
    const Program odd = lower(order_of("paddle-vpp", {2, 3, 2}, jobs), {});
    std::vector<std::pair<int, int>> edges;
    for (const Instruction& in : odd.code) {
      if (!in.has(Instruction::kMismatch)) continue;
      const Route& route = odd.routes[in.route];
      edges.emplace_back(route.source.value, route.destination.value);
    }
    EXPECT_FALSE(edges.empty());
    for (const auto& edge : edges) EXPECT_EQ(edge, std::pair(1, 0));
  }
}

}  // namespace paddle_hang_table_test
}  // namespace pipewright
