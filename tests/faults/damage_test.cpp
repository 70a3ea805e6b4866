// One bit that flips on its way between two processes: with verify_payloads it is found and named,
// whatever carries it.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "core/program/lower.hpp"
#include "exec/base/checksum.hpp"
#include "exec/devices/paced/device.hpp"
#include "exec/training/gradient_exchange.hpp"
#include "exec/transports/local/transport.hpp"
#include "exec/transports/process/link.hpp"
#include "exec/transports/process/transport.hpp"
#include "planner/schedules/registry.hpp"
#include "tests/reference/random_order.hpp"
#include "tests/support/forwarding_transport.hpp"
#include "tests/support/memory_wire.hpp"
#include "tests/support/update_orders.hpp"

namespace pipewright::exec {
namespace damage_test {

void flip(std::span<std::byte> bytes, std::size_t bit) {
  bytes[bit / 8] ^= std::byte{1} << (bit % 8);
}

TEST(Seal, SeesEveryFlippedBit) {
  reference::Dice dice(3);
  for (const int floats : {0, 1, 2, 7, 64}) {
    for (const int note : {0, 1, 8, 13}) {
      HostPayload payload(std::vector<float>(static_cast<std::size_t>(floats)),
                          std::vector<std::byte>(static_cast<std::size_t>(note)));
      for (float& value : payload.values) value = static_cast<float>(dice.below(1000)) / 7;
      for (std::byte& byte : payload.note) byte = static_cast<std::byte>(dice.below(256));
      const std::uint64_t whole = checksum_of(payload);
      const auto values = std::as_writable_bytes(std::span(payload.values));
      for (const auto bytes : {values, std::span<std::byte>(payload.note)}) {
        for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
          flip(bytes, bit);
          EXPECT_NE(checksum_of(payload), whole);
          flip(bytes, bit);
        }
      }
      EXPECT_EQ(checksum_of(payload), whole);
    }
  }
}

TEST(Seal, TellsANoteFromAValueAndALengthFromAnother) {
  const std::vector<float> zeros(4, 0.0F);
  EXPECT_NE(checksum_of({}, zeros), checksum_of({}, std::span(zeros).first(2)));
  EXPECT_NE(checksum_of(std::as_bytes(std::span(zeros).first(2)), {}),
            checksum_of({}, std::span(zeros).first(2)));
}

CostTable no_costs(const Program& program) {
  return CostTable::uniform(program.stages, {}, Nanoseconds(0));
}

/// A device that sends vectors of its own, so that nobody but the checksum can notice anything.
class Plain final : public Device {
 public:
  Plain(const Program& program, RankId rank, Transport& transport)
      : program_(program), rank_(rank), transport_(transport) {}
  void begin_step(int) override {}
  void compute(InstructionId) override {}
  PayloadPtr give(InstructionId send) override {
    if (program_.code[send].in_collective()) {
      hand_in(send);
      return nullptr;
    }
    return std::make_unique<HostPayload>(std::vector<float>(100, static_cast<float>(send)));
  }
  void accept(InstructionId id, PayloadPtr) override {
    if (program_.code[id].in_collective()) transport_.gathered(rank_, id);
  }
  void end_step() override {}

 private:
  void hand_in(InstructionId reduction) {
    GradientPart part;
    part.gradients.emplace_back(50, 1.5F);
    part.micro_batches = 1;
    transport_.contribute(rank_, reduction, std::make_shared<GradientMessage>(part));
  }

  const Program& program_;
  const RankId rank_;
  Transport& transport_;
};

/// By process: how the run ended; empty: it finished.
std::vector<std::string> failures_with(const Program& program, test::MemoryHub& hub, bool verify) {
  const CostTable costs = no_costs(program);
  std::vector<std::string> failures(static_cast<std::size_t>(program.ranks()));
  std::vector<std::jthread> processes;
  for (int p = 0; p < program.ranks(); ++p) {
    processes.emplace_back([&, p] {
      mpi::Link link(std::make_unique<test::MemoryWire>(hub, p));
      {
        mpi::MpiTransport transport(program, local::real_messages(program, costs), link, verify);
        const DeviceFactory make = [&](RankId rank, Clock&) {
          return std::make_unique<Plain>(program, rank, transport);
        };
        try {
          run(program, costs, transport, make, {.steps = 3, .verify_payloads = verify});
        } catch (const RunFailed& failed) {
          failures[static_cast<std::size_t>(p)] = failed.what();
        }
      }
      link.close();
    });
  }
  processes.clear();
  return failures;
}

/// Flips one bit of the frame of this kind that comes as the n-th; gives its instruction.
struct Flip {
  mpi::FrameKind kind = mpi::FrameKind::Data;
  int nth = 0;
  InstructionId hit = kNoInstruction;

  void operator()(mpi::Frame& frame, reference::Dice& dice) {
    if (frame.head.kind != kind || nth-- != 0) return;
    const auto bytes = std::as_writable_bytes(std::span(frame.values));
    flip(bytes, static_cast<std::size_t>(dice.below(static_cast<int>(8 * bytes.size()))));
    hit = frame.head.id;
  }
};

TEST(Damage, OfAMessageIsFoundAndNamed) {
  const Program program =
      lower(planner::make_order("1f1b", {3, 4, 1, {}}), CommPolicy{}, {.optimizer = true});
  for (int nth = 0; nth < 12; ++nth) {
    reference::Dice dice(static_cast<std::uint64_t>(nth));
    Flip flipping{mpi::FrameKind::Data, nth, kNoInstruction};
    test::MemoryHub hub(3, false);
    hub.on_the_way = [&](int, mpi::Frame& frame) { flipping(frame, dice); };
    const auto failures = failures_with(program, hub, true);
    ASSERT_NE(flipping.hit, kNoInstruction);
    const std::string says = "the message of rank " +
                             std::to_string(program.rank_of(flipping.hit).value) + "'s " +
                             program.text(flipping.hit) + " was damaged on its way";
    EXPECT_NE(failures.front().find(says), std::string::npos) << failures.front();
  }
}

TEST(Damage, OfAReplicasGradientsIsFoundAndNamed) {
  const Program program = lower(test::bidirectional_order(2, 4), CommPolicy{}, {.optimizer = true});
  reference::Dice dice(5);
  Flip flipping{mpi::FrameKind::Part, 1, kNoInstruction};
  test::MemoryHub hub(2, false);
  hub.on_the_way = [&](int, mpi::Frame& frame) { flipping(frame, dice); };
  const auto failures = failures_with(program, hub, true);
  ASSERT_NE(flipping.hit, kNoInstruction);
  EXPECT_NE(
      failures.front().find("the part of " + program.text(flipping.hit) + " from rank " +
                            std::to_string(program.rank_of(flipping.hit).value) + " was damaged"),
      std::string::npos)
      << failures.front();
}

TEST(Damage, IsNotLookedForUnlessAskedAndNothingIsFoundInHealthyRuns) {
  const Program program = lower(test::bidirectional_order(2, 4), CommPolicy{}, {.optimizer = true});
  reference::Dice dice(5);
  Flip flipping{mpi::FrameKind::Data, 2, kNoInstruction};
  test::MemoryHub damaging(2, false), healthy(2, false);
  damaging.on_the_way = [&](int, mpi::Frame& frame) { flipping(frame, dice); };
  EXPECT_EQ(failures_with(program, damaging, false), (std::vector<std::string>{"", ""}));
  EXPECT_NE(flipping.hit, kNoInstruction);
  EXPECT_EQ(failures_with(program, healthy, true), (std::vector<std::string>{"", ""}));
}

/// The same on threads: a payload that is changed between the two devices.
TEST(Damage, IsFoundBetweenThreadsToo) {
  class Careless final : public test::ForwardingTransport {
   public:
    Careless(Transport& inner, InstructionId bad) : ForwardingTransport(inner), bad_(bad) {}
    PayloadPtr take(RankId r, InstructionId id) override {
      PayloadPtr payload = ForwardingTransport::take(r, id);
      if (id == bad_) flip({payload->data(), payload->size()}, 77);
      return payload;
    }

   private:
    const InstructionId bad_;
  };
  const Program program =
      lower(planner::make_order("gpipe", {2, 2, 1, {}}), CommPolicy{}, {.optimizer = true});
  const CostTable costs = no_costs(program);
  InstructionId recv = program.rank_begin[1];
  while (!is_recv(program.code[recv].kind)) ++recv;
  local::LocalTransport local(program, local::real_messages(program, costs));
  Careless careless(local, recv);
  const DeviceFactory make = [&](RankId rank, Clock&) {
    return std::make_unique<Plain>(program, rank, careless);
  };
  try {
    run(program, costs, careless, make, {.verify_payloads = true});
    FAIL() << "not found";
  } catch (const RunFailed& failed) {
    EXPECT_NE(std::string(failed.what()).find("damaged on its way"), std::string::npos);
  }
}

}  // namespace damage_test
}  // namespace pipewright::exec
