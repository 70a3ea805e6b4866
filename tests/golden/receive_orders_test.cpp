// PyTorch's orders with their receives moved: as lowered, each before its consumer, and by the rule
// of rank parity (pytorch pull request 178815). The library's verdicts, and the instructions at
// which the ranks stand, against golden/pytorch/orders/manifest.json.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/program/lower.hpp"
#include "sim/engine.hpp"
#include "tests/golden/golden_orders.hpp"

namespace pipewright {
namespace receive_orders_test {

using nlohmann::json;

bool consumes(const Action& a, const Action& receive) {
  if (a.stage != receive.stage || a.micro_batch != receive.micro_batch) return false;
  return receive.kind == ActionKind::RecvF
             ? a.kind == ActionKind::F
             : receive.kind == ActionKind::RecvB &&
                   (a.kind == ActionKind::I || a.kind == ActionKind::B);
}

/// The rank at the other end.
RankId peer_of(const Order& order, const Action& transfer) {
  return order.placement.rank_of(StageId(peer_stage(transfer)), transfer.micro_batch);
}

/// A rank's list with its receives held back: each is issued before its consumer, and, by parity,
/// those from a higher rank already before a send to that rank.
class HeldBack {
 public:
  HeldBack(const Order& order, RankId rank, bool parity)
      : order_(order), rank_(rank), parity_(parity) {}

  std::vector<Cell> list() {
    for (const Cell& cell : order_.ranks[static_cast<std::size_t>(rank_.value)]) {
      if (is_recv(cell.action.kind)) {
        pending_.push_back(cell);
        continue;
      }
      if (is_send(cell.action.kind) && parity_) release_for_send(peer_of(order_, cell.action));
      release_if([&](const Action& r) { return consumes(cell.action, r); });
      if (cell.partner) release_if([&](const Action& r) { return consumes(*cell.partner, r); });
      list_.push_back(cell);
    }
    release_if([](const Action&) { return true; });
    return std::move(list_);
  }

 private:
  void release_for_send(RankId peer) {
    if (peer.value <= rank_.value) return;
    release_if([&](const Action& r) { return peer_of(order_, r) == peer; });
  }
  template <class Wanted>
  void release_if(Wanted wanted) {
    const auto held = std::stable_partition(pending_.begin(), pending_.end(),
                                            [&](const Cell& c) { return !wanted(c.action); });
    list_.insert(list_.end(), held, pending_.end());
    pending_.erase(held, pending_.end());
  }

  const Order& order_;
  const RankId rank_;
  const bool parity_;
  std::vector<Cell> pending_, list_;
};

Order held_back(const Order& order, bool parity) {
  Order moved = order;
  for (int r = 0; r < order.rank_count(); ++r) {
    moved.ranks[static_cast<std::size_t>(r)] = HeldBack(order, RankId(r), parity).list();
  }
  return moved;
}

struct Model {
  const char* key;
  CommPolicy policy;
};
const Model kModels[] = {{"rendezvous", {.issue = Issue::Inline}},
                         {"async_rank", {.channel = Channel::Rank}},
                         {"async_pair", {.channel = Channel::Pair}},
                         {"async_edge", {.channel = Channel::Edge}}};

WaitReport report_of(const Order& order, const CommPolicy& policy) {
  const Program program = lower(order, policy);
  return sim::check(program, CostTable::uniform(program.stages, {}));
}

std::string recorded(const json& entry, const std::string& key) {
  const std::string value = entry.at(key);
  return value == "order-mismatch" ? "mismatch" : value;
}

/// The head of each unfinished rank, as the manifest writes it.
json heads_of(const Order& order) {
  const Program program = lower(order, {.issue = Issue::Inline});
  const WaitReport report = sim::check(program, CostTable::uniform(program.stages, {}));
  json heads = json::object();
  for (const StuckHead& head : report.stuck) {
    heads[std::to_string(head.rank.value)] = program.text(head.instruction);
  }
  return heads;
}

class ReceiveOrders : public testing::Test {
 protected:
  void SetUp() override {
    PIPEWRIGHT_NEEDS_GOLDEN(folder_ / "manifest.json");
    for (const json& entry : json::parse(golden::text_of(folder_ / "manifest.json"))) {
      const std::string file = entry.at("comms_csv");
      entries_.push_back({entry, read_order_csv(golden::text_of(folder_ / file), file)});
    }
  }

  struct Entry {
    json facts;
    Order order;
  };
  std::filesystem::path folder_ = golden::golden_dir() / "pytorch/orders";
  std::vector<Entry> entries_;
};

TEST_F(ReceiveOrders, HaveTheRecordedVerdictUnderEveryModel) {
  int compared = 0, stuck = 0, swapped = 0;
  for (const auto& [facts, order] : entries_) {
    const std::pair<const char*, Order> variants[] = {{"asis", order},
                                                      {"naive_defer", held_back(order, false)},
                                                      {"parity_defer", held_back(order, true)}};
    for (const auto& [suffix, variant] : variants) {
      for (const Model& model : kModels) {
        const std::string key = std::string(model.key) + "_" + suffix;
        const std::string expected = recorded(facts, key);
        EXPECT_EQ(to_string(report_of(variant, model.policy).verdict), expected)
            << facts.at("comms_csv") << " " << key;
        ++compared;
        stuck += expected == "deadlock" ? 1 : 0;
        swapped += expected == "mismatch" ? 1 : 0;
      }
    }
  }
  EXPECT_EQ(compared, 48 * 3 * 4);
  EXPECT_GT(stuck, 0);
  EXPECT_GT(swapped, 0);
}

TEST_F(ReceiveOrders, StandAtTheRecordedInstructions) {
  int compared = 0;
  for (const auto& [facts, order] : entries_) {
    for (const bool parity : {false, true}) {
      const char* key = parity ? "stuck_parity_defer" : "stuck_naive_defer";
      if (!facts.contains(key)) continue;
      EXPECT_EQ(heads_of(held_back(order, parity)), facts.at(key)) << facts.at("comms_csv") << key;
      ++compared;
    }
  }
  EXPECT_GT(compared, 50);
}

TEST_F(ReceiveOrders, DeferredByThePolicyIsDeferredByHand) {
  for (const auto& [facts, order] : entries_) {
    const Program by_policy = lower(order, {.post = Post::Deferred});
    const Program by_hand = lower(held_back(order, false), {});
    ASSERT_EQ(by_policy.code.size(), by_hand.code.size());
    for (InstructionId id = 0; id < by_hand.code.size(); ++id) {
      ASSERT_EQ(by_policy.text(id), by_hand.text(id)) << facts.at("comms_csv");
    }
  }
}

}  // namespace receive_orders_test
}  // namespace pipewright
