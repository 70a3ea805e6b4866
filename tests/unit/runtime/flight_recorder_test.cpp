// The ring of what a rank did last: what it keeps, and that a reader beside the writer never sees
// half an entry.
#include "exec/runtime/flight_recorder.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace pipewright::exec {
namespace flight_recorder_test {

/// An entry whose parts all follow from its number.
FlightEntry numbered(std::uint32_t n) {
  return {n, static_cast<FlightState>(n % 4), n ^ 0xABCDU, std::int64_t{n} * 1'000'003};
}

void expect_numbered(const FlightEntry& entry, std::uint32_t n) {
  const FlightEntry wanted = numbered(n);
  ASSERT_EQ(entry.instruction, wanted.instruction);
  ASSERT_EQ(entry.state, wanted.state);
  ASSERT_EQ(entry.waits_for, wanted.waits_for);
  ASSERT_EQ(entry.time_ns, wanted.time_ns);
}

TEST(FlightRecorder, KeepsTheLastEntriesOldestFirst) {
  for (const std::size_t capacity : {1U, 2U, 3U, 8U}) {
    FlightRecorder recorder(capacity);
    EXPECT_TRUE(recorder.recent().empty());
    for (std::uint32_t n = 0; n < 20; ++n) {
      recorder.note(numbered(n));
      const auto recent = recorder.recent();
      ASSERT_EQ(recent.size(), std::min<std::size_t>(n + 1, capacity));
      for (std::size_t i = 0; i < recent.size(); ++i) {
        expect_numbered(recent[i], static_cast<std::uint32_t>(n + 1 - recent.size() + i));
      }
    }
  }
}

TEST(FlightRecorder, ShowsNothingOfTheStepBefore) {
  FlightRecorder recorder(4);
  for (std::uint32_t n = 0; n < 9; ++n) recorder.note(numbered(n));
  recorder.begin_step();
  EXPECT_TRUE(recorder.recent().empty());
  recorder.note(numbered(9));
  ASSERT_EQ(recorder.recent().size(), 1U);
  expect_numbered(recorder.recent().front(), 9);
}

TEST(FlightRecorder, WithoutRoomItIsOff) {
  FlightRecorder recorder(0);
  EXPECT_FALSE(recorder.is_on());
  recorder.note(numbered(1));
  EXPECT_TRUE(recorder.recent().empty());
}

TEST(FlightRecorder, AReaderBesideTheWriterSeesWholeEntriesInOrder) {
  FlightRecorder recorder(16);
  std::atomic<bool> over{false};
  std::jthread writer([&] {
    for (std::uint32_t n = 0; n < 300'000; ++n) recorder.note(numbered(n));
    over = true;
  });
  while (!over) {
    const auto recent = recorder.recent();
    ASSERT_LE(recent.size(), 16U);
    for (std::size_t i = 0; i < recent.size(); ++i) {
      expect_numbered(recent[i], recent[0].instruction + static_cast<std::uint32_t>(i));
    }
  }
  EXPECT_EQ(recorder.recent().size(), 16U);
}

}  // namespace flight_recorder_test
}  // namespace pipewright::exec
