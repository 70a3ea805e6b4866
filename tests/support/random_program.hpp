// Random Programs under random policies, and what a report of a stuck one says, for tests that run
// them.
#pragma once

#include <string>

#include "core/program/wait_for.hpp"
#include "tests/property/two_readings.hpp"
#include "tests/reference/random_order.hpp"

namespace pipewright::tests {

inline Case random_case(std::uint64_t seed) {
  reference::Dice dice(seed);
  const reference::RandomOrder random = reference::random_order(dice);
  Case c{random.order, reference::random_policy(dice), reference::random_costs(dice, random.order),
         false};
  c.fragment = random.broken;
  c.policy.batches = reference::Batches::Apart;  // the executor refuses joined ones
  return c;
}

inline bool is_usable(const Case& c) {
  if (reference::parse_order(reference::to_csv(c.order)).empty()) return false;
  return !contradicts_itself(c.order);
}

/// What the report says, in words.
inline std::string text_of(const Program& program, const WaitReport& report) {
  std::string text = std::string(to_string(report.verdict)) + "\n";
  for (const StuckHead& head : report.stuck) {
    text += "head " + std::to_string(head.rank.value) + "/" + std::to_string(head.lane) + " " +
            program.text(head.instruction) + "\n";
  }
  for (const WaitStep& step : report.cycle) {
    text += "cycle " + program.text(step.instruction) + " waits for " +
            program.text(step.waits_for) + " behind " + program.text(step.behind) + "\n";
  }
  return text;
}

}  // namespace pipewright::tests
