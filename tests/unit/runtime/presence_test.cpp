// Who is still there: by the kernel, by a connection that bears witness, and by silence.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <latch>
#include <memory>
#include <optional>
#include <thread>

#include "core/base/error.hpp"
#include "exec/base/waiting.hpp"
#include "exec/transports/process/link.hpp"
#include "exec/transports/process/presence.hpp"
#include "exec/transports/process/tcp/wire.hpp"
#include "exec/transports/process/witness.hpp"
#include "tests/support/command_runner.hpp"

namespace pipewright::exec::mpi {
namespace presence_test {

constexpr std::int64_t kSecond = 1'000'000'000;

/// Looks every 100 ms until then.
void look_until(Presence& presence, std::int64_t& now, std::int64_t then) {
  for (; now < then; now += kSecond / 10) presence.look(now);
}

TEST(Presence, MissesSignsOnlyOfThoseWhoGiveThem) {
  for (const int own : {0, 1}) {
    Presence presence(3, own);
    std::int64_t now = kSecond;
    presence.look(now);
    presence.expect_signs(now);
    look_until(presence, now, 31 * kSecond);
    presence.give_up_silent(now, 40 * kSecond);
    for (int p = 0; p < 3; ++p) EXPECT_FALSE(presence.is_lost(p)) << own << p;
    presence.give_up_silent(now, 20 * kSecond);
    for (int p = 0; p < 3; ++p)
      EXPECT_EQ(presence.is_lost(p), p != own && (own == 0 || p == 0)) << own << p;
    EXPECT_NE(presence.how_lost(own == 0 ? 1 : 0).find("silent for 30 s"), std::string::npos);
  }
}

TEST(Presence, WhoWasStoppedHimselfMissesNobody) {
  Presence presence(2, 0);
  std::int64_t now = kSecond;
  presence.look(now);
  presence.expect_signs(now);
  look_until(presence, now, 3 * kSecond);
  now += 60 * kSecond;
  presence.look(now);
  presence.give_up_silent(now, 10 * kSecond);
  EXPECT_FALSE(presence.is_lost(1));
  look_until(presence, now, now + 9 * kSecond);
  presence.give_up_silent(now, 10 * kSecond);
  EXPECT_TRUE(presence.is_lost(1)) << "two seconds before and nine after";
}

TEST(Presence, AGoodbyeThatIsReadAfterTheEndIsOne) {
  for (const bool says_goodbye : {true, false}) {
    Presence presence(2, 0);
    std::array<int, 2> ends{};
    ASSERT_EQ(pipe(ends.data()), 0);
    presence.see_by(1, ends[0]);
    presence.look(kSecond);
    EXPECT_FALSE(presence.awaits_goodbye());
    close(ends[1]);
    EXPECT_EQ(presence.ended_process(), 1);
    presence.look(2 * kSecond);
    EXPECT_TRUE(presence.awaits_goodbye());
    EXPECT_FALSE(presence.is_lost(1));
    presence.look(3 * kSecond);
    EXPECT_TRUE(presence.awaits_goodbye()) << "nobody has read since";
    if (says_goodbye) presence.said_goodbye(1);
    presence.has_read_all(3 * kSecond);
    presence.look(3 * kSecond);
    EXPECT_FALSE(presence.awaits_goodbye());
    EXPECT_EQ(presence.is_lost(1), !says_goodbye);
  }
}

bool within(std::int64_t ns, const std::function<bool()>& happens) {
  const std::int64_t deadline = local::steady_ns() + ns;
  do {
    if (happens()) return true;
    local::sleep_until_steady(local::steady_ns() + 1'000'000);
  } while (local::steady_ns() < deadline);
  return false;
}

TEST(Witnesses, TellWhenTheOtherHasEnded) {
  for (const std::string network : {"one", "another"}) {
    Witnesses asks("one");
    std::optional<Witnesses> shows(network);
    const auto invitation = asks.invitation_for(7);
    ASSERT_TRUE(invitation.has_value());
    shows->accept(*invitation);
    std::vector<Witnesses::Seen> seen;
    const bool came = within(10 * kSecond, [&] {
      shows->look(local::steady_ns());
      seen = asks.look(local::steady_ns());
      return !seen.empty();
    });
    if (!came && network == "another") GTEST_SKIP() << "this machine has only a loopback";
    ASSERT_TRUE(came);
    EXPECT_EQ(seen.front().process, 7);
    Presence presence(8, 0);
    presence.see_by(7, seen.front().descriptor);
    EXPECT_EQ(presence.ended_process(), -1);
    shows.reset();
    EXPECT_TRUE(within(10 * kSecond, [&] { return presence.ended_process() == 7; }));
  }
}

/// One byte of each invitation is another one: its number is nobody's.
TEST(Witnesses, SendStrangersAwayAndLetNobodyInTwice) {
  Witnesses asks("one");
  const auto invitation = asks.invitation_for(1);
  ASSERT_TRUE(invitation.has_value());
  PackedBytes forged = *invitation;
  forged.front() ^= std::byte{1};
  Witnesses stranger("one"), guest("one"), again("one");
  stranger.accept(forged);
  const auto looks = [&] {
    stranger.look(0);
    guest.look(0);
    again.look(0);
    return asks.look(local::steady_ns());
  };
  EXPECT_FALSE(within(kSecond / 4, [&] { return !looks().empty(); }));
  guest.accept(*invitation);
  again.accept(*invitation);
  int seen = 0;
  within(kSecond / 2, [&] {
    for (const auto& one : looks()) {
      ++seen;
      close(one.descriptor);
    }
    return false;
  });
  EXPECT_EQ(seen, 1);
}

/// Rank 1 has connected, and dies before it says a word.
TEST(Link, TellsOfADeathWhileItStartsAtOnce) {
  const test::Folder folder;
  const auto place = [&](int process) {
    return tcp::JobPlace{
        .process = process, .processes = 2, .host = {}, .folder = folder.path().string()};
  };
  std::latch connected(2);
  std::jthread dies([&] {
    const tcp::TcpWire wire(place(1));
    connected.arrive_and_wait();
  });
  auto wire = std::make_unique<tcp::TcpWire>(place(0));
  connected.arrive_and_wait();
  const std::int64_t begin = local::steady_ns();
  try {
    const Link link(std::move(wire));
    FAIL() << "it began";
  } catch (const RunError& error) {
    EXPECT_STREQ(error.what(), "rank 1 is dead: its process has ended while the job started");
  }
  EXPECT_LT(local::steady_ns() - begin, 5 * kSecond);
}

}  // namespace presence_test
}  // namespace pipewright::exec::mpi
