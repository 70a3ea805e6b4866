// The wire over MPI on a table of its own in MPI's place, which fails when a test says so. One
// process sends to itself.
#include "exec/transports/process/mpi/wire.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <vector>

#include "core/base/error.hpp"
#include "exec/transports/process/link.hpp"

namespace pipewright::exec::mpi {
namespace mpi_wire_test {

/// A table has no place for a state of its own, hence a global: MPI's is one too.
struct FakeMpi {
  struct Request {
    std::byte* data = nullptr;  // of a receive; of a send: nullptr
    int channel = 0;
    bool is_done = false, is_freed = false;
  };
  struct Message {
    std::vector<std::byte> bytes;
    int channel = 0;
  };
  std::list<Request> requests;
  std::list<Message> under_way;
  bool refuses_sends = false, refuses_receives = false;
  int failing_channel = -1;  // what this channel has received is lost
  int misuses = 0;           // a request was used after it had been freed
  int ends = 0;

  /// Receives of a channel take its messages in the order in which both came.
  void match() {
    for (Request& request : requests) {
      if (request.data == nullptr || request.is_done || request.is_freed) continue;
      const auto message =
          std::find_if(under_way.begin(), under_way.end(),
                       [&](const Message& one) { return one.channel == request.channel; });
      if (message == under_way.end()) continue;
      std::copy(message->bytes.begin(), message->bytes.end(), request.data);
      under_way.erase(message);
      request.is_done = true;
    }
  }
};
FakeMpi fake;

void* send(const void* data, std::size_t bytes, int, int channel) {
  if (fake.refuses_sends) return nullptr;
  const auto* from = static_cast<const std::byte*>(data);
  fake.under_way.push_back({{from, from + bytes}, channel});
  fake.match();
  return &fake.requests.emplace_back(FakeMpi::Request{nullptr, channel, true, false});
}

void* receive(void* data, std::size_t, int, int channel) {
  if (fake.refuses_receives) return nullptr;
  auto& request = fake.requests.emplace_back(
      FakeMpi::Request{static_cast<std::byte*>(data), channel, false, false});
  fake.match();
  return &request;
}

int test(void* handle, int* from) {
  auto& request = *static_cast<FakeMpi::Request*>(handle);
  if (request.is_freed) return ++fake.misuses, -1;
  request.is_freed = request.is_done;
  if (!request.is_done) return 0;
  *from = 0;
  return request.data != nullptr && request.channel == fake.failing_channel ? -1 : 1;
}

void cancel(void* handle) { static_cast<FakeMpi::Request*>(handle)->is_freed = true; }

constexpr pipewright_mpi kTable = {.abi = PIPEWRIGHT_MPI_ABI,
                                   .begin = [](char*, std::size_t) { return 0; },
                                   .process = [] { return 0; },
                                   .processes = [] { return 1; },
                                   .library = [] { return "a test"; },
                                   .send = send,
                                   .receive = receive,
                                   .test = test,
                                   .cancel = cancel,
                                   .end = [] { ++fake.ends; }};

constexpr int kHeads = 1, kBodies = 2;  // channels of the wire

class MpiWireOnAFake : public testing::Test {
 protected:
  void SetUp() override { fake = {}; }
  void TearDown() override { EXPECT_EQ(fake.misuses, 0); }

  static Frame frame_of(std::size_t floats) {
    Frame frame;
    frame.token = 7;
    frame.note.resize(5, std::byte{3});
    frame.values.assign(floats, 2.5F);
    return frame;
  }
  /// It says so once, and after that neither brings nor throws anything.
  static void expect_broken(MpiWire& wire, const char* why) {
    try {
      static_cast<void>(wire.receive());
      FAIL() << "says nothing";
    } catch (const RunError& error) {
      EXPECT_STREQ(error.what(), why);
    }
    EXPECT_TRUE(wire.is_broken());
    fake.failing_channel = -1;  // even if MPI goes on
    for (int k = 0; k < 3; ++k) {
      EXPECT_FALSE(wire.receive().has_value());
      EXPECT_NO_THROW(wire.send(0, frame_of(2000)));
      EXPECT_NO_THROW(wire.take_sent());
      EXPECT_TRUE(wire.is_at_rest());
    }
  }
};

TEST_F(MpiWireOnAFake, BringsSmallAndLargeFramesWhole) {
  MpiWire wire(kTable);
  for (const std::size_t floats : {0U, 100U, 5000U}) {
    const Frame sent = frame_of(floats);
    wire.send(0, sent);
    const auto arrived = wire.receive();
    ASSERT_TRUE(arrived.has_value());
    EXPECT_EQ(arrived->frame.note, sent.note);
    EXPECT_EQ(arrived->frame.values, sent.values);
    EXPECT_EQ(wire.take_sent(), std::vector<std::uint64_t>{7});
    EXPECT_TRUE(wire.is_at_rest());
  }
  EXPECT_FALSE(wire.is_broken());
  wire.close();
  EXPECT_EQ(fake.ends, 1);
}

TEST_F(MpiWireOnAFake, SaysOnceThatAMessageWasLost) {
  MpiWire wire(kTable);
  wire.send(0, frame_of(10));
  fake.failing_channel = kHeads;
  expect_broken(wire, "a message of MPI was lost");
}

TEST_F(MpiWireOnAFake, AFrameWhoseBodyWasLostNeverArrives) {
  MpiWire wire(kTable);
  wire.send(0, frame_of(5000));
  fake.failing_channel = kBodies;
  expect_broken(wire, "a message of MPI was lost");
}

TEST_F(MpiWireOnAFake, WhatCannotBeSentIsSaidWhereFramesAreReceived) {
  MpiWire wire(kTable);
  fake.refuses_sends = true;
  EXPECT_NO_THROW(wire.send(0, frame_of(10)));
  expect_broken(wire, "MPI does not send to process 0 any more");
}

TEST_F(MpiWireOnAFake, AReceiveThatMpiRefusesBreaksIt) {
  MpiWire wire(kTable);
  wire.send(0, frame_of(10));
  fake.refuses_receives = true;
  expect_broken(wire, "MPI does not receive any more");
  EXPECT_THROW(MpiWire{kTable}, RunError);
}

TEST_F(MpiWireOnAFake, ALinkLeavesABrokenWireAsItIs) {
  Link link(std::make_unique<MpiWire>(kTable));
  {
    const std::scoped_lock lock(link.mutex());
    link.wire().send(0, frame_of(10));
  }
  fake.failing_channel = kHeads;
  EXPECT_FALSE(link.close());
  EXPECT_FALSE(link.close());
  EXPECT_EQ(fake.ends, 0);  // MPI_Finalize would wait for the others
}

TEST_F(MpiWireOnAFake, ALinkEndsAWholeOneInGoodOrder) {
  Link link(std::make_unique<MpiWire>(kTable));
  EXPECT_TRUE(link.close());
  EXPECT_EQ(fake.ends, 1);
}

}  // namespace mpi_wire_test
}  // namespace pipewright::exec::mpi
