// A Program whose ranks stand for devices, and the one in which every device is a rank
// (docs/semantics.md §3.5): the same verdict, and each instruction of a rank starts and ends when
// that of each of its devices does, to the nanosecond.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/base/error.hpp"
#include "core/costs/collective_model.hpp"
#include "core/costs/device_costs.hpp"
#include "core/order/devices.hpp"
#include "core/program/lower.hpp"
#include "exec/devices/paced/device.hpp"
#include "sim/engine.hpp"
#include "tests/property/two_readings.hpp"
#include "tests/reference/random_parts.hpp"

namespace pipewright::tests {
namespace written_out_test {

/// Without what replicas do together: devices of a rank are replicas of one another in the long
/// form alone.
reference::RandomOptions options() {
  reference::RandomOptions options;
  options.most_ranks = 4;
  options.bookkeeping = options.versions = options.broken = false;
  return options;
}

Case random_case(std::uint64_t seed) {
  reference::Dice dice(seed);
  const auto made = reference::random_order(dice, options());
  Case c{made.order, reference::random_policy(dice), reference::random_costs(dice, made.order)};
  reference::add_parts(dice, c.order, c.heading);
  return c;
}

bool names_axes_alone(const Case& c) {
  return std::all_of(c.heading.parts.begin(), c.heading.parts.end(), [&](const auto& of) {
    return std::all_of(of.second.begin(), of.second.end(), [&](const reference::Action& part) {
      return part.kind == "PART" || reference::is_axis(c.heading.mesh, part.group);
    });
  });
}

/// A node that ends inside a block lies otherwise for some of its devices.
bool are_alike(const CostTable& costs, int devices) {
  return costs.collectives == nullptr || costs.collectives->devices_per_node % devices == 0;
}

/// The executor on its virtual clock ends when the simulator says.
void expect_run_as_simulated(const Program& program, const CostTable& costs,
                             const sim::Result& simulated) {
  const exec::RunResult run =
      exec::paced::run_paced(program, costs, exec::local::ClockKind::Virtual, {.steps = 1});
  ASSERT_TRUE(run.finished());
  EXPECT_EQ(run.timeline.end, simulated.timeline.end);
}

void expect_alike(const Program& ranks, const Program& devices, const CostTable& costs, int each) {
  const CostTable long_costs = costs_of_devices(costs, each);
  const sim::Result one = sim::simulate(ranks, costs), all = sim::simulate(devices, long_costs);
  ASSERT_EQ(one.finished, all.finished);
  EXPECT_EQ(sim::check(ranks, costs).verdict, sim::check(devices, long_costs).verdict);
  ASSERT_EQ(devices.ranks(), ranks.ranks() * each);
  for (int r = 0; r < devices.ranks(); ++r) {
    const auto of = static_cast<std::size_t>(r / each), own = static_cast<std::size_t>(r);
    const InstructionId first = ranks.rank_begin[of], count = ranks.rank_begin[of + 1] - first;
    ASSERT_EQ(devices.rank_begin[own + 1] - devices.rank_begin[own], count);
    for (InstructionId k = 0; k < count; ++k) {
      const InstructionId id = devices.rank_begin[own] + k;
      ASSERT_EQ(all.timeline.start[id], one.timeline.start[first + k]) << devices.text(id);
      ASSERT_EQ(all.timeline.end[id], one.timeline.end[first + k]) << devices.text(id);
    }
  }
  // `run` refuses batches that are one operation (docs/semantics.md §2.4).
  if (all.finished && devices.joined.empty()) expect_run_as_simulated(devices, long_costs, all);
}

TEST(WrittenOut, DevicesDoWhatTheirRankDoes) {
  int tried = 0, hung = 0;
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    const Case c = random_case(seed);
    const Order order = order_of(c);
    const int each = devices_of_rank(order.mesh);
    if (each == 1) continue;
    SCOPED_TRACE(shown(c));
    if (!names_axes_alone(c)) {
      EXPECT_THROW(written_out(order), InputError);
      continue;
    }
    if (!are_alike(costs_of(c), each)) continue;
    const Program ranks = program_of(c);
    const Program devices = lower(written_out(order), ranks.policy);
    expect_alike(ranks, devices, costs_of(c), each);
    hung += sim::check(ranks, costs_of(c)).verdict == Verdict::Ok ? 0 : 1;
    ++tried;
    if (HasFailure()) return;
  }
  EXPECT_GT(tried, 500);
  EXPECT_GT(hung, 10);
}

TEST(WrittenOut, TheTextSaysIt) {
  const char* csv = "# parts 0F: a ALL_REDUCE(tp:x)\n# mesh tp=2\n0F0,0F1,0B0,0B1\n";
  const Order order = written_out(read_order_csv(csv, "order.csv"));
  const std::string text = write_order_csv(order);
  EXPECT_EQ(text,
            "# parts 0F: a ALL_REDUCE(tp:x)\n# devices tp=2\n0F0,0F1,0B0,0B1\n0F2,0F3,0B2,0B3\n");
  EXPECT_EQ(write_order_csv(read_order_csv(text, "order.csv")), text);
}

void expect_refused(const char* csv, const std::string& why) {
  try {
    read_order_csv(csv, "order.csv");
    ADD_FAILURE() << csv;
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
  }
}

TEST(WrittenOut, WhatMakesNoBlocksIsRefused) {
  expect_refused("# mesh tp=2\n# devices tp=2\n0F0,0B0\n0F1,0B1\n", "give one of the two");
  expect_refused("# devices tp=2\n0F0,0B0\n1F0,1B0\n2F0,2B0\n", "no blocks of 2 devices");
  expect_refused("# group tp: 0 1\n# devices tp=2\n0F0,0B0\n0F1,0B1\n", "give one of them another");
}

}  // namespace written_out_test
}  // namespace pipewright::tests
