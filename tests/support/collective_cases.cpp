#include "tests/support/collective_cases.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <thread>

#include "core/base/error.hpp"
#include "tests/support/draw.hpp"

namespace pipewright::test {
namespace collective_cases_impl {

using exec::FixedPoint;
using exec::Numerics;
using exec::collectives::Group;
using exec::collectives::share_begin;
using exec::collectives::Summands;
using Floats = std::vector<float>;
using Bytes = std::vector<std::byte>;
using Sizes = std::vector<std::size_t>;

std::unique_ptr<Group> group_of_all(CollectiveWorld& world) {
  std::vector<int> all(static_cast<std::size_t>(world.size()));
  std::iota(all.begin(), all.end(), 0);
  return world.group(all);
}

/// What member `m` brings: magnitudes far apart, so that another order gives other bits.
Floats floats_of(std::uint32_t seed, int m, std::size_t size) {
  Draw draw(seed * 131 + static_cast<std::uint32_t>(m));
  Floats values(size);
  for (float& value : values)
    value = static_cast<float>(draw.below(2001) - 1000) * std::ldexp(1.0F, draw.below(40) - 20);
  return values;
}

Bytes bytes_of(std::uint32_t seed, int from, int to, std::size_t size) {
  Draw draw(seed * 977 + static_cast<std::uint32_t>(from * 16 + to));
  Bytes bytes(size);
  for (std::byte& one : bytes) one = static_cast<std::byte>(draw.below(256));
  return bytes;
}

/// Bit for bit, and with one complaint for all elements.
template <class Array>
void expect_same(const Array& got, const Array& wanted, const std::string& what) {
  ASSERT_EQ(got.size(), wanted.size());
  if (got.empty()) return;
  constexpr std::size_t kSize = sizeof(typename Array::value_type);
  if (std::memcmp(got.data(), wanted.data(), got.size() * kSize) == 0) return;
  std::size_t first = 0;
  while (std::memcmp(&got[first], &wanted[first], kSize) == 0) ++first;
  ADD_FAILURE() << what << ": of " << got.size() << " elements the first wrong one is " << first;
}

std::size_t random_size(Draw& draw, int n) {
  switch (draw.below(6)) {
    case 0:
      return static_cast<std::size_t>(draw.below(n + 2));
    case 1:
      return static_cast<std::size_t>(n * draw.below(300));
    case 2:
    case 3:
      return static_cast<std::size_t>(draw.below(3000));
    case 4:
      return static_cast<std::size_t>(draw.below(40'000));
    default:
      return static_cast<std::size_t>(draw.below(150'000));
  }
}

// --- Sums ---

Floats serial_sum(CollectiveWorld& world, std::uint32_t seed, int n, std::size_t size) {
  std::vector<Floats> brought;
  for (int m = 0; m < n; ++m) brought.push_back(floats_of(seed, m, size));
  Floats sums(size);
  for (int share = 0; share < n; ++share) {
    const int first = world.first_summand(size * sizeof(float), n, share);
    for (std::size_t i = share_begin(size, n, share); i < share_begin(size, n, share + 1); ++i) {
      sums[i] = brought[static_cast<std::size_t>(first)][i];
      for (int step = 1; step < n; ++step)
        sums[i] += brought[static_cast<std::size_t>((first + step) % n)][i];
    }
  }
  return sums;
}

Floats exact_sum(std::uint32_t seed, int n, std::size_t size) {
  exec::FixedPointSums sums(size);
  for (int m = n; m-- > 0;) EXPECT_TRUE(sums.add(floats_of(seed, m, size)));
  Floats rounded(size);
  sums.round_to(rounded);
  return rounded;
}

void check_all_reduce(CollectiveWorld& world, Group& group, Numerics numerics, std::uint32_t seed,
                      std::size_t size) {
  Floats values = floats_of(seed, group.member(), size);
  EXPECT_TRUE(group.all_reduce({values, numerics}));
  const Floats wanted = numerics == Numerics::Exact
                            ? exact_sum(seed, group.members(), size)
                            : serial_sum(world, seed, group.members(), size);
  expect_same(values, wanted, "all_reduce");
}

void check_reduce_scatter(CollectiveWorld& world, Group& group, Numerics numerics,
                          std::uint32_t seed, std::size_t size) {
  const int n = group.members(), own = group.member();
  Floats values = floats_of(seed, own, size), wanted = values;
  EXPECT_TRUE(group.reduce_scatter({values, numerics}));
  const Floats sums =
      numerics == Numerics::Exact ? exact_sum(seed, n, size) : serial_sum(world, seed, n, size);
  for (std::size_t i = share_begin(size, n, own); i < share_begin(size, n, own + 1); ++i)
    wanted[i] = sums[i];
  expect_same(values, wanted, "reduce_scatter");
}

template <auto check, Numerics numerics>
void sums(CollectiveWorld& world) {
  const auto group = group_of_all(world);
  Draw draw(7);
  for (std::uint32_t seed = 0; seed < 12; ++seed)
    check(world, *group, numerics, seed, random_size(draw, world.size()));
}

/// The same eight arrays, however many members they are dealt to, give the bits of one member.
void the_layout_does_not_matter(CollectiveWorld& world) {
  constexpr int kArrays = 8;
  const auto group = group_of_all(world);
  Draw draw(11);
  for (std::uint32_t seed = 0; seed < 8; ++seed) {
    const std::size_t size = random_size(draw, world.size()) / 4;
    std::vector<FixedPoint> own(size), serial(size);
    for (int array = 0; array < kArrays; ++array) {
      const Floats values = floats_of(seed, array, size);
      for (std::size_t i = 0; i < size; ++i) {
        ASSERT_TRUE(serial[i].add(double{values[i]}));
        if (array % world.size() == world.self()) {
          ASSERT_TRUE(own[i].add(double{values[i]}));
        }
      }
    }
    EXPECT_TRUE(group->all_reduce(Summands(own)));
    expect_same(own, serial, "all_reduce of fixed-point sums");
  }
}

/// Everybody hears of it, wherever the element lies.
void what_has_no_sum_is_said(CollectiveWorld& world) {
  const auto group = group_of_all(world);
  for (const std::size_t size : {3U, 5000U, 60'000U}) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e15F}) {
      Floats values(size, 1.0F);
      if (world.self() == world.size() - 1) values[size / 2] = bad;
      EXPECT_FALSE(group->all_reduce({values, Numerics::Exact}));
    }
    std::vector<FixedPoint> sums(size);
    if (world.self() == 0) sums[size - 1].high = std::int64_t{1} << 62;
    EXPECT_FALSE(group->all_reduce(Summands(sums)));
    Floats values(size, 1.0F);
    EXPECT_TRUE(group->all_reduce({values, Numerics::Exact}));
    EXPECT_EQ(values[size / 2], static_cast<float>(world.size()));
  }
}

// --- Copies ---

void check_all_gather(Group& group, std::uint32_t seed, std::size_t about) {
  Draw draw(seed + 3);
  const int own = group.member();
  Sizes sizes;
  Bytes wanted, all;
  for (int m = 0; m < group.members(); ++m) {
    sizes.push_back(static_cast<std::size_t>(draw.below(static_cast<int>(about) + 1)));
    const Bytes part = bytes_of(seed, m, 0, sizes.back());
    wanted.insert(wanted.end(), part.begin(), part.end());
    all.resize(wanted.size());
    if (m == own) std::copy(part.begin(), part.end(), all.end() - static_cast<int>(part.size()));
  }
  group.all_gather({all, sizes});
  expect_same(all, wanted, "all_gather");
}

/// `about` 0: all parts are equal and small.
void check_all_to_all(Group& group, std::uint32_t seed, std::size_t about) {
  const auto size_of = [&](int from, int to) {
    Draw draw(seed * 91 + static_cast<std::uint32_t>(from * 16 + to));
    if (about == 0) return std::size_t{48};
    return draw.below(3) == 0 ? 0 : static_cast<std::size_t>(draw.below(static_cast<int>(about)));
  };
  Sizes out_sizes, in_sizes;
  Bytes out, in, wanted;
  for (int m = 0; m < group.members(); ++m) {
    out_sizes.push_back(size_of(group.member(), m));
    in_sizes.push_back(size_of(m, group.member()));
    const Bytes to = bytes_of(seed, group.member(), m, out_sizes.back());
    const Bytes from = bytes_of(seed, m, group.member(), in_sizes.back());
    out.insert(out.end(), to.begin(), to.end());
    wanted.insert(wanted.end(), from.begin(), from.end());
  }
  in.resize(wanted.size());
  group.all_to_all({out, out_sizes}, {in, in_sizes});
  expect_same(in, wanted, "all_to_all");
}

void check_broadcast(Group& group, std::uint32_t seed, std::size_t size) {
  const int root = static_cast<int>(seed) % group.members();
  const Bytes wanted = bytes_of(seed, root, 0, size);
  Bytes bytes = group.member() == root ? wanted : Bytes(size);
  group.broadcast(root, bytes);
  expect_same(bytes, wanted, "broadcast");
}

template <auto check>
void copies(CollectiveWorld& world) {
  const auto group = group_of_all(world);
  Draw draw(13);
  check(*group, 99, 0);
  for (std::uint32_t seed = 0; seed < 12; ++seed)
    check(*group, seed, 3 * random_size(draw, world.size()));
}

// --- Calls ---

/// One call of a random kind; all members draw the same.
void random_call(CollectiveWorld& world, Group& group, std::uint32_t seed) {
  Draw draw(seed);
  const int kind = draw.below(7);
  const std::size_t size = draw.below(10) == 0 ? 30'000 : static_cast<std::size_t>(draw.below(900));
  const Numerics numerics = draw.coin() ? Numerics::Exact : Numerics::Fast;
  if (kind < 2) return check_all_reduce(world, group, numerics, seed, size);
  if (kind < 4) return check_reduce_scatter(world, group, numerics, seed, size);
  if (kind == 4) return check_all_gather(group, seed, size);
  if (kind == 5) return check_all_to_all(group, seed, size);
  check_broadcast(group, seed, size);
}

/// Arrays die right after a call, and members are late by turns: what overtakes shows.
void calls_do_not_overtake_one_another(CollectiveWorld& world) {
  const auto group = group_of_all(world);
  Draw late(static_cast<std::uint32_t>(world.self()) + 1);
  for (std::uint32_t seed = 0; seed < 150; ++seed) {
    if (late.below(20) == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
    random_call(world, *group, seed);
  }
}

/// Everybody is in the group of all, in one of evens and odds, and in one of neighbours.
void a_member_is_in_several_groups(CollectiveWorld& world) {
  const int n = world.size();
  const auto all = group_of_all(world);
  std::vector<std::unique_ptr<Group>> own;
  const auto form = [&](const std::vector<int>& who) {
    if (auto group = world.group(who)) own.push_back(std::move(group));
  };
  for (int parity = 0; parity < std::min(2, n); ++parity) {
    std::vector<int> who;
    for (int m = parity; m < n; m += 2) who.push_back(m);
    form(who);
  }
  for (int first = 0; first < n; first += 2)
    form(first + 1 < n ? std::vector{first, first + 1} : std::vector{first});
  ASSERT_EQ(own.size(), 2U);
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    random_call(world, *own[seed % 2], seed);
    if (seed % 5 == 0) random_call(world, *all, seed);
  }
}

// --- What goes wrong ---

template <class Call>
void expect_run_error(const char* why, const Call& call) {
  try {
    call();
    ADD_FAILURE() << "nobody complained";
  } catch (const RunError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(why));
  }
}

void sizes_that_differ_are_refused(CollectiveWorld& world) {
  const auto group = group_of_all(world);
  const auto n = static_cast<std::size_t>(world.size());
  if (n == 1) return;
  Sizes sizes(n, 4);
  Bytes out(4 * n), in(4 * n + 1);
  Sizes in_sizes = sizes;
  if (world.self() == 1) in_sizes[0] = 5;
  const auto call = [&] { group->all_to_all({out, sizes}, {in, in_sizes}); };
  // The others may have had all they wanted.
  for (int again = 0; again < 2; ++again) {
    if (world.self() == 1 || again == 1)
      expect_run_error("member 0 sends 4 bytes to member 1, which expects 5", [&] {
        call();
        group->broadcast(0, out);
      });
    else
      try {
        call();
      } catch (const RunError& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr("which expects 5"));
      }
  }
}

/// A sum of several rounds in which one member takes no part.
void a_member_that_leaves_ends_the_others_calls(CollectiveWorld& world) {
  auto group = group_of_all(world);
  const auto meeting = group_of_all(world);
  if (world.size() == 1) return;
  Floats values(50'000, 1.0F);
  EXPECT_TRUE(group->all_reduce({values, Numerics::Fast}));
  // Now all have come out of that call.
  EXPECT_TRUE(meeting->all_reduce({values, Numerics::Fast}));
  if (world.self() == world.size() - 1) return group.reset();
  expect_run_error("member", [&] {
    static_cast<void>(group->all_reduce({values, Numerics::Fast}));
  });
  expect_run_error("member", [&] { group->broadcast(0, {}); });
}

void giving_up_ends_everybodys_calls(CollectiveWorld& world) {
  const auto group = group_of_all(world);
  if (world.size() == 1) return;
  Floats values(50'000, 1.0F);
  if (world.self() == 0) group->give_up("member 0 is tired");
  expect_run_error("member 0 is tired", [&] {
    static_cast<void>(group->all_reduce({values, Numerics::Fast}));
  });
}

}  // namespace collective_cases_impl

std::span<const CollectiveCase> collective_cases() {
  using namespace collective_cases_impl;
  static constexpr CollectiveCase kCases[] = {
      {"AllReduce", sums<check_all_reduce, Numerics::Fast>},
      {"AllReduceExactly", sums<check_all_reduce, Numerics::Exact>},
      {"ReduceScatter", sums<check_reduce_scatter, Numerics::Fast>},
      {"ReduceScatterExactly", sums<check_reduce_scatter, Numerics::Exact>},
      {"TheLayoutDoesNotMatter", the_layout_does_not_matter},
      {"WhatHasNoSumIsSaid", what_has_no_sum_is_said},
      {"AllGather", copies<check_all_gather>},
      {"AllToAll", copies<check_all_to_all>},
      {"Broadcast", copies<check_broadcast>},
      {"CallsDoNotOvertakeOneAnother", calls_do_not_overtake_one_another},
      {"AMemberIsInSeveralGroups", a_member_is_in_several_groups},
      {"SizesThatDifferAreRefused", sizes_that_differ_are_refused},
      {"AMemberThatLeavesEndsTheOthersCalls", a_member_that_leaves_ends_the_others_calls},
      {"GivingUpEndsEverybodysCalls", giving_up_ends_everybodys_calls},
  };
  return kCases;
}

}  // namespace pipewright::test
