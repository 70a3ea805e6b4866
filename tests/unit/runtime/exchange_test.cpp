// The transfers' state machine alone, without threads: rendezvous, credit, order, arrival,
// mismatch. The Programs are written by hand, so that every moment can be derived from
// docs/semantics.md.
#include <gtest/gtest.h>

#include "core/order/order.hpp"
#include "core/program/lower.hpp"
#include "exec/transports/local/exchange.hpp"

namespace pipewright::tests {
namespace exchange_test {

using exec::HostPayload;
using exec::PayloadPtr;
using exec::local::Exchange;
using exec::local::MessageCosts;

PayloadPtr message(float value) { return std::make_unique<HostPayload>(std::vector<float>{value}); }

float value_of(const PayloadPtr& payload) {
  return static_cast<const HostPayload&>(*payload).values.at(0);
}

/// A fragment with the given rows, every message taking `ns` and having `bytes`.
struct Rig {
  Program program;
  Exchange exchange;

  Rig(const std::string& csv, const CommPolicy& policy, std::int64_t ns, std::int64_t bytes = 1)
      : program(lower(read_order_csv(csv, "test"), policy, {.fragment = true})),
        exchange(program, MessageCosts{std::vector<std::int64_t>(program.routes.size(), ns),
                                       std::vector<std::int64_t>(program.routes.size(), bytes)}) {}

  InstructionId id(const std::string& text) const {
    for (InstructionId i = 0; i < program.code.size(); ++i) {
      if (program.text(i) == text) return i;
    }
    ADD_FAILURE() << "no " << text;
    return kNoInstruction;
  }
  void send(const std::string& text, std::int64_t now, float value = 1) {
    exchange.run_events(now);
    exchange.issue(id(text), message(value), now);
  }
  void receive(const std::string& text, std::int64_t now) {
    exchange.run_events(now);
    exchange.issue(id(text), nullptr, now);
  }
  bool ended(const std::string& text) const { return exchange.has_ended(id(text)); }
  std::int64_t end_of(const std::string& text) const { return times().end[id(text)]; }
  std::int64_t moving_of(const std::string& text) const { return times().moving[id(text)]; }
  Timeline times() const {
    Timeline timeline;
    Progress progress;
    const std::size_t n = program.code.size();
    timeline.start.assign(n, kNotEnded);
    timeline.end = timeline.moving = timeline.start;
    progress.ended.assign(n, 0);
    progress.left.assign(n, 0);
    exchange.report(timeline, progress);
    return timeline;
  }
};

CommPolicy policy_of(const std::string& send_f, Channel channel = Channel::Edge) {
  CommPolicy policy;
  policy.channel = channel;
  policy.send_f = policy.send_b = parse_protocol(send_f);
  return policy;
}

constexpr const char* kThreeMessages =
    "0F0,0SEND_F0,0F1,0SEND_F1,0F2,0SEND_F2\n1RECV_F0,1F0,1RECV_F1,1F1,1RECV_F2,1F2\n";

TEST(Exchange, RendezvousStartsWhenBothAreReadyAndHandsTheDataOver) {
  Rig rig(kThreeMessages, policy_of("rendezvous"), 10);
  rig.send("0SEND_F0", 5, 42);
  EXPECT_FALSE(rig.exchange.next_event().has_value());
  rig.receive("1RECV_F0", 7);
  EXPECT_EQ(rig.exchange.next_event(), 17);
  rig.exchange.run_events(16);
  EXPECT_FALSE(rig.ended("0SEND_F0"));
  rig.exchange.run_events(17);
  EXPECT_EQ(rig.end_of("0SEND_F0"), 17);
  EXPECT_EQ(rig.end_of("1RECV_F0"), 17);
  EXPECT_EQ(rig.moving_of("0SEND_F0"), 7);
  EXPECT_EQ(value_of(rig.exchange.take(rig.id("1RECV_F0"))), 42);
}

TEST(Exchange, TheQueuesNextTransferStartsWhenTheOneBeforeItEnds) {
  // Edge queues: m1 is issued long before, but m0 occupies both ends until 20.
  Rig rig(kThreeMessages, policy_of("rendezvous"), 10);
  rig.send("0SEND_F0", 0);
  rig.send("0SEND_F1", 1);
  rig.receive("1RECV_F0", 10);
  rig.receive("1RECV_F1", 12);
  rig.exchange.run_events(100);
  EXPECT_EQ(rig.end_of("1RECV_F0"), 20);
  EXPECT_EQ(rig.moving_of("1RECV_F1"), 20);
  EXPECT_EQ(rig.end_of("1RECV_F1"), 30);
}

TEST(Exchange, TagQueuesDoNotWaitForOneAnother) {
  Rig rig(kThreeMessages, policy_of("rendezvous", Channel::Tag), 10);
  rig.send("0SEND_F0", 0);
  rig.send("0SEND_F1", 1);
  rig.receive("1RECV_F1", 3);
  rig.exchange.run_events(100);
  EXPECT_EQ(rig.end_of("1RECV_F1"), 13);
  EXPECT_FALSE(rig.ended("0SEND_F0"));
}

TEST(Exchange, ASendWaitsForItsDataAndHoldsUpItsQueue) {
  Rig rig(kThreeMessages, policy_of("eager"), 10);
  rig.exchange.issue(rig.id("0SEND_F0"), nullptr, 0);
  rig.send("0SEND_F1", 1);
  EXPECT_FALSE(rig.ended("0SEND_F1"));
  rig.exchange.provide(rig.id("0SEND_F0"), message(1), 5);
  EXPECT_EQ(rig.end_of("0SEND_F0"), 5);
  EXPECT_EQ(rig.end_of("0SEND_F1"), 5);
}

TEST(Exchange, CreditOfOneMessageComesBackWhenTheRecvEnds) {
  Rig rig(kThreeMessages, policy_of("eager:1"), 10);
  rig.send("0SEND_F0", 0);
  rig.send("0SEND_F1", 1);
  EXPECT_EQ(rig.end_of("0SEND_F0"), 0);  // it left
  EXPECT_FALSE(rig.ended("0SEND_F1"));
  rig.receive("1RECV_F0", 4);
  rig.exchange.run_events(10);  // arrival
  EXPECT_EQ(rig.end_of("1RECV_F0"), 10);
  EXPECT_EQ(rig.end_of("0SEND_F1"), 10);  // it has the credit
  // A message that is there already ends its RECV at once.
  rig.receive("1RECV_F1", 50);
  EXPECT_EQ(rig.end_of("1RECV_F1"), 50);
}

TEST(Exchange, WithoutCreditASendMeetsItsOwnRecvAtTheEndOfTheInstant) {
  // Tags: RECV_F1 is ready although m0, which holds the only credit, was not received.
  Rig rig(kThreeMessages, policy_of("eager:1", Channel::Tag), 10);
  rig.send("0SEND_F0", 0);
  rig.send("0SEND_F1", 1);
  rig.receive("1RECV_F1", 3);
  EXPECT_FALSE(rig.exchange.next_event() == 13);  // credit might still come back at 3
  EXPECT_TRUE(rig.exchange.settle(3));
  EXPECT_FALSE(rig.exchange.settle(3));
  rig.exchange.run_events(13);
  EXPECT_EQ(rig.end_of("0SEND_F1"), 13);
  EXPECT_EQ(rig.end_of("1RECV_F1"), 13);
}

TEST(Exchange, CreditThatComesBackAtTheSameInstantIsTakenFirst) {
  Rig rig(kThreeMessages, policy_of("eager:1", Channel::Tag), 10);
  rig.send("0SEND_F0", 0);
  rig.send("0SEND_F1", 1);
  rig.receive("1RECV_F1", 12);
  rig.receive("1RECV_F0", 12);  // its message has arrived at 10: ends now, gives the credit back
  EXPECT_EQ(rig.end_of("0SEND_F1"), 12);
  EXPECT_FALSE(rig.exchange.settle(12));
  rig.exchange.run_events(100);
  EXPECT_EQ(rig.end_of("1RECV_F1"), 22);
}

TEST(Exchange, ByteCreditIsStrictlyInOrderAndTooLargeAMessageIsARendezvous) {
  Rig large(kThreeMessages, policy_of("eager:4B"), 10, 5);
  large.send("0SEND_F0", 0);
  EXPECT_FALSE(large.ended("0SEND_F0"));
  large.receive("1RECV_F0", 2);
  EXPECT_EQ(large.exchange.next_event(), 12);

  Rig two(kThreeMessages, policy_of("eager:4B"), 10, 2);
  two.send("0SEND_F0", 0);
  two.send("0SEND_F1", 0);
  two.send("0SEND_F2", 0);
  EXPECT_TRUE(two.ended("0SEND_F1"));
  EXPECT_FALSE(two.ended("0SEND_F2"));
}

TEST(Exchange, ForwardAndBackwardCreditDoNotPool) {
  // Rank 1 sends an activation and a gradient to rank 0, each with a credit of its own.
  const char* csv = "0F0,0SEND_F0,2RECV_F0,2F0,0RECV_B0\n1RECV_F0,1F0,1SEND_F0,1B0,1SEND_B0\n";
  Rig rig(csv, policy_of("eager:1"), 10);
  rig.send("1SEND_F0", 0);
  rig.send("1SEND_B0", 0);
  EXPECT_TRUE(rig.ended("1SEND_F0"));
  EXPECT_TRUE(rig.ended("1SEND_B0"));
}

TEST(Exchange, AMismatchNeverEnds) {
  // By position the first SEND of rank 0 meets the first RECV of rank 1, which is for m1.
  Rig rig("0F0,0SEND_F0,0F1,0SEND_F1\n1RECV_F1,1F1,1RECV_F0,1F0\n", policy_of("rendezvous"), 10);
  rig.send("0SEND_F0", 0);
  rig.receive("1RECV_F1", 0);
  rig.exchange.run_events(1000);
  while (rig.exchange.settle(1000)) {
  }
  EXPECT_FALSE(rig.ended("0SEND_F0"));
  EXPECT_FALSE(rig.ended("1RECV_F1"));
}

TEST(Exchange, ResetBeginsAStepWithAllCredit) {
  Rig rig(kThreeMessages, policy_of("eager:1"), 10);
  rig.send("0SEND_F0", 0);
  rig.exchange.reset();
  EXPECT_FALSE(rig.ended("0SEND_F0"));
  EXPECT_FALSE(rig.exchange.next_event().has_value());
  rig.send("0SEND_F0", 3);
  EXPECT_EQ(rig.end_of("0SEND_F0"), 3);
}

}  // namespace exchange_test
}  // namespace pipewright::tests
